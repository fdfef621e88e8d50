"""A record batch seen from outside: its header is read, checked and stamped; its records stay opaque.

All integers are big-endian. The bytes before `attributes` are not covered by the batch's own CRC32C,
which is why a broker can assign the offset and the leader epoch without touching the rest.

    offset size
       0    8  base offset              set by the broker
       8    4  batch length             bytes after this field
      12    4  partition leader epoch   set by the broker
      16    1  magic                    2; the message sets of old (0 and 1) have theirs at the same place
      17    4  crc                      CRC32C of everything below, to the end of the batch
      21    2  attributes               bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
      23    4  last offset delta        offset of the last record, or of the last one before compaction
      27    8  base timestamp           of the first record; the delete horizon if bit 6 is set (KIP-534)
      35    8  max timestamp
      43    8  producer id              -1: not idempotent
      51    2  producer epoch
      53    4  base sequence
      57    4  record count
      61    .  records, compressed as a whole unless the codec is 0

Everything here costs the same whatever the number of records. Nothing is allocated for a length that was
not checked against the bytes at hand.
"""

import enum
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from headwater.model.ids import LeaderEpoch, Offset
from headwater.model.replica import Buffer

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LENGTH_END: Final = 12
"""Batch length counts the bytes from here on."""
CRC_START: Final = 21
"""The CRC covers the bytes from here on."""
SMALLEST_RECORD_BYTES: Final = 7
"""Length, attributes, two deltas, null key, null value, no headers: one byte each."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_BYTES, "the header has the size that is drawn"

_MAGIC_AT = 16
_CRC_AT = 17
_LEADER_EPOCH_AT = 12
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_SMALLEST_BATCH_LENGTH = HEADER_BYTES - LENGTH_END
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")


class Codec(enum.IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptBatch(Exception):
    """The bytes are not a record batch, or were changed after it was written."""


class OldMessageFormat(CorruptBatch):
    """A message set of magic 0 or 1, from before record batches. The header cannot be read as one."""


class InvalidBatch(Exception):
    """A sound batch that says something a producer may not say."""


class UnknownCodec(InvalidBatch):
    """The batch claims a compression codec that does not exist."""


class BatchHeader(NamedTuple):
    """The fields as drawn above, in wire order."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta

    @property
    def size_bytes(self) -> int:
        return LENGTH_END + self.batch_length

    @property
    def compression(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def uses_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def is_idempotent(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


def parse_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch that starts at `position`. The batch may be longer than the buffer, but claims no
    impossible size."""
    if len(buf) - position < HEADER_BYTES:
        _refuse_old_format(buf, position)
        raise CorruptBatch(f"{len(buf) - position} bytes are too few for the header of a batch")
    header = BatchHeader._make(HEADER.unpack_from(buf, position))
    if header.magic != MAGIC:
        _refuse_old_format(buf, position)
        raise CorruptBatch(f"magic {header.magic} is unknown")
    if header.batch_length < _SMALLEST_BATCH_LENGTH:
        raise CorruptBatch(f"batch length {header.batch_length} is too small for its own header")
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatch(
            f"last offset delta {header.last_offset_delta} and record count {header.record_count} may not be negative"
        )
    return header


def check_crc(buf: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Raise CorruptBatch unless the whole batch is there and has its checksum."""
    end = position + header.size_bytes
    if end > len(buf):
        raise CorruptBatch(f"batch of {header.size_bytes} bytes is cut off after {len(buf) - position}")
    with memoryview(buf) as view, view[position + CRC_START : end] as covered:
        actual = crc32c(covered)
    if actual != header.crc:
        raise CorruptBatch(f"checksum is {actual:#010x}, batch says {header.crc:#010x}")


def headers(buf: Buffer) -> Iterator[BatchHeader]:
    """The headers of batches that lie back to back and fill the buffer. Checksums are not verified."""
    position = 0
    size = len(buf)
    while position < size:
        header = parse_header(buf, position)
        position += header.size_bytes
        if position > size:
            raise CorruptBatch(f"last batch is cut off {position - size} bytes before its end")
        yield header


def split(buf: Buffer) -> list[tuple[BatchHeader, memoryview]]:
    """Batches that lie back to back, each with a view of its bytes. Nothing is copied."""
    return list(batches(buf))


def batches(buf: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """As `split`, one at a time."""
    view = memoryview(buf)
    position = 0
    for header in headers(view):
        end = position + header.size_bytes
        yield header, view[position:end]
        position = end


def claims_transaction(data: Buffer | None) -> bool:
    """Whether the attributes say that the batch is of a transaction. Nothing else of it is checked."""
    return data is not None and len(data) > _ATTRIBUTES_AT + 1 and bool(data[_ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def validate(buf: Buffer) -> BatchHeader:
    """The header of exactly one batch that a producer may send (KIP-98). Timestamps and the size limit are a matter of
    the topic, and left to the caller."""
    if not buf:
        raise InvalidBatch("a produce request carries exactly one batch per partition, not none")
    header = parse_header(buf)
    if header.size_bytes < len(buf):
        raise InvalidBatch("a produce request carries exactly one batch per partition, not several")
    check_crc(buf, header)
    count = header.record_count
    if count == 0:
        raise InvalidBatch("a batch without records")
    if count != header.last_offset_delta + 1:
        raise InvalidBatch(f"{count} records cannot have {header.last_offset_delta + 1} offsets")
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    if codec > Codec.ZSTD:
        raise UnknownCodec(f"compression codec {codec} does not exist")
    if codec == 0 and count * SMALLEST_RECORD_BYTES > header.size_bytes - HEADER_BYTES:
        raise InvalidBatch(f"{count} records do not fit into {header.size_bytes} bytes")
    if attributes & CONTROL:
        raise InvalidBatch("control records are written by the coordinator alone")
    if header.producer_id != NO_PRODUCER_ID:
        if header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidBatch(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence}"
            )
    elif attributes & TRANSACTIONAL:
        raise InvalidBatch("a transactional batch without a producer id")
    return header


def stamp(buf: bytearray | memoryview, position: int, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Assign the offset and the leader epoch, in place. The CRC does not cover them and stays right."""
    _INT64.pack_into(buf, position, base_offset)
    _INT32.pack_into(buf, position + _LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(buf: bytearray | memoryview, position: int, timestamp: int) -> None:
    """Set the broker's time for every record of the batch, in place: readers take the max timestamp for each.

    The batch must be whole and checked: its CRC is computed anew."""
    header = parse_header(buf, position)
    _INT16.pack_into(buf, position + CRC_START, header.attributes | LOG_APPEND_TIME)
    _INT64.pack_into(buf, position + _MAX_TIMESTAMP_AT, timestamp)
    seal_crc(buf, position, header.size_bytes)


def seal_crc(buf: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Compute the CRC of the batch that fills these bytes, and write it into the header."""
    end = position + size_bytes
    assert end <= len(buf), "only a whole batch has a checksum"
    with memoryview(buf) as view, view[position + CRC_START : end] as covered:
        crc = crc32c(covered)
    _UINT32.pack_into(buf, position + _CRC_AT, crc)


def _refuse_old_format(buf: Buffer, position: int) -> None:
    if len(buf) - position > _MAGIC_AT and buf[position + _MAGIC_AT] < MAGIC:
        raise OldMessageFormat(f"message format {buf[position + _MAGIC_AT]} is not supported, only {MAGIC} is")
