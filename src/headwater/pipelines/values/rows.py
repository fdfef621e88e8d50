"""Values in the registry's wire format become rows: a batch of Arrow in, a batch of Arrow out.

A value is read with the schema that it was written with, which its id names, and becomes what the query's schema says:
that of the subject's latest version when the query was planned, or one that was given. Each batch becomes columns at
once; what fastavro and protobuf decode, they decode one value after another.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.pipelines.errors import InvalidOption
from headwater.pipelines.values.registry import RegistryAddress, UnknownSchema, by_id, in_context, latest
from headwater.pipelines.values.types import DecodedColumn, avro_column, proto_column
from headwater.schemas.decoding import avro_schema
from headwater.schemas.parsed import parse
from headwater.schemas.schema import InvalidSchema, Resolved, Schema, SchemaType
from headwater.schemas.wire_format import PREFIX_BYTES, NotFramed, message_indexes, schema_id

VALUE, REASON = "value", "reason"
KINDS = {"avro": SchemaType.AVRO, "protobuf": SchemaType.PROTOBUF}
MAX_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class ReaderSchema:
    """What a column of bytes is to become. It is shipped to Python workers."""

    address: RegistryAddress
    reader: Resolved
    message: str | None = None
    """Of a Protobuf file; the first if none is named."""


class Unfit(Exception):
    """A value does not hold to its schema, or has none."""


def reader_schema(
    format: str, address: RegistryAddress, subject: str | None, text: str | None = None, message: str | None = None
) -> ReaderSchema:
    """Raises InvalidOption, RegistryUnavailable."""
    kind = KINDS[format]
    if text is not None:
        return ReaderSchema(address, Resolved(Schema(kind, text)), message)
    if subject is None:
        raise InvalidOption(
            f'{format} needs the subject whose latest schema gives the columns, such as "orders-value".'
        )
    address, subject = in_context(address, subject)
    try:
        reader = latest(address, subject)
    except UnknownSchema as error:
        raise InvalidOption(f"The registry {address.url} has no schema for {subject}: {error}") from None
    if reader.schema.type is not kind:
        raise InvalidOption(f"The schema of {subject} is {reader.schema.type.value}, not {format}.")
    return ReaderSchema(address, reader, message)


class ValueReader(NamedTuple):
    column: DecodedColumn
    read: Callable[[bytes], Any]
    """A value with its prefix to a value of the column. Raises Unfit, RegistryUnavailable."""


def value_reader(target: ReaderSchema) -> ValueReader:
    """Raises InvalidOption."""
    try:
        return _avro(target) if target.reader.schema.type is SchemaType.AVRO else _protobuf(target)
    except InvalidSchema as error:
        raise InvalidOption(f"The schema is none: {error}") from None


def rows_of(target: ReaderSchema) -> Callable[[Any], Any]:
    """A function from an Arrow array of values to one of structs: the value, or the reason why there is none."""

    import pyarrow as pa

    def rows(values: Any) -> Any:
        from pyspark.sql.pandas.types import to_arrow_type

        column, read = _cached_reader(target)
        found, reasons = [], []
        for value in values.to_pylist():
            row, reason = None, None
            if value is not None:
                try:
                    row = read(value)
                except Unfit as error:
                    reason = str(error)[:MAX_REASON_CHARS]
            found.append(row)
            reasons.append(reason)
        kind = to_arrow_type(column.type, timezone="UTC")
        return pa.StructArray.from_arrays(
            [pa.array(found, kind), pa.array(reasons, pa.string())],
            fields=[pa.field(VALUE, kind), pa.field(REASON, pa.string())],
        )

    rows.__annotations__ = {"values": pa.Array, "return": pa.Array}  # by these Spark knows what kind of function it is
    return rows


_readers: dict[str, ValueReader] = {}


def _cached_reader(target: ReaderSchema) -> ValueReader:
    """A Python worker runs the same few queries again and again."""
    key = repr(target)
    if key not in _readers:
        if len(_readers) >= 100:
            _readers.clear()
        _readers[key] = value_reader(target)
    return _readers[key]


def _avro(target: ReaderSchema) -> ValueReader:
    import fastavro

    parse(target.reader)  # fastavro takes some schemas that are none
    reader = avro_schema(target.reader)
    named: dict[str, Any] = {}
    for text in dict.fromkeys(target.reader.named.values()):
        fastavro.parse_schema(_loaded(text), named_schemas=named)
    fastavro.parse_schema(_loaded(target.reader.schema.text), named_schemas=named)
    column = avro_column(reader, named)
    writers: dict[int, Any] = {}

    def read(value: bytes) -> Any:
        found = _id(value)
        writer = writers.get(found)
        if writer is None:
            writer = writers[found] = avro_schema(_written(target, found))
        data = io.BytesIO(value)
        data.seek(PREFIX_BYTES)
        try:
            row = fastavro.schemaless_reader(data, writer, reader)
        except Exception as error:  # hostile bytes find every exception that there is
            raise Unfit(f"It does not hold to schema {found}: {type(error).__name__} {error}.") from None
        if data.tell() != len(value):
            raise Unfit(f"{len(value) - data.tell()} bytes are left after what schema {found} says.")
        return row if column.convert is None else column.convert(row)

    return ValueReader(column, read)


def _protobuf(target: ReaderSchema) -> ValueReader:
    """Fields are known by their numbers: every version is read with the one schema, and what it lacks is left out."""
    from google.protobuf import message_factory

    parsed = parse(target.reader)
    file = parsed.meaning.pool.FindFileByName(parsed.meaning.file.name)
    messages = list(file.message_types_by_name.values())
    name = target.message or (messages[0].name if messages else "")
    descriptor = file.message_types_by_name.get(name)
    if descriptor is None:
        raise InvalidOption(f"The schema has no message {name!r}; it has {', '.join(file.message_types_by_name)}.")
    column = proto_column(descriptor)
    message_class = message_factory.GetMessageClass(descriptor)
    known: dict[tuple[int, tuple[int, ...]], bool] = {}

    def read(value: bytes) -> Any:
        found = _id(value)
        try:
            indexes, start = message_indexes(value)
        except NotFramed as error:
            raise Unfit(f"It has no message: {error}.") from None
        if (found, indexes) not in known:
            known[found, indexes] = _is_message(parse(_written(target, found)), indexes, name)
        if not known[found, indexes]:
            raise Unfit(f"It is another message of schema {found} than {name}.")
        try:
            message = message_class.FromString(value[start:])
        except Exception as error:
            raise Unfit(f"It does not hold to schema {found}: {error}.") from None
        assert column.convert is not None, "a message becomes a row"
        return column.convert(message)

    return ValueReader(column, read)


def _is_message(parsed: Any, indexes: tuple[int, ...], name: str) -> bool:
    if parsed.type is not SchemaType.PROTOBUF:
        return False
    messages = parsed.meaning.file.message_type
    return len(indexes) == 1 and 0 <= indexes[0] < len(messages) and messages[indexes[0]].name == name


def _id(value: bytes) -> int:
    try:
        return schema_id(value)
    except NotFramed as error:
        raise Unfit(f"It has no schema: {error}.") from None


def _written(target: ReaderSchema, found: int) -> Resolved:
    try:
        return by_id(target.address, found)
    except UnknownSchema:
        raise Unfit(f"Schema {found} is unknown.") from None


def _loaded(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text.strip()
