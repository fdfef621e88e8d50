"""Rows as the bytes of records, as `records/record.py` draws them, for all rows at once.

The small numbers of a record (lengths, deltas) are written by arithmetic on arrays; keys, values and headers are copied
between them by Arrow, row after row. What comes out is one array whose bytes, back to back, are the records: a
batch's payload is a slice of them.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipelines.sink.columns import Rows, lengths_of
from headwater.pipelines.sink.varints import Integers, varint_rows, varint_sizes

MOST_NUMBER_BYTES: Final = 32
"""What a record has beside key, value and headers, at most."""


def payload_sizes(rows: Rows, headers: pa.BinaryArray | None) -> Integers:
    """Of each record at most so many bytes."""
    sizes = np.maximum(lengths_of(rows.value), 0) + MOST_NUMBER_BYTES
    if rows.key is not None:
        sizes += np.maximum(lengths_of(rows.key), 0)
    if headers is not None:
        sizes += lengths_of(headers)
    return sizes


def record_bytes(
    rows: Rows, headers: pa.BinaryArray | None, timestamp_deltas: Integers, offset_deltas: Integers
) -> pa.BinaryArray:
    """One record for each row. `headers` are those of `header_bytes`."""
    count = len(rows)
    key_lengths = np.full(count, -1, np.int64) if rows.key is None else lengths_of(rows.key)
    value_lengths = lengths_of(rows.value)
    attributes = np.zeros(count, np.int64)
    sizes = (
        1
        + varint_sizes(timestamp_deltas)
        + varint_sizes(offset_deltas)
        + varint_sizes(key_lengths)
        + np.maximum(key_lengths, 0)
        + varint_sizes(value_lengths)
        + np.maximum(value_lengths, 0)
        + (1 if headers is None else lengths_of(headers))
    )
    tail = pa.scalar(b"\0", pa.binary()) if headers is None else headers
    if rows.key is None:
        numbers = varint_rows(sizes, attributes, timestamp_deltas, offset_deltas, key_lengths, value_lengths)
        return _joined(numbers, rows.value, tail)
    before_key = varint_rows(sizes, attributes, timestamp_deltas, offset_deltas, key_lengths)
    return _joined(before_key, rows.key, varint_rows(value_lengths), rows.value, tail)


def header_bytes(lists: pa.ListArray) -> pa.BinaryArray:
    """Of each row the count of its headers, and the headers."""
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = lists.flatten()
    keys = elements.field("key").cast(pa.binary())
    values = elements.field("value").cast(pa.binary())
    each = _joined(varint_rows(lengths_of(keys)), keys, varint_rows(lengths_of(values)), values)
    # The headers of a row lie back to back: the same bytes, with bounds at rows instead of at headers.
    bounds = np.frombuffer(each.buffers()[1], np.int32, len(each) + 1)
    row_bounds = bounds[np.concatenate(([0], np.cumsum(counts)))]
    of_rows = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(row_bounds), each.buffers()[2]])
    return _joined(varint_rows(counts), of_rows)


def _joined(*columns: pa.Array | pa.Scalar) -> pa.BinaryArray:
    nothing = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(*columns, nothing, null_handling="replace", null_replacement="")
