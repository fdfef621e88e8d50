"""The records inside a batch: read lazily, written one by one.

    length         varint   bytes after this field
    attributes     i8       unused
    timestamp      varlong  minus the batch's base timestamp
    offset         varint   minus the batch's base offset
    key length     varint   -1: null
    key
    value length   varint   -1: null, a tombstone on a compacted topic
    value
    header count   varint
      key length   varint   UTF-8, never null
      key
      value length varint   -1: null
      value

Varints are zigzag, seven bits a byte, least significant first. Every length and count is compared with the bytes
that are left before anything is made of it, so hostile bytes cost no more than their own size.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from headwater.model.ids import NO_OFFSET, Offset
from headwater.model.replica import Buffer
from headwater.records.batch import HEADER_BYTES, NO_TIMESTAMP, BatchHeader, CorruptBatch
from headwater.records.compression import (
    MAX_OUTPUT_BYTES,
    MAX_RATIO,
    CorruptCompression,
    decompress,
)

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

Layout: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""Where the parts of one record lie in a payload:
(start, end, timestamp delta, end of timestamp delta, offset delta, key start, key end, value start, value end).
A start of -1 means null; the end of a null is where the next part begins."""

_INT32_BYTES = 5
_INT64_BYTES = 10
_INT64_SPAN = 1 << 64
_SMALLEST_HEADER_BYTES = 2


class Record(NamedTuple):
    """One record. A tuple, because batches have many of them and a frozen dataclass takes thrice as long to make."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = NO_TIMESTAMP
    offset: Offset = NO_OFFSET


def records(
    batch: Buffer, header: BatchHeader, max_output_bytes: int = MAX_OUTPUT_BYTES, max_ratio: int = MAX_RATIO
) -> Iterator[Record]:
    """The records of one whole batch, decoded as they are asked for."""
    data = payload(batch, header, max_output_bytes, max_ratio)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.uses_log_append_time else None
    for _, end, timestamp_delta, _, offset_delta, key_start, key_end, value_start, value_end in layouts(data, header):
        yield Record(
            data[key_start:key_end] if key_start >= 0 else None,
            data[value_start:value_end] if value_start >= 0 else None,
            _read_headers(data, value_end, end),
            wrap_int64(base_timestamp + timestamp_delta) if append_time is None else append_time,
            base_offset + offset_delta,
        )


def keyless_records(
    batch: Buffer, header: BatchHeader, max_output_bytes: int = MAX_OUTPUT_BYTES, max_ratio: int = MAX_RATIO
) -> list[int]:
    """Which records, counted from 0, have no key: a compacted topic refuses them one by one (KIP-467)."""
    data = payload(batch, header, max_output_bytes, max_ratio)
    return [index for index, layout in enumerate(layouts(data, header)) if layout[5] < 0]


def payload(
    batch: Buffer, header: BatchHeader, max_output_bytes: int = MAX_OUTPUT_BYTES, max_ratio: int = MAX_RATIO
) -> bytes:
    """The bytes of all records of one whole batch, decompressed. DecompressedTooLarge is left to the caller: it does
    not say that the batch is wrong."""
    if header.size_bytes > len(batch):
        raise CorruptBatch(f"batch of {header.size_bytes} bytes is cut off after {len(batch)}")
    with memoryview(batch) as view, view[HEADER_BYTES : header.size_bytes] as compressed:
        if not compressed and header.record_count == 0:
            return b""
        try:
            return decompress(header.compression, compressed, max_output_bytes, max_ratio)
        except CorruptCompression as error:
            raise CorruptBatch(f"records cannot be decompressed: {error}") from error


def layouts(data: bytes, header: BatchHeader) -> Iterator[Layout]:
    """Walk over a payload once. Offsets must rise within what the header claims; the payload must end with the last
    record. What lies behind the value is not looked at.

    Nearly all varints have one or two bytes. They are read in place: with a call for each this took thrice as long."""
    position = 0
    size = len(data)
    previous_offset = -1
    last_offset = header.last_offset_delta
    try:
        # Each iteration takes bytes from the payload or raises: a made-up count cannot keep this running.
        for _ in range(header.record_count):
            start = position
            byte = data[position]
            position += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            elif (high := data[position]) < 0x80:
                length = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1)
                position += 1
            else:
                length, position = read_varint(data, position - 1, _INT32_BYTES)
            end = position + length
            if length <= 0 or end > size:
                raise CorruptBatch(f"record of {length} bytes, {size - position} are left")
            position += 1  # attributes

            byte = data[position]
            position += 1
            if byte < 0x80:
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
            elif (high := data[position]) < 0x80:
                timestamp_delta = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1)
                position += 1
            else:
                timestamp_delta, position = read_varint(data, position - 1, _INT64_BYTES)
            timestamp_end = position

            byte = data[position]
            position += 1
            if byte < 0x80:
                offset_delta = (byte >> 1) ^ -(byte & 1)
            elif (high := data[position]) < 0x80:
                offset_delta = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1)
                position += 1
            else:
                offset_delta, position = read_varint(data, position - 1, _INT32_BYTES)
            if not previous_offset < offset_delta <= last_offset:
                raise CorruptBatch(f"offset delta {offset_delta} after {previous_offset}, last is {last_offset}")
            previous_offset = offset_delta

            byte = data[position]
            position += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            elif (high := data[position]) < 0x80:
                length = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1)
                position += 1
            else:
                length, position = read_varint(data, position - 1, _INT32_BYTES)
            if length >= 0:
                key_start = position
                position += length
            elif length == -1:
                key_start = -1
            else:
                raise CorruptBatch(f"key length {length}")
            key_end = position

            byte = data[position]
            position += 1
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
            elif (high := data[position]) < 0x80:
                length = ((byte & 0x7F | high << 7) >> 1) ^ -(byte & 1)
                position += 1
            else:
                length, position = read_varint(data, position - 1, _INT32_BYTES)
            if length >= 0:
                value_start = position
                position += length
            elif length == -1:
                value_start = -1
            else:
                raise CorruptBatch(f"value length {length}")
            if position >= end:
                raise CorruptBatch(f"record of {end - start} bytes is too short for its key, value and header count")
            yield (
                start,
                end,
                timestamp_delta,
                timestamp_end,
                offset_delta,
                key_start,
                key_end,
                value_start,
                position,
            )
            position = end
    except IndexError:
        raise CorruptBatch(f"records are cut off after {size} bytes") from None
    if position != size:
        raise CorruptBatch(f"{size - position} bytes are left after {header.record_count} records")


def write_record(output: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Append one record in its wire form."""
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_bytes(body, key.encode("utf-8", "surrogateescape"))
        _write_bytes(body, value)
    write_varint(output, len(body))
    output += body


