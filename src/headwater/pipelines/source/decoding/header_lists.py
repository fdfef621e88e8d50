"""Headers of records, for queries that ask for them: a list of (key, value) for each record, null where there are none.

Only the lengths are followed one by one, and only in records that have headers; keys and values are gathered like those
of records.
"""

import numpy as np
import pyarrow as pa

from headwater.model.replica import Buffer
from headwater.pipelines.source.decoding.gather import gather
from headwater.pipelines.source.decoding.record_index import INT32_BYTES, RecordIndex, Slices, read_varints
from headwater.pipelines.source.decoding.record_starts import Integers
from headwater.records.batch import CorruptBatch
from headwater.records.record import read_varint

_SMALLEST_HEADER_BYTES = 2


def header_lists(data: Buffer, index: RecordIndex, list_type: pa.DataType) -> pa.Array:
    """An array of `list_type`, which is a list of structs of a string and bytes."""
    try:
        return _header_lists(data, index, list_type)
    except IndexError:
        raise CorruptBatch("headers are cut off") from None


def _header_lists(data: Buffer, index: RecordIndex, list_type: pa.DataType) -> pa.Array:
    counts, positions = read_varints(np.frombuffer(data, np.uint8), index.header_positions, INT32_BYTES)
    room = (index.ends - positions) // _SMALLEST_HEADER_BYTES
    if not ((counts >= 0) & (counts <= room)).all():
        raise CorruptBatch("more headers than fit into their record")
    if not ((counts > 0) | (positions == index.ends)).all():
        raise CorruptBatch("a record is longer than its headers")
    if not counts.any():
        return pa.nulls(len(index), list_type)
    keys, values = _walk(data, counts, positions, index.ends)
    key_field, value_field = list_type.value_type
    entries = pa.StructArray.from_arrays(
        [_text(gather(data, keys)), gather(data, values)], fields=[key_field, value_field]
    )
    offsets = np.zeros(len(index) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), entries, type=list_type, mask=pa.array(counts == 0))


def _walk(data: Buffer, counts: Integers, positions: Integers, ends: Integers) -> tuple[Slices, Slices]:
    """Keys and values of all headers. Nearly all lengths have one byte and are read in place."""
    keys: list[int] = []
    values: list[int] = []
    having = np.flatnonzero(counts)
    for count, position, end in zip(
        counts[having].tolist(), positions[having].tolist(), ends[having].tolist(), strict=True
    ):
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                length, position = read_varint(data, position, INT32_BYTES)
            if not 0 <= length < end - position:
                raise CorruptBatch(f"header key of {length} bytes, {end - position} are left")
            keys += (position, length)
            position += length
            byte = data[position]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                length, position = read_varint(data, position, INT32_BYTES)
            if not -1 <= length <= end - position:
                raise CorruptBatch(f"header value of {length} bytes, {end - position} are left")
            values += (position, length)
            if length > 0:
                position += length
        if position != end:
            raise CorruptBatch(f"a record is {end - position} bytes longer than its headers")
    return _slices(keys), _slices(values)


def _slices(found: list[int]) -> Slices:
    pairs = np.array(found, np.int64)
    return Slices(pairs[0::2], pairs[1::2])


def _text(keys: pa.BinaryArray) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8, which a producer may send
        return pa.array([key.as_py().decode("utf-8", "replace") for key in keys], pa.string())
