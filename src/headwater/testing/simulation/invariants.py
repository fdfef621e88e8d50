"""What must hold in every run (docs/replication.md, 16), checked as soon as something could break it, and once more at
the end for every offset on every replica.

    I1   an acknowledged batch is at its offset in every later committed log
    I2   what was once exposed at an offset never changes
    I3   the chain is contiguous, begins at the start of the log, and only its last segment is open
    I4   segment epochs never decrease, and no leader exposes what a later one does not have
    I5   a replica of an open segment is a prefix of what its one writer wrote
    I6   a listed replica of a sealed segment that is not in doubt holds all of it
    I7   batch epochs never decrease with the offset
    I8   no producer's batch is in the log twice
    I11  what a store has acknowledged survives a crash and a power cut
    I12  the high watermark moves only with min_insync replicas

The simulator itself adds L1: after the faults the partition takes writes again. I9 and I10 are of transactions and
groups, which it does not have: tests with real clients show them.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.model.ids import FIRST_OFFSET, LeaderEpoch, Offset, SegmentId, StoreId
from headwater.model.replica import Buffer, ReplicaState
from headwater.model.segments import Head, OpenSegment, SealedSegment
from headwater.testing.simulation.batches import SimulatedBatch, decode, span
from headwater.testing.simulation.metadata import HEAD, SEALED, SimulatedMetadata

if TYPE_CHECKING:
    from headwater.testing.simulation.replica import SimulatedReplica
    from headwater.testing.simulation.store import SimulatedStore


class InvariantViolated(Exception):
    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Invariants:
    def __init__(self, min_insync: int) -> None:
        self.exposed_end = FIRST_OFFSET
        """The largest high watermark that any leader ever had."""
        self.acks: dict[tuple[int, int], Offset] = {}
        self._min_insync = min_insync
        self._exposed: dict[Offset, Buffer] = {}
        self._bases: dict[tuple[int, int], Offset] = {}
        self._written: dict[tuple[SegmentId, Offset], Buffer] = {}
        self._epoch_starts: dict[LeaderEpoch, Offset] = {}
        self._head_epoch = LeaderEpoch(0)
        self._seen: dict[str, int] = {}
        """Versions of the keys that were checked."""
        self._metadata: SimulatedMetadata | None = None
        self._stores: dict[StoreId, SimulatedStore] = {}

    def attach(self, metadata: SimulatedMetadata, stores: "dict[StoreId, SimulatedStore]") -> None:
        self._metadata = metadata
        self._stores = stores

    # Stores

    def written(self, segment: SegmentId, base: Offset, batch: Buffer, store: str) -> None:
        if self._written.setdefault((segment, base), batch) != batch:
            first = decode(self._written[segment, base])
            raise InvariantViolated("I5", f"{store} is given {decode(batch)} where {segment} has {first}")

    def acknowledged(self, replica: "SimulatedReplica", value: Any) -> None:
        promised = replica.base if replica.promised_end is None else replica.promised_end
        replica.promised_end = max(promised, min(Offset(value), replica.end) if isinstance(value, int) else promised)
        replica.is_fence_promised = replica.is_fence_promised or isinstance(value, ReplicaState)

    def survived(self, store: "SimulatedStore", before: "Iterable[SimulatedReplica]") -> None:
        for replica in before:
            if replica.promised_end is None:
                continue
            if store.replicas.get(replica.segment) is not replica:
                raise InvariantViolated("I11", f"{store.name} lost its replica of {replica.segment}")
            if replica.end < replica.promised_end:
                raise InvariantViolated(
                    "I11", f"{store.name} acknowledged {replica.promised_end} and has {replica.end}"
                )
            if replica.is_fence_promised and not replica.is_fenced:
                raise InvariantViolated("I11", f"{store.name} lost its fence of {replica.segment}")

    def deleted(self, store: "SimulatedStore", segment: SegmentId) -> None:
        for listed in self.chain():
            if listed.id == segment and store.store_id in listed.replicas:
                raise InvariantViolated("I6", f"{store.name} deleted its replica of {listed}")

    # Leaders

    def exposed(self, who: str, epoch: LeaderEpoch, replicas: Sequence[StoreId], batches: Iterable[Buffer]) -> None:
        """A leader's high watermark has moved over these batches."""
        if len(replicas) < self._min_insync:
            raise InvariantViolated("I12", f"{who} commits on {replicas}")
        end = FIRST_OFFSET
        for batch in batches:
            end = self._see(who, batch)
        if end > self.exposed_end:
            self.exposed_end = end
        for later, start in self._epoch_starts.items():
            if later > epoch and start < end:
                raise InvariantViolated("I4", f"{who} in epoch {epoch} exposes {end}, epoch {later} began at {start}")

    def read(self, who: str, batches: Iterable[Buffer]) -> None:
        """A reader was given these."""
        for batch in batches:
            base = span(batch)[0]
            if base not in self._exposed:
                raise InvariantViolated("I2", f"{who} gives {decode(batch)}, which was never committed")
            self._see(who, batch)

    def acked(self, producer: int, sequence: int, base: Offset) -> None:
        """A producer got the acknowledgement of its batch at `base`."""
        exposed = self._exposed.get(base)
        if exposed is None or decode(exposed)[3:] != (producer, sequence):
            found = exposed and decode(exposed)
            raise InvariantViolated(
                "I1", f"producer {producer} got an acknowledgement of {sequence} at {base}, there is {found}"
            )
        self.acks[producer, sequence] = base

    def _see(self, who: str, batch: Buffer) -> Offset:
        base, end = span(batch)
        known = self._exposed.get(base)
        if known == batch:
            return end
        seen = decode(batch)
        if known is not None:
            first = decode(known)
            invariant = "I7" if first._replace(epoch=seen.epoch) == seen else "I2"
            raise InvariantViolated(invariant, f"{who} gives {seen}, before there was {first}")
        self._exposed[base] = batch
        known_base = self._bases.setdefault((seen.producer, seen.sequence), base)
        if known_base != base:
            raise InvariantViolated("I8", f"{who} has {seen}, which is at {known_base}, too")
        return end

    # Metadata

    def chain(self) -> list[SealedSegment | OpenSegment]:
        assert self._metadata is not None, "invariants are attached before anything happens"
        segments: list[SealedSegment | OpenSegment] = sorted(
            self._metadata.below(SEALED), key=lambda segment: segment.base
        )
        head: Head | None = self._metadata.value(HEAD)
        if head is not None and head.open is not None:
            segments.append(head.open)
        return segments

    def metadata_changed(self) -> None:
        metadata = self._metadata
        assert metadata is not None, "invariants are attached before anything happens"
        head: Head | None = metadata.value(HEAD)
        if head is not None:
            if head.epoch < self._head_epoch:
                raise InvariantViolated("I4", f"{head} comes after epoch {self._head_epoch}")
            self._head_epoch = head.epoch
        if head is None or head.open is None:
            return
        self._check_chain(head)
        for key, item in metadata.items.items():
            if self._seen.get(key) == item.version:
                continue
            self._seen[key] = item.version
            if isinstance(item.value, SealedSegment) and key.startswith(SEALED):
                self._check_replicas(item.value, item.value.end, "I6")
            elif key == HEAD:
                self._check_open(head.open)

    def _check_chain(self, head: Head) -> None:
        segments = self.chain()
        if segments[0].base != head.start:
            raise InvariantViolated("I3", f"the log begins at {head.start}, its first segment is {segments[0]}")
        before: SealedSegment | None = None
        for segment in segments:
            if before is not None and before.end != segment.base:
                raise InvariantViolated("I3", f"{before} does not end where {segment} begins")
            if before is not None and before.epoch > segment.epoch:
                raise InvariantViolated("I4", f"{segment} comes after {before}")
            if isinstance(segment, SealedSegment):
                if segment.end <= segment.base:
                    raise InvariantViolated("I3", f"{segment} is empty")
                before = segment

    def _check_open(self, segment: OpenSegment) -> None:
        if len(segment.replicas) < self._min_insync:
            raise InvariantViolated("I12", f"{segment} has fewer than {self._min_insync} replicas")
        start = self._epoch_starts.get(segment.epoch)
        if start is not None:
            return
        if segment.epoch_start < self.exposed_end:
            raise InvariantViolated("I4", f"{segment} takes over below {self.exposed_end}, which was exposed")
        self._epoch_starts[segment.epoch] = segment.epoch_start
        self._check_replicas(segment, segment.epoch_start, "I1")

    def _check_replicas(self, segment: SealedSegment | OpenSegment, end: Offset, invariant: str) -> None:
        for store_id in segment.replicas:
            store = self._stores[store_id]
            replica = store.replicas.get(segment.id)
            if store.store_id != store_id or (replica is not None and (replica.in_doubt or replica.is_damaged)):
                continue
            if replica is None or replica.durable_end < end:
                holds = replica and replica.durable_end
                raise InvariantViolated(
                    invariant, f"{store.name} is listed for {segment} up to {end} and holds {holds}"
                )

    # The end

    def audit(self) -> int:
        """Every offset of the log on every replica; how many there were to look at."""
        assert self._metadata is not None, "invariants are attached before anything happens"
        self._check_chain(self._metadata.value(HEAD))
        log: dict[Offset, Buffer] = {}
        looked_at = 0
        for segment in self.chain():
            end = segment.end if isinstance(segment, SealedSegment) else self.exposed_end
            self._check_replicas(segment, end, "I6" if isinstance(segment, SealedSegment) else "I1")
            complete = [replica for replica in self._members(segment) if replica.end >= end and not replica.is_damaged]
            if not complete:
                raise InvariantViolated("I1", f"there is no complete replica of {segment} up to {end}")
            for replica in complete:
                looked_at += self._audit_replica(segment, replica, end, log)
        self._audit_log(log)
        return looked_at

    def _members(self, segment: SealedSegment | OpenSegment) -> "list[SimulatedReplica]":
        found = []
        for store_id in segment.replicas:
            store = self._stores[store_id]
            replica = store.replicas.get(segment.id)
            if store.store_id == store_id and replica is not None:
                found.append(replica)
        return found

    def _audit_replica(
        self, segment: SealedSegment | OpenSegment, replica: "SimulatedReplica", end: Offset, log: dict[Offset, Buffer]
    ) -> int:
        offset, looked_at = segment.base, 0
        for batch in replica.entries:
            base, batch_end = span(batch)
            if base >= end:
                break
            if base != offset or batch_end > end:
                raise InvariantViolated("I5", f"{segment.id} has {decode(batch)} at {offset} in {replica.instance}")
            if log.setdefault(base, batch) != batch:
                raise InvariantViolated("I5", f"two replicas differ: {decode(log[base])}, {decode(batch)}")
            offset, looked_at = batch_end, looked_at + 1
        return looked_at

    def _audit_log(self, log: dict[Offset, Buffer]) -> None:
        start = self.chain()[0].base
        epoch = -1
        batches: dict[tuple[int, int], SimulatedBatch] = {}
        for base in sorted(log):
            batch = decode(log[base])
            if batch.epoch < epoch:
                raise InvariantViolated("I7", f"{batch} comes after epoch {epoch}")
            epoch = batch.epoch
            if batches.setdefault((batch.producer, batch.sequence), batch) is not batch:
                raise InvariantViolated("I8", f"{batch} is in the log twice")
        for base, exposed in self._exposed.items():
            if base >= start and log.get(base) != exposed:
                found = log.get(base)
                raise InvariantViolated("I2", f"{decode(exposed)} was exposed, there is {found and decode(found)}")
        for (producer, sequence), base in self.acks.items():
            if base >= start and (base not in log or decode(log[base])[3:] != (producer, sequence)):
                raise InvariantViolated(
                    "I1", f"{sequence} of producer {producer} was acknowledged at {base} and is lost"
                )
