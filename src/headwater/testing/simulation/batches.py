"""Batches of the simulation: as opaque to the machines as Kafka's, but with everything in them that the invariants
speak of. 28 bytes, little-endian:

    base offset int64 | records int32 | leader epoch int32 | producer int32 | sequence int64
"""

import struct
from typing import NamedTuple

from headwater.model.ids import LeaderEpoch, Offset
from headwater.model.replica import Buffer

_FIELDS = struct.Struct("<qiiiq")
_SPAN = struct.Struct("<qi")
BATCH_BYTES = _FIELDS.size


class SimulatedBatch(NamedTuple):
    base: Offset
    records: int
    epoch: LeaderEpoch
    producer: int
    sequence: int

    @property
    def end(self) -> Offset:
        return self.base + self.records

    def encode(self) -> bytes:
        return _FIELDS.pack(*self)


def decode(batch: Buffer) -> SimulatedBatch:
    return SimulatedBatch._make(_FIELDS.unpack(batch))


def span(batch: Buffer) -> tuple[Offset, Offset]:
    base, records = _SPAN.unpack_from(batch)
    return base, base + records


class Producers:
    """What each producer wrote, in order: an idempotent producer's retry finds its batch here.

    A snapshot goes into a segment's header, as `transactions/partition_snapshot.py` does it in a broker."""

    __slots__ = ("_written",)

    KEPT = 5
    """Batches of one producer in a snapshot, as in Kafka."""

    def __init__(self) -> None:
        self._written: dict[int, list[tuple[int, Offset, Offset]]] = {}

    def wrote(self, producer: int, sequence: int, base: Offset, end: Offset) -> None:
        self._written.setdefault(producer, []).append((sequence, base, end))

    def last_sequence(self, producer: int) -> int:
        written = self._written.get(producer)
        return written[-1][0] if written else -1

    def find(self, producer: int, sequence: int) -> tuple[Offset, Offset] | None:
        for known, base, end in reversed(self._written.get(producer, ())):
            if known == sequence:
                return base, end
        return None

    def forget_from(self, offset: Offset) -> None:
        for producer, written in list(self._written.items()):
            self._written[producer] = [entry for entry in written if entry[2] <= offset]

    def snapshot(self, offset: Offset) -> bytes:
        numbers: list[int] = []
        for producer in sorted(self._written):
            for entry in [entry for entry in self._written[producer] if entry[2] <= offset][-self.KEPT :]:
                numbers += (producer, *entry)
        return struct.pack(f"<{len(numbers)}q", *numbers)

    @classmethod
    def from_snapshot(cls, snapshot: bytes) -> "Producers":
        producers = cls()
        for entry in struct.iter_unpack("<4q", snapshot):
            producers.wrote(*entry)
        return producers
