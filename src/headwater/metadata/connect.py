"""From a metadata URL to the store behind it.

sqlite:PATH                          one file on this host, shared by the processes of this host
etcd://HOST:PORT,.../PREFIX          a cluster of etcd (`etcd_url.py` has all of it); etcds:// with TLS
zookeeper://HOST:PORT,.../ROOT       an ensemble of ZooKeeper (`zookeeper_url.py`); zookeepers:// with TLS

What only one back end needs is imported when a URL asks for it.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import MetaStore


class BadMetadataUrl(ValueError):
    """The URL names no store, or one whose client is not installed."""


async def open_metadata(url: str) -> MetaStore:
    """Raises BadMetadataUrl before anything is opened; then what the store raises, Unavailable above all."""
    try:
        open_store = _store_behind(url)
    except ValueError as error:
        raise BadMetadataUrl(str(error)) from error
    return await open_store()


def _store_behind(url: str) -> Callable[[], Awaitable[MetaStore]]:
    scheme, _, path = url.partition(":")
    if scheme in ("etcd", "etcds"):
        return _etcd(url)
    if scheme in ("zookeeper", "zookeepers"):
        return _zookeeper(url)
    if scheme != "sqlite" or not path:
        shown = repr(f"{scheme[:20]}:...") if path else "without a scheme"  # the rest may hold a password
        raise ValueError(f"unknown metadata URL {shown}: use sqlite:PATH, etcd://HOST:PORT or zookeeper://HOST:PORT")
    # sqlite:///absolute is what people know from other tools; sqlite:PATH is the plain form.
    return partial(SqliteMetaStore.open, path.removeprefix("//"))


def _etcd(url: str) -> Callable[[], Awaitable[MetaStore]]:
    from headwater.metadata.etcd.url import EtcdAddress

    address = EtcdAddress.parse(url)
    try:
        from headwater.metadata.etcd.store import EtcdMetaStore
    except ModuleNotFoundError as error:
        raise ValueError(f"metadata in etcd needs {error.name}: pip install 'headwater[etcd]'") from error
    return partial(EtcdMetaStore.open, address)


def _zookeeper(url: str) -> Callable[[], Awaitable[MetaStore]]:
    from headwater.metadata.zookeeper.url import ZookeeperAddress

    address = ZookeeperAddress.parse(url)
    try:
        from headwater.metadata.zookeeper.store import ZookeeperMetaStore
    except ModuleNotFoundError as error:
        raise ValueError(f"metadata in ZooKeeper needs {error.name}: pip install 'headwater[zookeeper]'") from error
    return partial(ZookeeperMetaStore.open, address)
