"""Where a segment's replicas go, and who leads a partition.

Spread over racks comes first, then over nodes, then free space: each store draws a number from the segment's id,
weighted by its free bytes, and the largest win. So the segments of one partition spread over all stores, larger disks
get more of them, and the same facts always give the same answer.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.model.cluster import StoreState
from headwater.model.ids import NodeId, SegmentId, StoreId

MIN_FREE = 0.05
MIN_FREE_BYTES = 1 << 30
"""A store with less than both of its disk free gets no new segment: a small disk keeps a share, a large one room for
another segment of the usual size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    store_id: StoreId
    node_id: NodeId
    rack: str | None
    free_bytes: int
    total_bytes: int
    state: StoreState
    is_alive: bool
    in_doubt: bool = False

    @property
    def is_usable(self) -> bool:
        """Whether it may get something new."""
        has_room = self.free_bytes >= min(self.total_bytes * MIN_FREE, MIN_FREE_BYTES)
        return self.is_alive and self.state is StoreState.ACTIVE and has_room

    @property
    def failure_domain(self) -> str:
        """The rack; a node without one counts as a rack."""
        return f"rack {self.rack}" if self.rack is not None else f"node {self.node_id}"


def choose(
    stores: Sequence[StoreInfo],
    count: int,
    first: StoreId | None,
    avoid: frozenset[StoreId],
    salt: SegmentId,
    *,
    beside: Iterable[StoreId] = (),
    preferred: frozenset[NodeId] = frozenset(),
) -> tuple[StoreId, ...]:
    """`count` stores for a segment, or as many as there are; `first` (the leader's own) is the first if it can be had.

    `beside` have replicas already: they are not chosen, and the choice keeps away from their racks. `preferred` nodes
    come before all others."""
    by_id = {store.store_id: store for store in stores}
    taken = [by_id[store] for store in beside if store in by_id]
    barred = avoid.union(store.store_id for store in taken)
    free = {store_id: store for store_id, store in by_id.items() if store.is_usable and store_id not in barred}
    racks = Counter(store.failure_domain for store in taken)
    nodes = Counter(store.node_id for store in taken)
    luck = {store_id: _luck(store, salt) for store_id, store in free.items()}
    chosen: list[StoreId] = []
    while free and len(chosen) < count:
        if not chosen and first in free and (not preferred or free[first].node_id in preferred):
            best = first
        else:
            best = min(
                free,
                key=lambda id_: (
                    bool(preferred) and free[id_].node_id not in preferred,
                    racks[free[id_].failure_domain],
                    nodes[free[id_].node_id],
                    -luck[id_],
                    id_,
                ),
            )
        store = free.pop(best)
        racks[store.failure_domain] += 1
        nodes[store.node_id] += 1
        chosen.append(best)
    return tuple(chosen)


@dataclass(frozen=True, slots=True)
class LeaderCandidate:
    """A living broker that may lead a partition."""

    node_id: NodeId
    led: int
    """How many partitions it leads already."""
    holds_open: bool
    """Its store has a replica of the open segment, and no doubt about it is known."""


def choose_leader(candidates: Iterable[LeaderCandidate], avoid: frozenset[NodeId], salt: str) -> NodeId | None:
    """Who has the data at hand, then who leads least. `avoid` have failed at it, and come last."""
    best = min(
        candidates,
        key=lambda it: (it.node_id in avoid, not it.holds_open, it.led, -_draw(salt, str(it.node_id)), it.node_id),
        default=None,
    )
    return best.node_id if best is not None else None


def _luck(store: StoreInfo, salt: str) -> float:
    """Weighted rendezvous hashing: the chance to be the largest is proportional to the free bytes."""
    return max(store.free_bytes, 1) / -math.log(_draw(salt, store.store_id))


def _draw(salt: str, name: str) -> float:
    """A number in (0, 1) that is fixed for the pair."""
    digest = hashlib.blake2b(f"{salt} {name}".encode(), digest_size=6).digest()
    return (int.from_bytes(digest) + 0.5) / (1 << 48)
