"""The metadata store on ZooKeeper (3.4 or newer).

- Keys are nodes of a tree (`paths.py`); a version is the number of the transaction that wrote the node.
- A transaction is planned from what was read, and holds only if that is still so (`plan.py`).
- Reads pass a majority of the servers (`reader.py`).
- Each session has its own connection (`session.py`); all else shares one.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from headwater.metadata.limits import check_key, check_keys, check_prefix, check_ttl, check_txn
from headwater.metadata.store import KV, Condition, MetaSession, Operation, Resync, Txn, Unavailable
from headwater.metadata.zookeeper.client import ZookeeperClient
from headwater.metadata.zookeeper.paths import ZookeeperPaths
from headwater.metadata.zookeeper.reader import ZookeeperReader
from headwater.metadata.zookeeper.session import ZookeeperSession
from headwater.metadata.zookeeper.url import ZookeeperAddress
from headwater.metadata.zookeeper.watch import Watches
from headwater.metadata.zookeeper.writer import ZookeeperWriter

SESSION_TIMEOUT_S: Final = 6.0
"""Of the store's own connection: a server that falls silent is left after two thirds of it."""


class ZookeeperMetaStore:
    """See `MetaStore`. Open with `open`. Closing the store ends the sessions that are still open."""

    def __init__(self, address: ZookeeperAddress, client: ZookeeperClient) -> None:
        self._address = address
        self._client = client
        self._paths = ZookeeperPaths(address.root)
        self._reader = ZookeeperReader(address, client, self._paths)
        self._writer = ZookeeperWriter(address, client, self._paths, self._reader)
        self._watches = Watches(client, self._paths)
        self._sessions: set[ZookeeperSession] = set()
        self._endings: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, address: ZookeeperAddress) -> "ZookeeperMetaStore":
        """Raises Unavailable when ZooKeeper cannot be reached, or refuses the login."""
        store = cls(address, await ZookeeperClient.open(address, SESSION_TIMEOUT_S))
        try:
            await store._writer.make_folders([store._paths.keys, store._paths.sessions])
        except BaseException:
            await store.close()
            raise
        return store

    async def get(self, key: str) -> KV | None:
        check_key(key)
        return await self._reader.get(key)

    async def get_many(self, keys: Sequence[str]) -> list[KV | None]:
        check_keys(keys)
        return await self._reader.get_many(keys)

    async def list(self, prefix: str) -> list[KV]:
        check_prefix(prefix)
        return await self._reader.list_below(prefix)

    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        check_txn(conditions, operations)
        if not conditions and not operations:
            return Txn(True, {})
        return await self._writer.txn(conditions, operations)

    async def session(self, ttl_s: float) -> MetaSession:
        check_ttl(ttl_s)
        client = await ZookeeperClient.open(self._address, ttl_s)
        session = ZookeeperSession(client, self._paths.sessions, ttl_s, self._session_ended, self._reader.is_absent)
        try:
            await self._reader.until_done(session.begin)
        except BaseException:
            await session.abandon()
            raise
        self._sessions.add(session)
        return session

    async def watch(self, prefix: str) -> AsyncIterator[set[str] | Resync]:
        check_prefix(prefix)
        if self._client.is_closed:
            raise Unavailable(f"the connection to {self._address} is closed")
        tree = self._watches.begin(prefix)
        try:
            while (hint := await tree.next_hint()) is not None:
                yield hint
        finally:
            self._watches.end(tree)

    async def close(self) -> None:
        await asyncio.gather(*(session.abandon() for session in self._sessions))
        await asyncio.gather(*self._endings)
        await self._client.close()

    def _session_ended(self, session: ZookeeperSession) -> None:
        """Its connection is closed in the background: kazoo would go on, with another session."""
        self._sessions.discard(session)
        ending = asyncio.create_task(session.abandon(), name=f"metadata-session-end-{session.id}")
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
