"""Schemas as types of columns: the Spark type, and how a decoded value becomes one that Arrow takes for it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql import types as t

from headwater.pipelines.errors import InvalidOption

MAX_DEPTH = 50
_PRIMITIVES: dict[str, t.DataType] = {
    "null": t.NullType(), "boolean": t.BooleanType(), "int": t.IntegerType(), "long": t.LongType(),
    "float": t.FloatType(), "double": t.DoubleType(), "bytes": t.BinaryType(), "string": t.StringType(),
}  # fmt: skip
_LOGICAL: dict[str, t.DataType] = {
    "date": t.DateType(), "timestamp-millis": t.TimestampType(), "timestamp-micros": t.TimestampType(),
    "local-timestamp-millis": t.TimestampNTZType(), "local-timestamp-micros": t.TimestampNTZType(),
}  # fmt: skip
_AS_TEXT = ("uuid", "time-millis", "time-micros", "duration")
_WIDER = ({"int", "long"}, {"int", "long", "float", "double"})


class DecodedColumn(NamedTuple):
    type: t.DataType
    convert: Callable[[Any], Any] | None
    """None where values are right as they are."""


# Avro


def avro_column(declared: Any, named: dict[str, Any], inside: tuple[str, ...] = ()) -> DecodedColumn:
    """Of a schema as fastavro has parsed it. Raises InvalidOption for what no column can hold."""
    if len(inside) > MAX_DEPTH:
        raise InvalidOption(f"The schema is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(declared, list):
        return _union(declared, named, inside)
    if isinstance(declared, str):
        if declared in _PRIMITIVES:
            return DecodedColumn(_PRIMITIVES[declared], None)
        if declared in inside:
            raise InvalidOption(f"{declared} holds itself, which no column can.")
        return avro_column(named[declared], named, inside)
    kind = declared["type"]
    logical = declared.get("logicalType")
    if logical in _LOGICAL:
        return DecodedColumn(_LOGICAL[logical], None)
    if logical == "decimal" and declared.get("precision", 0) <= 38:
        return DecodedColumn(t.DecimalType(declared["precision"], declared.get("scale", 0)), None)
    if logical in _AS_TEXT:
        return DecodedColumn(t.StringType(), lambda value: None if value is None else str(value))
    match kind:
        case "record" | "error":
            if declared["name"] in inside:
                raise InvalidOption(f"{declared['name']} holds itself, which no column can.")
            fields = {
                each["name"]: avro_column(each["type"], named, (*inside, declared["name"]))
                for each in declared["fields"]
            }
            return _struct(fields)
        case "array":
            return _array(avro_column(declared["items"], named, (*inside, "")))
        case "map":
            return _map(DecodedColumn(t.StringType(), None), avro_column(declared["values"], named, (*inside, "")))
        case "enum":
            return DecodedColumn(t.StringType(), None)
        case "fixed":
            return DecodedColumn(t.BinaryType(), None)
    return avro_column(kind, named, inside)


def _union(branches: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> DecodedColumn:
    real = [branch for branch in branches if branch != "null"]
    if len(real) == 1:
        return avro_column(real[0], named, (*inside, ""))
    names = {branch for branch in real if isinstance(branch, str)}
    if len(names) == len(real):
        for group, widest in zip(_WIDER, ("long", "double"), strict=True):
            if names and names <= group:
                return DecodedColumn(_PRIMITIVES[widest], float if widest == "double" else None)
    raise InvalidOption("A union of several types is no column; give a schema in which it is one type.")


# Protobuf


def proto_column(descriptor: Any, inside: tuple[str, ...] = ()) -> DecodedColumn:
    """Of a message's descriptor; values are messages."""
    if descriptor.full_name in inside or len(inside) > MAX_DEPTH:
        raise InvalidOption(f"{descriptor.full_name} holds itself, which no column can.")
    if descriptor.full_name == "google.protobuf.Timestamp":
        return DecodedColumn(t.TimestampType(), _moment)
    fields = [(field, _proto_field(field, (*inside, descriptor.full_name))) for field in descriptor.fields]

    def convert(message: Any) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for field, column in fields:
            if field.has_presence and not message.HasField(field.name):
                row[field.name] = None
            else:
                value = getattr(message, field.name)
                row[field.name] = value if column.convert is None else column.convert(value)
        return row

    return DecodedColumn(t.StructType([t.StructField(field.name, column.type) for field, column in fields]), convert)


def _proto_field(field: Any, inside: tuple[str, ...]) -> DecodedColumn:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (_proto_single(message.fields_by_name[name], inside) for name in ("key", "value"))
        return _map(key, value)
    single = _proto_single(field, inside)
    if not field.is_repeated:
        return single
    of = single.convert
    return DecodedColumn(t.ArrayType(single.type), list if of is None else lambda values: [of(each) for each in values])


def _proto_single(field: Any, inside: tuple[str, ...]) -> DecodedColumn:
    if field.message_type is not None:
        return proto_column(field.message_type, inside)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return DecodedColumn(t.StringType(), lambda number: names.get(number, str(number)))
    match field.cpp_type:
        case field.CPPTYPE_INT32:
            return DecodedColumn(t.IntegerType(), None)
        case field.CPPTYPE_INT64 | field.CPPTYPE_UINT32:
            return DecodedColumn(t.LongType(), None)
        case field.CPPTYPE_UINT64:
            return DecodedColumn(t.DecimalType(20, 0), None)
        case field.CPPTYPE_FLOAT:
            return DecodedColumn(t.FloatType(), None)
        case field.CPPTYPE_DOUBLE:
            return DecodedColumn(t.DoubleType(), None)
        case field.CPPTYPE_BOOL:
            return DecodedColumn(t.BooleanType(), None)
    return DecodedColumn(t.BinaryType() if field.type == field.TYPE_BYTES else t.StringType(), None)


def _moment(value: Any) -> Any:
    import datetime

    return value.ToDatetime(tzinfo=datetime.UTC)


# What both have


def _struct(fields: dict[str, DecodedColumn]) -> DecodedColumn:
    kind = t.StructType([t.StructField(name, column.type) for name, column in fields.items()])
    changed = [(name, column.convert) for name, column in fields.items() if column.convert is not None]
    if not changed:
        return DecodedColumn(kind, None)

    def convert(row: Any) -> Any:
        if row is None:
            return None
        return {**row, **{name: of(row[name]) for name, of in changed if row[name] is not None}}

    return DecodedColumn(kind, convert)


def _array(items: DecodedColumn) -> DecodedColumn:
    of = items.convert
    if of is None:
        return DecodedColumn(t.ArrayType(items.type), None)
    return DecodedColumn(
        t.ArrayType(items.type),
        lambda values: None if values is None else [None if each is None else of(each) for each in values],
    )


def _map(key: DecodedColumn, value: DecodedColumn) -> DecodedColumn:
    """Arrow takes a map as pairs."""
    of = value.convert

    def convert(entries: Any) -> Any:
        if entries is None:
            return None
        return [(name, each if of is None or each is None else of(each)) for name, each in entries.items()]

    return DecodedColumn(t.MapType(key.type, value.type), convert)
