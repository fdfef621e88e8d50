"""From a metadata URL to the store behind it.

sqlite:PATH      one file on this host, shared by the processes of this host
"""

from headwater.metadata.sqlite import SqliteMetaStore
from headwater.metadata.store import MetaStore


async def open_metadata(url: str) -> MetaStore:
    """Raises ValueError for a URL that names no store."""
    scheme, _, path = url.partition(":")
    if scheme != "sqlite" or not path:
        raise ValueError(f"unknown metadata URL {url!r}: use sqlite:PATH")
    # sqlite:///absolute is what people know from other tools; sqlite:PATH is the plain form.
    return await SqliteMetaStore.open(path.removeprefix("//"))