def read_varint(data: Buffer, position: int, max_bytes: int) -> tuple[int, int]:
    """A zigzag integer and the position after it. Past the end of the data is an IndexError."""
    raw = 0
    shift = 0
    for _ in range(max_bytes):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return wrap_int64((raw >> 1) ^ -(raw & 1)), position
        shift += 7
    raise CorruptBatch(f"varint of more than {max_bytes} bytes")


def write_varint(output: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)


def wrap_int64(value: int) -> int:
    """Overflow as the clients' arithmetic does, so that a timestamp beyond 64 bits survives a round trip."""
    if -(_INT64_SPAN >> 1) <= value < _INT64_SPAN >> 1:
        return value
    return (value + (_INT64_SPAN >> 1)) % _INT64_SPAN - (_INT64_SPAN >> 1)


def _read_headers(data: bytes, position: int, end: int) -> Headers:
    if data[position] == 0 and position + 1 == end:
        return ()
    try:
        count, position = read_varint(data, position, _INT32_BYTES)
        if not 0 <= count <= (end - position) // _SMALLEST_HEADER_BYTES:
            raise CorruptBatch(f"{count} headers in {end - position} bytes")
        headers = []
        for _ in range(count):
            key, position = _read_bytes(data, position, end)
            if key is None:
                raise CorruptBatch("a header without a key")
            value, position = _read_bytes(data, position, end)
            headers.append((key.decode("utf-8", "surrogateescape"), value))
    except IndexError:
        raise CorruptBatch("headers are cut off") from None
    if position != end:
        raise CorruptBatch(f"record is {end - position} bytes longer than its headers")
    return tuple(headers)


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position, _INT32_BYTES)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptBatch(f"a field of {length} bytes, {end - position} are left")
    return data[position : position + length], position + length


def _write_bytes(output: bytearray, data: bytes | None) -> None:
    if data is None:
        output.append(1)
    else:
        write_varint(output, len(data))
        output += data
