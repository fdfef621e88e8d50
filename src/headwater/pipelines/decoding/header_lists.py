"""Headers of records, for queries that ask for them: a list of (key, value) for each record, null where there are none.

Only the lengths are followed one by one, and only in records that have headers; keys and values are gathered like those
of records.
"""

import numpy as np
import pyarrow as pa

from headwater.pipelines.decoding.gather import gather
from headwater.pipelines.decoding.record_index import INT32_BYTES, Integers, RecordIndex, Slices, read_varints
from headwater.records.batch import CorruptBatch
from headwater.records.record import read_varint

_SMALLEST_HEADER_BYTES = 2


def header_lists(data: bytes, index: RecordIndex, wanted: pa.DataType) -> pa.Array:
    """An array of `wanted`, which is a list of structs of a string and bytes."""
    try:
        return _header_lists(data, index, wanted)
    except IndexError:
        raise CorruptBatch("headers are cut off") from None


def _header_lists(data: bytes, index: RecordIndex, wanted: pa.DataType) -> pa.Array:
    counts, positions = read_varints(np.frombuffer(data, np.uint8), index.header_positions, INT32_BYTES)
    room = (index.ends - positions) // _SMALLEST_HEADER_BYTES
    if not ((counts >= 0) & (counts <= room)).all():
        raise CorruptBatch("more headers than fit into their record")
    if not ((counts > 0) | (positions == index.ends)).all():
        raise CorruptBatch("a record is longer than its headers")
    if not counts.any():
        return pa.nulls(len(index), wanted)
    keys, values = _walk(data, counts, positions, index.ends)
    key_field, value_field = wanted.value_type
    entries = pa.StructArray.from_arrays(
        [_text(gather(data, keys)), gather(data, values)], fields=[key_field, value_field]
    )
    offsets = np.zeros(len(index) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), entries, type=wanted, mask=pa.array(counts == 0))


def _walk(data: bytes, counts: Integers, positions: Integers, ends: Integers) -> tuple[Slices, Slices]:
    keys: list[tuple[int, int]] = []
    values: list[tuple[int, int]] = []
    having = np.flatnonzero(counts)
    for count, position, end in zip(
        counts[having].tolist(), positions[having].tolist(), ends[having].tolist(), strict=True
    ):
        for _ in range(count):
            length, position = _length(data, position, end)
            if length < 0:
                raise CorruptBatch("a header without a key")
            keys.append((position, length))
            length, position = _length(data, position + length, end)
            values.append((position, length))
            position += max(length, 0)
        if position != end:
            raise CorruptBatch(f"a record is {end - position} bytes longer than its headers")
    return _slices(keys), _slices(values)


def _length(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A length and the position after it, from where as many bytes lie before `end`."""
    if position < end and data[position] < 0x80:
        length = (data[position] >> 1) ^ -(data[position] & 1)
        position += 1
    elif position < end:
        length, position = read_varint(data, position, INT32_BYTES)
    else:
        raise CorruptBatch("headers are cut off")
    if not -1 <= length <= end - position:
        raise CorruptBatch(f"a header of {length} bytes, {end - position} are left")
    return length, position


def _slices(found: list[tuple[int, int]]) -> Slices:
    pairs = np.array(found, np.int64)
    return Slices(pairs[:, 0], pairs[:, 1])


def _text(keys: pa.BinaryArray) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8, which nobody forbids a producer
        return pa.array([key.as_py().decode("utf-8", "replace") for key in keys], pa.string())
