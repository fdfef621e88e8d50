"""What a partition needs of the node it is led on."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from headwater.broker.log.tail_cache import TailCache
from headwater.model.clock import Clock
from headwater.model.ids import NodeId, SegmentId, StoreId
from headwater.model.replica import LocalStore, Store, StoreUnreachable

CREATES_AT_ONCE = 256
"""So few that each is answered long before a store counts as silent."""
MEASURES_AT_ONCE = 4
"""Each flushes the disk of every replica, and no request waits for it."""


class Stores(Protocol):
    """The stores of the cluster, near and far."""

    def find(self, store_id: StoreId) -> Store:
        """Raises StoreUnreachable if it is not known where the store is."""


class OneStore:
    """The stores of a node that is alone."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, store_id: StoreId) -> Store:
        if store_id != self._store.store_id:
            raise StoreUnreachable(f"store {store_id} belongs to no node that is alive")
        return self._store


class Placement(Protocol):
    """Chooses stores for a new segment: see `replication.placement.choose`."""

    def __call__(
        self, count: int, avoid: frozenset[StoreId], salt: SegmentId, preferred: frozenset[NodeId] = frozenset()
    ) -> tuple[StoreId, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    node_id: NodeId
    store: LocalStore | None
    """The store of this node; None if it has none."""
    stores: Stores
    choose: Placement
    """Where new segments are to lie."""
    clock: Clock
    tail_cache: TailCache
    spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
    new_segment_id: Callable[[], SegmentId]
    is_lost: Callable[[StoreId], bool] = lambda _: False
    """Whether an administrator declared a store lost: a takeover then does without it."""
    creates: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CREATES_AT_ONCE))
    """Permits to create replicas, for all partitions: when a store is lost, all of them need new ones."""
    measures: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MEASURES_AT_ONCE))
    """Permits to flush and measure sealed segments."""

    def placing(self, wanted: Callable[[], frozenset[NodeId]]) -> Self:
        """The same, for a partition whose segments prefer some nodes, which may change."""
        choose = self.choose

        def choose_wanted(
            count: int, avoid: frozenset[StoreId], salt: SegmentId, preferred: frozenset[NodeId] = frozenset()
        ) -> tuple[StoreId, ...]:
            nodes = wanted() | preferred
            return choose(count, avoid, salt, nodes) if nodes else choose(count, avoid, salt)

        return replace(self, choose=choose_wanted)

    @property
    def own_store_id(self) -> StoreId | None:
        return self.store.store_id if self.store is not None else None
