"""What one partition remembers of its idempotent producers, so that a resent batch is stored once (KIP-98, KIP-360).

A producer numbers its records per partition. The next batch must go on where the last one ended; one of the last
five, sent again, is a duplicate and is answered with the offsets it got the first time. A new epoch starts at
sequence 0 and fences the old one. A producer that is not known, because it is new or was forgotten, may start
anywhere: refusing it would stop a client that did nothing wrong.

`check` decides and changes nothing; `append` applies what was stored, live and at recovery alike; `truncate` takes
back what could not be stored. Recovery is `restore` of the snapshot at a segment's base, then `append` of the headers
that follow. Memory is bounded by the number of producers: past it the one not heard of for longest is forgotten.

Snapshot, big-endian; no bytes at all when there are no producers:

    version u8 = 1 | crc32c u32 of what follows | producers u32
    producer: id i64 | epoch i16 | last sequence i32 | last timestamp i64 | seen at i64 | dropped end i64 | batches u8
    batch:    base sequence i32 | last sequence i32 | base offset i64 | last offset i64 | timestamp i64

Producers are in the order in which they were last heard of, oldest first. A change of the format takes the next version
number; `restore` goes on reading the old one, as segments outlive the release that wrote them.
"""

import enum
import struct
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from crc32c import crc32c

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.replica import Buffer
from headwater.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader

KEPT_BATCHES: Final = 5
"""Clients have at most five requests in flight per connection when they are idempotent."""
MAX_PRODUCERS: Final = 5_000
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1

_SEQUENCES = 1 << 31
_VERSION = 1
_PREFIX = struct.Struct(">BII")
_CRC_COVERS_FROM = 5
_PRODUCER = struct.Struct(">qhiqqqB")
_BATCH = struct.Struct(">iiqqq")


class CorruptSnapshot(Exception):
    """The bytes are not a snapshot that `ProducerStates.snapshot` wrote."""


class Accept(enum.Enum):
    ACCEPT = enum.auto()


