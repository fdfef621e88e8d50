"""Arrow batches as record batches: rows grouped by destination, cut into batches of a limited size, and packed.

The batches have no producer yet: the sender stamps its id, its epoch and their sequence numbers.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.client.topic_partition import TopicPartition
from headwater.model.ids import FIRST_OFFSET, NO_LEADER_EPOCH
from headwater.pipelines.sink.columns import Columns, Rows, rows_of
from headwater.pipelines.sink.destinations import Destinations
from headwater.pipelines.sink.records import header_bytes, payload_sizes, record_bytes
from headwater.pipelines.sink.varints import Integers
from headwater.records.batch import (
    CRC_START,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
    seal_crc,
)
from headwater.records.build import assemble

CHUNK_BYTES: Final = 8 * 1024 * 1024
"""What is packed at once: enough rows for the batches of many partitions, few enough for a cache and for 31 bits."""
CHUNK_ROWS: Final = 100_000

_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43


class PackedBatch(NamedTuple):
    to: TopicPartition
    data: bytearray
    """A whole record batch, without a producer."""


@dataclass(frozen=True, slots=True)
class Packing:
    columns: Columns
    batch_bytes: int
    """Uncompressed; one record may be larger."""
    codec: int


def pack(
    batches: Iterable[pa.RecordBatch], packing: Packing, destinations: Destinations, now_ms: int
) -> Iterator[list[PackedBatch]]:
    """The batches of one piece of the input after the other. In each partition, records keep the order of rows."""
    for piece in pieces(batches):
        grouped = destinations.group(rows_of(piece, packing.columns, now_ms))
        yield _pack_rows(grouped.rows, grouped.destinations, packing)


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of a good size: small batches are joined, large ones are cut."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= CHUNK_ROWS or size_bytes >= CHUNK_BYTES:
            yield from _cut(_joined(waiting), size_bytes)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield from _cut(_joined(waiting), size_bytes)


def stamp_producer(
    data: bytearray, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool
) -> int:
    """Make a batch a producer's, in place; give the number of its records."""
    header = parse_header(data)
    attributes = header.attributes | (TRANSACTIONAL if is_transactional else 0)
    _ATTRIBUTES.pack_into(data, CRC_START, attributes)
    _PRODUCER.pack_into(data, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    seal_crc(data, 0, len(data))
    return header.record_count


def record_count(data: bytearray) -> int:
    return parse_header(data).record_count


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _cut(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    parts = max(-(-size_bytes // (2 * CHUNK_BYTES)), 1)
    step = max(-(-batch.num_rows // parts), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _pack_rows(
    rows: Rows, destinations: tuple[tuple[TopicPartition, int, int], ...], packing: Packing
) -> list[PackedBatch]:
    headers = None if rows.headers is None else header_bytes(rows.headers)
    ends_bytes = np.cumsum(payload_sizes(rows, headers))
    parts = [
        (to, first, last)
        for to, start, end in destinations
        for first, last in _batch_bounds(ends_bytes, start, end, packing.batch_bytes)
    ]
    firsts = np.array([first for _, first, _ in parts])
    counts = np.diff(firsts, append=len(rows))
    times = rows.timestamp_ms
    records = record_bytes(
        rows, headers, times - np.repeat(times[firsts], counts), np.arange(len(rows)) - np.repeat(firsts, counts)
    )
    bounds = np.frombuffer(records.buffers()[1], np.int32, len(rows) + 1)
    data = memoryview(records.buffers()[2])
    latest = np.maximum.reduceat(times, firsts)
    return [
        PackedBatch(
            to,
            assemble(
                data[bounds[first] : bounds[last]],
                _header(last - first, int(times[first]), int(latest[number]), packing.codec),
            ),
        )
        for number, (to, first, last) in enumerate(parts)
    ]


def _batch_bounds(ends_bytes: Integers, start: int, end: int, batch_bytes: int) -> Iterator[tuple[int, int]]:
    """As many rows in each batch as fit, but at least one."""
    while start < end:
        before = int(ends_bytes[start - 1]) if start else 0
        fit = int(np.searchsorted(ends_bytes, before + batch_bytes, side="right"))
        stop = min(max(fit, start + 1), end)
        yield start, stop
        start = stop


def _header(record_count: int, base_timestamp: int, max_timestamp: int, codec: int) -> BatchHeader:
    return BatchHeader(
        base_offset=FIRST_OFFSET,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=record_count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=record_count,
    )
