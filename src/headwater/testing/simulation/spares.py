"""Which replicas may be destroyed, so that every segment still has a sound one."""

from headwater.model.ids import Offset, SegmentId
from headwater.model.segments import Head, SealedSegment
from headwater.testing.simulation.invariants import Invariants
from headwater.testing.simulation.membership import SimulatedMembership
from headwater.testing.simulation.metadata import HEAD, STAGED, SimulatedMetadata
from headwater.testing.simulation.replica import SimulatedReplica
from headwater.testing.simulation.store import SimulatedStore


class Spares:
    def __init__(
        self, metadata: SimulatedMetadata, membership: SimulatedMembership, invariants: Invariants, min_insync: int
    ) -> None:
        self._metadata = metadata
        self._membership = membership
        self._invariants = invariants
        self._min_insync = min_insync

    def is_spare(self, store: SimulatedStore, segment: SegmentId) -> bool:
        """Whether the rest is enough without this replica.

        A segment in the chain needs another sound replica that is listed; one more while a copy is under way, because
        when it ends, another may be taken off the list. A segment that may yet be published, on any min_insync of its
        replicas, needs two with as much."""
        replica = store.replicas.get(segment)
        if replica is None:
            return True
        for listed in self._invariants.chain():
            if listed.id == segment:
                adding = listed.adding if isinstance(listed, SealedSegment) else ()
                others = [it for it in listed.replicas if it != store.store_id]
                sound = [it for it in others if self._is_sound(self._membership.by_id[it], it, segment, replica.base)]
                return len(sound) > len(adding)
        head: Head | None = self._metadata.value(HEAD)
        is_staged = self._metadata.value(STAGED + segment) is not None
        if head is not None and replica.epoch < head.epoch and not is_staged:
            return True
        equals = [
            other
            for other in self._membership.stores
            if other is not store and self._is_sound(other, other.store_id, segment, replica.durable_end)
        ]
        return self._min_insync > 1 and len(equals) > 1

    def _is_sound(self, store: SimulatedStore, store_id: str, segment: SegmentId, end: Offset) -> bool:
        replica: SimulatedReplica | None = store.replicas.get(segment)
        if store.store_id != store_id or replica is None or replica.in_doubt or replica.is_damaged:
            return False
        return replica.durable_end >= end
