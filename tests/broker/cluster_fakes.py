"""A metadata store that can be cut off, stores that only remember, and what it takes to run shells against them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from headwater.broker.cluster.node_session import NodeSession, NodeSessionOptions
from headwater.broker.cluster.watch import ClusterWatch
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import KV, Condition, MetaSession, MetaStore, Operation, Resync, Txn, Unavailable, Unknown
from headwater.model.cluster import Node, NodeStore, Role
from headwater.model.ids import NodeId, StoreId
from tests.support.tasks import running

GB = 1 << 30
TTL_S = 1.0
PATIENCE_S = 60.0


def store_of(node: NodeId) -> StoreId:
    return StoreId(f"{node:032x}")


class CuttableMetaStore:
    """A `MetaStore` over another one. Cut off, it refuses every call; a lost answer is of a transaction that took
    place."""

    def __init__(self, inner: MetaStore) -> None:
        self._inner = inner
        self.is_cut = False
        self.answers_to_lose = 0
        self.may_read = asyncio.Event()
        """Cleared, many keys at once are read only when it is set again."""
        self.may_read.set()
        self.reads = self.lists = 0
        """How often keys were read, one or many at once, and how often all below a prefix."""
        self.transactions: list[tuple[Sequence[Condition], Sequence[Operation]]] = []

    def _check(self) -> None:
        if self.is_cut:
            raise Unavailable("cut off")

    async def get(self, key: str) -> KV | None:
        self._check()
        self.reads += 1
        return await self._inner.get(key)

    async def get_many(self, keys: Sequence[str]) -> list[KV | None]:
        self._check()
        self.reads += 1
        await self.may_read.wait()
        return await self._inner.get_many(keys)

    async def list(self, prefix: str) -> list[KV]:
        self._check()
        self.lists += 1
        return await self._inner.list(prefix)

    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        self._check()
        self.transactions.append((conditions, operations))
        answer = await self._inner.txn(conditions, operations)
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise Unknown("the answer was lost")
        return answer

    async def watch(self, prefix: str) -> AsyncIterator[set[str] | Resync]:
        self._check()
        async for hint in self._inner.watch(prefix):
            self._check()
            yield hint

    async def session(self, ttl_s: float) -> MetaSession:
        self._check()
        return await self._inner.session(ttl_s)

    async def close(self) -> None:
        await self._inner.close()


def this_node(node_id: NodeId, *, port: int | None = None, roles: tuple[Role, ...] = tuple(Role)) -> Node:
    return Node(
        node_id=node_id,
        epoch=0,
        host="127.0.0.1",
        port=port or 9000 + node_id,
        peer_host="127.0.0.1",
        peer_port=9100 + node_id,
        roles=roles,
    )


def a_session(metadata: MetaStore, node: Node, free_bytes: Callable[[], int] = lambda: 50 * GB) -> NodeSession:
    def stores() -> Sequence[NodeStore]:
        has_store = Role.STORE in node.roles
        return [NodeStore(store_of(node.node_id), free_bytes(), 100 * GB)] if has_store else []

    return NodeSession(metadata, node, stores, NodeSessionOptions(ttl_s=TTL_S, refresh_s=0.05))


@contextlib.asynccontextmanager
async def metadata_store(path: Path) -> AsyncIterator[CuttableMetaStore]:
    store = CuttableMetaStore(await SqliteMetaStore.open(path / "metadata.db"))
    try:
        yield store
    finally:
        store.is_cut = False
        await store.close()


@contextlib.asynccontextmanager
async def a_watch(metadata: MetaStore) -> AsyncIterator[ClusterWatch]:
    watch = ClusterWatch(metadata)
    async with running(watch.run()):
        await watch.synced()
        yield watch
