"""The bytes that every segment begins with: the producers at its base, the transactions aborted in the segment before.

Big-endian; no bytes at all when there is nothing to say:

    version u8 = 2 | crc32c u32 of what follows | aborted u32 | producers u32 | aborted transactions | producers
    aborted transaction: see aborted_transactions
    producer: id i64 | epoch i16 | last sequence i32 | last timestamp i64 | seen at i64 | coordinator epoch i32 |
              first offset of the open transaction i64 | batches u8
    batch:    base sequence i32 | last sequence i32 | base offset i64 | last offset i64 | timestamp i64

Version 1, from before transactions:

    version u8 = 1 | crc32c u32 of what follows | producers u32
    producer: id i64 | epoch i16 | last sequence i32 | last timestamp i64 | seen at i64 | dropped end i64 | batches u8

Producers are in the order in which they were last heard of, oldest first. A change of the format takes the next version
number; the old ones go on being read, as segments outlive the release that wrote them.
"""

import struct
from collections.abc import Mapping

from crc32c import crc32c

from headwater.model.ids import NO_OFFSET, Offset
from headwater.model.replica import Buffer
from headwater.records.batch import NO_SEQUENCE
from headwater.transactions.aborted_transactions import ENTRY_BYTES, AbortedTransactions, MalformedEntries
from headwater.transactions.producer import KEPT_BATCHES, NO_EPOCH, ProducerState, StoredBatch

_VERSION = 2
_VERSION_WITHOUT_TRANSACTIONS = 1
_CHECKED = struct.Struct(">BI")
_COUNTS = struct.Struct(">II")
_COUNTS_V1 = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhiqqiqB")
_PRODUCER_V1 = struct.Struct(">qhiqqqB")
_BATCH = struct.Struct(">iiqqq")


class CorruptSnapshot(Exception):
    """The bytes are not a snapshot that `write` wrote."""


def write(producers: Mapping[int, ProducerState], aborted: AbortedTransactions) -> bytes:
    if not producers and not aborted:
        return b""
    parts = [_COUNTS.pack(len(aborted), len(producers)), aborted.to_bytes()]
    for producer_id, producer in producers.items():
        parts.append(
            _PRODUCER.pack(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.seen_at_ms,
                producer.coordinator_epoch,
                producer.transaction_start,
                len(producer.batches),
            )
        )
        parts.extend(_BATCH.pack(*batch) for batch in producer.batches)
    body = b"".join(parts)
    return _CHECKED.pack(_VERSION, crc32c(body)) + body


def read(data: Buffer) -> tuple[dict[int, ProducerState], AbortedTransactions]:
    """What `write` was given, or CorruptSnapshot."""
    if not data:
        return {}, AbortedTransactions()
    if _checked_version(data) == _VERSION_WITHOUT_TRANSACTIONS:
        return _read_v1(data), AbortedTransactions()
    aborted, producer_count, position = _read_aborted(data)
    return _read_producers(data, position, producer_count, _PRODUCER), aborted


def read_aborted(data: Buffer) -> AbortedTransactions:
    """The aborted transactions alone, or CorruptSnapshot."""
    if not data or _checked_version(data) == _VERSION_WITHOUT_TRANSACTIONS:
        return AbortedTransactions()
    return _read_aborted(data)[0]


def _checked_version(data: Buffer) -> int:
    if len(data) < _CHECKED.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc = _CHECKED.unpack_from(data)
    if version not in (_VERSION, _VERSION_WITHOUT_TRANSACTIONS):
        raise CorruptSnapshot(f"version {version} is unknown")
    with memoryview(data) as view, view[_CHECKED.size :] as covered:
        if crc32c(covered) != crc:
            raise CorruptSnapshot("checksum is wrong")
    return int(version)


def _read_aborted(data: Buffer) -> tuple[AbortedTransactions, int, int]:
    """The aborted transactions, how many producers follow, and where."""
    position = _CHECKED.size + _COUNTS.size
    if len(data) < position:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    aborted_count, producer_count = _COUNTS.unpack_from(data, _CHECKED.size)
    if aborted_count > (len(data) - position) // ENTRY_BYTES:
        raise CorruptSnapshot(f"{aborted_count} aborted transactions in {len(data) - position} bytes")
    end = position + aborted_count * ENTRY_BYTES
    try:
        return AbortedTransactions.from_bytes(bytes(data[position:end])), producer_count, end
    except MalformedEntries as error:
        raise CorruptSnapshot(str(error)) from error


def _read_v1(data: Buffer) -> dict[int, ProducerState]:
    position = _CHECKED.size + _COUNTS_V1.size
    if len(data) < position:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    (count,) = _COUNTS_V1.unpack_from(data, _CHECKED.size)
    return _read_producers(data, position, count, _PRODUCER_V1)


def _read_producers(data: Buffer, position: int, count: int, layout: struct.Struct) -> dict[int, ProducerState]:
    if count > (len(data) - position) // layout.size:
        raise CorruptSnapshot(f"{count} producers in {len(data) - position} bytes")
    producers: dict[int, ProducerState] = {}
    starts: set[Offset] = set()
    try:
        for _ in range(count):
            producer_id, producer, position = _read_producer(data, position, layout)
            if producer_id < 0 or producer_id in producers or producer.last_sequence < NO_SEQUENCE:
                raise CorruptSnapshot(f"producer {producer_id} with sequence {producer.last_sequence}")
            if producer.transaction_start < NO_OFFSET or producer.transaction_start in starts:
                raise CorruptSnapshot(f"producer {producer_id} with a transaction from {producer.transaction_start}")
            if producer.is_open:
                starts.add(producer.transaction_start)
            producers[producer_id] = producer
    except struct.error:
        raise CorruptSnapshot("snapshot is cut off") from None
    if position != len(data):
        raise CorruptSnapshot(f"{len(data) - position} bytes are left over")
    return producers


def _read_producer(data: Buffer, position: int, layout: struct.Struct) -> tuple[int, ProducerState, int]:
    """A producer's id, what is known of it, and where the next one is."""
    fields = layout.unpack_from(data, position)
    producer_id, epoch, last_sequence, last_timestamp, seen_at_ms, *transaction, batch_count = fields
    coordinator_epoch, start = transaction if layout is _PRODUCER else (NO_EPOCH, NO_OFFSET)
    if batch_count > KEPT_BATCHES:
        raise CorruptSnapshot(f"producer {producer_id} with {batch_count} batches")
    position += layout.size
    end = position + batch_count * _BATCH.size
    batches = tuple(StoredBatch._make(_BATCH.unpack_from(data, at)) for at in range(position, end, _BATCH.size))
    producer = ProducerState(
        epoch, last_sequence, last_timestamp, seen_at_ms, coordinator_epoch, start, batches=batches
    )
    return producer_id, producer, end
