"""One replica on a simulated disk: what is written, what of it is durable, and what was promised about it."""

from dataclasses import dataclass, field

from headwater.model.ids import FIRST_OFFSET, LeaderEpoch, Offset, SegmentId
from headwater.model.replica import Buffer, ReplicaState
from headwater.testing.simulation.batches import BATCH_BYTES, span


@dataclass(slots=True, eq=False)
class SimulatedReplica:
    segment: SegmentId
    partition: str
    base: Offset
    epoch: LeaderEpoch
    header: bytes
    instance: int
    entries: list[Buffer] = field(default_factory=list)
    end: Offset = FIRST_OFFSET
    lac: Offset = FIRST_OFFSET
    is_fenced: bool = False
    in_doubt: bool = False
    is_sealed: bool = False
    is_damaged: bool = False
    """Its bytes do not match their checksum, which the next read finds."""
    is_durable: bool = False
    durable_entries: int = 0
    durable_lac: Offset = FIRST_OFFSET
    is_fence_durable: bool = False
    replaced: "SimulatedReplica | None" = None
    """What a copy that is not durable yet stands in for: a crash brings it back."""
    promised_end: Offset | None = None
    """What this store has acknowledged to hold; None before the first answer."""
    is_fence_promised: bool = False

    @property
    def durable_end(self) -> Offset:
        if not self.is_durable and self.replaced is not None:
            return self.replaced.durable_end
        return span(self.entries[self.durable_entries - 1])[1] if self.durable_entries else self.base

    def state(self) -> ReplicaState:
        size = BATCH_BYTES * len(self.entries)
        return ReplicaState(
            segment=self.segment,
            partition=self.partition,
            base=self.base,
            end=self.end,
            epoch=self.epoch,
            lac=self.lac,
            size_bytes=size,
            max_timestamp=0,
            is_fenced=self.is_fenced,
            in_doubt=self.in_doubt,
            is_sealed=self.is_sealed,
            instance=self.instance,
            header=self.header,
        )

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        del self.entries[count:]
        self.end = span(self.entries[-1])[1] if self.entries else self.base
        self.durable_entries = min(self.durable_entries, count)
        self.lac = min(self.lac, self.end)
        self.durable_lac = min(self.durable_lac, self.end)
