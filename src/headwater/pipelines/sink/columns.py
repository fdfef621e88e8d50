"""The columns of rows that become records: checked once, when the query is made, then taken from each Arrow batch.

    value       binary or string; a null is a tombstone
    key         binary or string; rows without one are spread over the partitions
    topic       string; where the option `topic` does not say it for all rows
    partition   int; a null leaves it to the key
    headers     array<struct<key: string, value: binary>>
    timestamp   timestamp; a null is the time of writing

`offset` and `timestampType`, which every row of a topic has when it is read, are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from headwater.pipelines.errors import InvalidColumns
from headwater.pipelines.sink.errors import InvalidRow
from headwater.pipelines.sink.varints import Integers

IGNORED: Final = frozenset({"offset", "timestamptype"})
HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each column lies in a batch; None: it is not there."""

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns of one Arrow batch, in the types that records are made of."""

    value: pa.BinaryArray
    key: pa.BinaryArray | None
    topic: pa.StringArray | None
    partition: pa.Int32Array | None
    headers: pa.ListArray | None
    timestamp_ms: Integers

    def __len__(self) -> int:
        return len(self.value)

    def take(self, order: Integers) -> "Rows":
        """The rows in another order, without what only says where they go."""
        indices = pa.array(order)

        def taken(column: pa.Array | None) -> pa.Array | None:
            return None if column is None else column.take(indices)

        return Rows(
            self.value.take(indices), taken(self.key), None, None, taken(self.headers), self.timestamp_ms[order]
        )


def sink_columns(schema: StructType, has_default_topic: bool) -> Columns:
    """Raises InvalidColumns."""
    found: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = field.name.lower()
        if name in IGNORED:
            continue
        if name not in _TYPES:
            raise InvalidColumns(
                f"Column {field.name} has no place in a record, which has: {', '.join(_TYPES)}. Select those, for "
                "example with to_json(struct(*)) as value."
            )
        if name in found:
            raise InvalidColumns(f"There are two columns {field.name}.")
        expected, is_right = _TYPES[name]
        if not is_right(field.dataType):
            raise InvalidColumns(f"Column {field.name} is {field.dataType.simpleString()}; it must be {expected}.")
        found[name] = index
    if "value" not in found:
        raise InvalidColumns(f"A column value is missing; there are: {', '.join(schema.fieldNames())}.")
    if "topic" not in found and not has_default_topic:
        raise InvalidColumns("It is not said where the rows go: set the option topic, or add a column topic.")
    return Columns(**found)


def rows_of(batch: pa.RecordBatch, columns: Columns, now_ms: int) -> Rows:
    def column(index: int | None) -> pa.Array | None:
        return None if index is None else batch.column(index)

    key = column(columns.key)
    timestamp = column(columns.timestamp)
    return Rows(
        batch.column(columns.value).cast(pa.binary()),
        None if key is None or key.null_count == len(key) else key.cast(pa.binary()),
        column(columns.topic),
        column(columns.partition),
        _headers(column(columns.headers)),
        np.full(batch.num_rows, now_ms, np.int64) if timestamp is None else _milliseconds(timestamp, now_ms),
    )


def lengths_of(column: pa.BinaryArray) -> Integers:
    """In bytes; -1 for a null."""
    lengths: Integers = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _milliseconds(timestamps: pa.Array, now_ms: int) -> Integers:
    microseconds = timestamps.cast(pa.timestamp("us", timestamps.type.tz)).cast(pa.int64())
    milliseconds: Integers = pc.fill_null(microseconds, now_ms * 1000).to_numpy(zero_copy_only=False) // 1000
    if len(milliseconds) and milliseconds.min() < 0:
        raise InvalidRow("Column timestamp has a time before 1970, which a record cannot have.")
    return milliseconds


def _headers(lists: pa.ListArray | None) -> pa.ListArray | None:
    if lists is None or lists.null_count == len(lists):
        return None
    elements = lists.flatten()
    if not len(elements):
        return None
    if elements.null_count or elements.field("key").null_count:
        raise InvalidRow("Column headers has a header without a key, which a record cannot have.")
    return lists


def _is_text_or_bytes(type_: DataType) -> bool:
    return isinstance(type_, BinaryType | StringType)


def _is_key(type_: DataType) -> bool:
    return _is_text_or_bytes(type_) or isinstance(type_, NullType)


def _is_header_list(type_: DataType) -> bool:
    if not isinstance(type_, ArrayType) or not isinstance(type_.elementType, StructType):
        return False
    fields: Mapping[str, DataType] = {field.name.lower(): field.dataType for field in type_.elementType.fields}
    return (
        list(fields) == ["key", "value"]
        and isinstance(fields["key"], StringType)
        and isinstance(fields["value"], BinaryType)
    )


_TYPES: Final = {
    "key": ("binary or string", _is_key),
    "value": ("binary or string", _is_text_or_bytes),
    "topic": ("string", lambda type_: isinstance(type_, StringType)),
    "partition": ("int", lambda type_: isinstance(type_, IntegerType)),
    "headers": (HEADERS_TYPE, _is_header_list),
    "timestamp": ("timestamp", lambda type_: isinstance(type_, TimestampType)),
}
