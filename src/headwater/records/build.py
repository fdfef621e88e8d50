"""Whole batches from records, for what the broker itself writes: group state, markers, compacted segments."""

import struct
from collections.abc import Iterable, Iterator, Sequence

from headwater.model.ids import FIRST_OFFSET, NO_LEADER_EPOCH, LeaderEpoch, Offset
from headwater.model.replica import Buffer
from headwater.records.batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    seal_crc,
)
from headwater.records.compression import compress
from headwater.records.record import Record, write_record

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: Offset = FIRST_OFFSET,
    timestamp: int = NO_TIMESTAMP,
    compression: int = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    attributes: int = 0,
) -> bytearray:
    """One batch with offsets counted from `base_offset`, whatever offsets the records have. `timestamp` is for records
    that have none. `attributes` are flags beside the codec."""
    assert records, "a batch has records"
    timestamps = [record.timestamp if record.timestamp != NO_TIMESTAMP else timestamp for record in records]
    base_timestamp = timestamps[0]
    payload = bytearray()
    for delta, record in enumerate(records):
        write_record(payload, record, timestamps[delta] - base_timestamp, delta)
    return assemble(
        payload,
        BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            partition_leader_epoch=partition_leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes | compression,
            last_offset_delta=len(records) - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max(timestamps),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(records),
        ),
    )


def chunked(records: Iterable[Record], max_bytes: int) -> Iterator[list[Record]]:
    """The records in order, in lists for one batch each: about `max_bytes` of keys and values, at least one record."""
    chunk: list[Record] = []
    size_bytes = 0
    for record in records:
        record_bytes = len(record.key or b"") + len(record.value or b"")
        if chunk and size_bytes + record_bytes > max_bytes:
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(record)
        size_bytes += record_bytes
    if chunk:
        yield chunk


def assemble(payload: Buffer, header: BatchHeader, level: int | None = None) -> bytearray:
    """A batch of these uncompressed records under this header, compressed as its attributes say, with a level of the
    codec or its default. Length and CRC are
    computed here."""
    output = bytearray(HEADER_BYTES)
    HEADER.pack_into(output, 0, *header)
    output += compress(header.compression, payload, level) if header.compression else payload
    _LENGTH.pack_into(output, _LENGTH_AT, len(output) - LENGTH_END)
    seal_crc(output, 0, len(output))
    return output
