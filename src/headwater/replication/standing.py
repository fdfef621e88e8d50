"""What a replica is worth by the store it is on, and whether a segment with such replicas needs more or fewer."""

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from headwater.model.ids import NodeId, PartitionId, StoreId
from headwater.replication.cluster_view import ClusterView


class Standing(enum.Enum):
    """What a replica is worth, by the store it is on."""

    SOUND = "sound"
    """Alive, and to stay."""
    RESTING = "resting"
    """Not alive, but not for long: it counts, though no store can copy from it."""
    LEAVING = "leaving"
    """Alive, but the store is drained, or is not where the partition is wanted."""
    DEAD = "dead"
    """Not alive for long. It may come back."""
    LOST = "lost"
    """An administrator decided that it will not come back."""


class ReplicaVerdict(NamedTuple):
    is_short: bool
    is_spare: bool
    """There are replicas that are not needed."""
    living: int


FINE: Final = ReplicaVerdict(False, False, 0)
"""Nothing to do, or nothing that could be done."""


class Policy:
    """What is wanted for the segments of some partitions. Most segments share their replicas with many others, so each
    set of replicas is judged once."""

    def __init__(
        self,
        view: ClusterView,
        standings: Mapping[StoreId, Standing],
        target_count: int,
        target_nodes: tuple[NodeId, ...] | None = None,
    ) -> None:
        self.standings = standings
        self.target_count = target_count
        self.target_nodes = target_nodes
        """Only there, while a reassignment is under way."""
        self._view = view
        self._verdicts: dict[tuple[StoreId, ...], ReplicaVerdict] = {}

    def verdict(self, replicas: tuple[StoreId, ...]) -> ReplicaVerdict:
        known = self._verdicts.get(replicas)
        if known is None:
            known = self._verdicts[replicas] = self._judge(replicas)
        return known

    def count(self, replicas: tuple[StoreId, ...], *standings: Standing) -> int:
        return sum(self.standings.get(store, Standing.DEAD) in standings for store in replicas)

    def is_short(self, replicas: tuple[StoreId, ...]) -> bool:
        return self.count(replicas, Standing.SOUND, Standing.RESTING) < self.target_count

    def _judge(self, replicas: tuple[StoreId, ...]) -> ReplicaVerdict:
        living = self.count(replicas, Standing.SOUND, Standing.LEAVING)
        if self.is_short(replicas):
            return ReplicaVerdict(True, False, living) if living else FINE
        is_spare = without_surplus(replicas, self.standings, self.target_count, self._view, keep=None) != replicas
        return ReplicaVerdict(False, True, living) if is_spare else FINE


class Policies:
    def __init__(self, view: ClusterView, standings: Mapping[StoreId, Standing]) -> None:
        self._view = view
        self._standings = standings
        self._by_want: dict[int, Policy] = {}
        self._last: tuple[PartitionId, Policy | None] | None = None
        self._moving = {
            partition: Policy(
                view,
                {store: _unless_elsewhere(it, view, store, item.value.nodes) for store, it in standings.items()},
                len(item.value.nodes),
                item.value.nodes,
            )
            for partition, item in view.reassignments.items()
            if not item.value.is_complete
        }

    def of(self, partition: PartitionId) -> Policy | None:
        """None for a topic that is gone."""
        # Segments come partition by partition, and to find out is dearer than all the rest.
        if self._last is None or self._last[0] is not partition:
            self._last = partition, self._find(partition)
        return self._last[1]

    def _find(self, partition: PartitionId) -> Policy | None:
        if partition.topic_id not in self._view.topics:
            return None
        moving = self._moving.get(partition) if self._moving else None
        if moving is not None:
            return moving
        target_count = self._view.target_replica_count(partition)
        policy = self._by_want.get(target_count)
        if policy is None:
            policy = self._by_want[target_count] = Policy(self._view, self._standings, target_count)
        return policy


def without_surplus(
    replicas: tuple[StoreId, ...],
    standings: Mapping[StoreId, Standing],
    target_count: int,
    view: ClusterView,
    keep: StoreId | None,
) -> tuple[StoreId, ...]:
    """The replicas that are needed, in the same order."""
    of = {store: standings.get(store, Standing.DEAD) for store in replicas}
    count = Counter(of.values())
    if not count[Standing.SOUND]:
        return replicas
    dropped = {store for store, standing in of.items() if standing is Standing.LOST}
    has_enough = count[Standing.SOUND] >= target_count
    if has_enough:
        dropped |= {store for store, standing in of.items() if standing is not Standing.SOUND}
    spare = count[Standing.SOUND] + count[Standing.RESTING] + count[Standing.DEAD] - target_count
    dead = [store for store, standing in of.items() if standing is Standing.DEAD]
    dropped |= set(dead[: max(spare, 0)])
    sound = [store for store, standing in of.items() if standing is Standing.SOUND]
    while len(sound) > max(target_count, 1):
        surplus = _most_crowded(sound, view, keep)
        sound.remove(surplus)
        dropped.add(surplus)
    return tuple(store for store in replicas if store not in dropped)


def _unless_elsewhere(standing: Standing, view: ClusterView, store: StoreId, nodes: Sequence[NodeId]) -> Standing:
    if view.stores[store].node_id in nodes:
        return standing
    return {Standing.SOUND: Standing.LEAVING, Standing.RESTING: Standing.DEAD}.get(standing, standing)


def _most_crowded(stores: Sequence[StoreId], view: ClusterView, keep: StoreId | None) -> StoreId:
    infos = view.store_infos
    domains = Counter(infos[store].failure_domain for store in stores)
    return min(
        (store for store in stores if store != keep),
        key=lambda store: (-domains[infos[store].failure_domain], infos[store].free_bytes, store),
    )