ACCEPT: Final = Accept.ACCEPT


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is here already, at these offsets. It may not be acknowledged before it is committed."""

    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int = NO_EPOCH
    current_txn_start_offset: int = NO_OFFSET


class ProducerStates:
    """The producers of one partition."""

    def __init__(self, max_producers: int = MAX_PRODUCERS) -> None:
        assert max_producers > 0, "at least the producer that is writing is remembered"
        self._max_producers = max_producers
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def check(self, header: BatchHeader) -> Accept | Duplicate:
        """Whether a producer's batch goes on where its last one ended, or RequestError."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return ACCEPT
        epoch = header.producer_epoch
        first = header.base_sequence
        if epoch < producer.epoch:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {producer.epoch} by now; the batch has {epoch}.",
            )
        if epoch > producer.epoch:
            if first != 0:
                raise _out_of_order(header, f"a new epoch starts with 0, after {producer.epoch}")
            return ACCEPT
        if _follows(first, producer.last_sequence):
            return ACCEPT
        last = _last_sequence(header)
        for batch in producer.batches:
            if batch.base_sequence == first and batch.last_sequence == last:
                return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
        raise _out_of_order(header, f"the last one was {producer.last_sequence}")

    def append(self, header: BatchHeader, now_ms: int = NO_TIMESTAMP) -> None:
        """Remember a batch that is in the log. Nothing is checked: a compacted log has gaps in its sequences.

        `now_ms` counts for expiry; without it the batch's own time stands in."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        # Taken out and put back at the end, which keeps the dict in the order of last use.
        producer = self._producers.pop(producer_id, None)
        if producer is None:
            if len(self._producers) >= self._max_producers:
                del self._producers[next(iter(self._producers))]
            producer = _Producer(header.producer_epoch)
        self._producers[producer_id] = producer
        producer.seen_at_ms = max(producer.seen_at_ms, now_ms if now_ms != NO_TIMESTAMP else header.max_timestamp)
        if header.producer_epoch > producer.epoch:
            producer.start_epoch(header.producer_epoch)
        # Markers have no sequence: of a control batch only the epoch counts.
        if header.base_sequence != NO_SEQUENCE and not header.is_control and header.producer_epoch == producer.epoch:
            producer.add(
                _Batch(
                    header.base_sequence,
                    _last_sequence(header),
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )

    def truncate(self, offset: int) -> None:
        """Forget what was appended at or past `offset`: it could not be stored, and will be sent again."""
        self._producers = self._cut(offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers not heard of for that long; say how many."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now_ms - producer.seen_at_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def last_offsets(self) -> dict[int, int]:
        """The last offset of each producer's last batch: compaction keeps that batch, so that recovery from a
        compacted log still knows the sequence."""
        return {
            producer_id: producer.batches[-1].last_offset
            for producer_id, producer in self._producers.items()
            if producer.batches
        }

    def describe(self) -> list[ProducerDescription]:
        return [
            ProducerDescription(producer_id, producer.epoch, producer.last_sequence, producer.last_timestamp)
            for producer_id, producer in self._producers.items()
        ]

    def snapshot(self, below: int | None = None) -> bytes:
        """All of this as bytes; with `below`, as if only the batches below that offset had been appended."""
        producers = self._producers if below is None else self._cut(below)
        if not producers:
            return b""
        parts = [struct.pack(">I", len(producers))]
        for producer_id, producer in producers.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id,
                    producer.epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.seen_at_ms,
                    producer.dropped_end,
                    len(producer.batches),
                )
            )
            parts.extend(_BATCH.pack(*batch) for batch in producer.batches)
        body = b"".join(parts)
        return struct.pack(">BI", _VERSION, crc32c(body)) + body

    @classmethod
    def restore(cls, data: Buffer, max_producers: int = MAX_PRODUCERS) -> "ProducerStates":
        """What `snapshot` saw, or CorruptSnapshot. Of too many producers the latest are kept."""
        states = cls(max_producers)
        if not data:
            return states
        if len(data) < _PREFIX.size:
            raise CorruptSnapshot(f"{len(data)} bytes are too few")
        version, crc, count = _PREFIX.unpack_from(data)
        if version != _VERSION:
            raise CorruptSnapshot(f"version {version} is unknown")
        with memoryview(data) as view, view[_CRC_COVERS_FROM:] as covered:
            if crc32c(covered) != crc:
                raise CorruptSnapshot("checksum is wrong")
        position = _PREFIX.size
        if count > (len(data) - position) // _PRODUCER.size:
            raise CorruptSnapshot(f"{count} producers in {len(data) - position} bytes")
        try:
            for _ in range(count):
                position = states._restore_producer(data, position)
        except struct.error:
            raise CorruptSnapshot("snapshot is cut off") from None
        if position != len(data):
            raise CorruptSnapshot(f"{len(data) - position} bytes are left over")
        return states

    def _cut(self, offset: int) -> "dict[int, _Producer]":
        # Where more is taken back than is remembered, what came before it is unknown: such a producer is forgotten.
        return {
            producer_id: producer.cut(offset)
            for producer_id, producer in self._producers.items()
            if producer.dropped_end <= offset
        }

    def _restore_producer(self, data: Buffer, position: int) -> int:
        producer_id, epoch, last_sequence, last_timestamp, seen_at_ms, dropped_end, batches = _PRODUCER.unpack_from(
            data, position
        )
        position += _PRODUCER.size
        if batches > KEPT_BATCHES or producer_id < 0 or producer_id in self._producers or last_sequence < NO_SEQUENCE:
            raise CorruptSnapshot(f"producer {producer_id} with {batches} batches, sequence {last_sequence}")
        producer = _Producer(epoch, last_sequence, last_timestamp, seen_at_ms, dropped_end)
        for _ in range(batches):
            producer.batches.append(_Batch._make(_BATCH.unpack_from(data, position)))
            position += _BATCH.size
        if len(self._producers) >= self._max_producers:
            del self._producers[next(iter(self._producers))]
        self._producers[producer_id] = producer
        return position


class _Batch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_sequence: int = NO_SEQUENCE
    last_timestamp: int = NO_TIMESTAMP
    seen_at_ms: int = NO_TIMESTAMP
    dropped_end: int = 0
    """Batches below this offset are no longer in `batches`."""
    batches: list[_Batch] = field(default_factory=list)

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = NO_SEQUENCE
        self.batches.clear()

    def add(self, batch: _Batch) -> None:
        self.last_sequence = batch.last_sequence
        self.last_timestamp = batch.timestamp
        self.batches.append(batch)
        if len(self.batches) > KEPT_BATCHES:
            self.dropped_end = self.batches.pop(0).last_offset + 1

    def cut(self, offset: int) -> "_Producer":
        """Itself without the batches at or past the offset."""
        kept = [batch for batch in self.batches if batch.last_offset < offset]
        if len(kept) == len(self.batches):
            return self
        return replace(
            self,
            # Below 0 comes either "none" or the largest sequence: 0 follows both, so one word will do.
            last_sequence=self.batches[len(kept)].base_sequence - 1,
            last_timestamp=kept[-1].timestamp if kept else NO_TIMESTAMP,
            batches=kept,
        )


def _last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


def _follows(first: int, last: int) -> bool:
    return first == last + 1 or (first == 0 and last == _SEQUENCES - 1)


def _out_of_order(header: BatchHeader, why: str) -> RequestError:
    return RequestError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {header.producer_id}, epoch {header.producer_epoch}: sequence {header.base_sequence}, but {why}.",
    )
