"""From a metadata URL to the store behind it.

sqlite:PATH                          one file on this host, shared by the processes of this host
etcd://HOST:PORT,.../PREFIX          a cluster of etcd (`etcd_url.py` has all of it); etcds:// with TLS

What only one back end needs is imported when a URL asks for it.
"""

from headwater.metadata.sqlite import SqliteMetaStore
from headwater.metadata.store import MetaStore


async def open_metadata(url: str) -> MetaStore:
    """Raises ValueError for a URL that names no store."""
    scheme, _, path = url.partition(":")
    if scheme in ("etcd", "etcds"):
        return await _open_etcd(url)
    if scheme != "sqlite" or not path:
        raise ValueError(f"unknown metadata URL {url!r}: use sqlite:PATH or etcd://HOST:PORT")
    # sqlite:///absolute is what people know from other tools; sqlite:PATH is the plain form.
    return await SqliteMetaStore.open(path.removeprefix("//"))


async def _open_etcd(url: str) -> MetaStore:
    from headwater.metadata.etcd_url import EtcdAddress

    address = EtcdAddress.parse(url)
    try:
        from headwater.metadata.etcd import EtcdMetaStore
    except ModuleNotFoundError as error:
        raise ValueError(f"metadata in etcd needs {error.name}: pip install 'headwater[etcd]'") from error
    return await EtcdMetaStore.open(address)
