"""Bytes become columns, and records that do not fit become dead letters that say why.

What fits is decided by Spark's own parsers, without Python. Only the records that do not fit are looked at in Python,
to find the reason. A column that the schema calls `not null` must be there; a record without a value (a tombstone) is a
row of nulls, and fits if no column must be there.
"""

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from headwater.pipelines.spec.steps import ParseStep

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from headwater.pipelines.values.rows import ReaderSchema

KINDS = ("avro", "protobuf")
"""Formats that need the schema registry."""
ROW, UNFIT = "_headwater_row", "_headwater_unfit"
LETTER_PREFIX = "headwater.dlq."
MAX_SHOWN_CHARS = 200


def fitting(frame: "DataFrame", parse: ParseStep, subject: str) -> "DataFrame":
    """The rows of the records that fit. The others are left out if they are dropped or go to dead
    letters; else they fail the query."""
    from pyspark.sql import functions as f

    read, is_unfit = _read(frame, parse)
    if parse.dead_letters is not None or parse.bad_records == "drop":
        read = read.where(~is_unfit)
    else:
        shown = f.substring(f.coalesce(_text(parse), f.lit("no value")), 1, MAX_SHOWN_CHARS)
        complaint = f.raise_error(f.concat(f.lit(f"{subject}: a record is no {parse.format} of this schema: "), shown))
        read = read.where(f.when(is_unfit, complaint.cast("boolean")).otherwise(True))
    if parse.format != "text" and (twice := set(parse.keep) & set(_schema(parse).names)):
        raise ValueError(f"keep and schema both have a column {min(twice)}")
    kept = [f.col(_quoted(name)) for name in parse.keep]
    if parse.format == "text":
        return read.select(*kept, _text(parse).alias(parse.column))
    return read.select(*kept, *(f.col(f"{ROW}.{_quoted(name)}") for name in _schema(parse).names))


def dead_letters(frame: "DataFrame", parse: ParseStep, pipeline: str, step: str) -> "DataFrame":
    """The others: key and value as they came, and in the headers where from and why.

    The headers have the names of a queue's dead letters, so that `headwater queue redrive` sends them back."""
    from pyspark.sql import functions as f

    read, is_unfit = _read(frame, parse)
    unfit = read.where(is_unfit)
    about: dict[str, Column] = {
        name: f.col(name).cast("string") for name in ("topic", "partition", "offset") if name in frame.columns
    }
    if "timestamp" in frame.columns:
        about["timestamp"] = f.unix_millis("timestamp").cast("string")
    about |= {
        "pipeline": f.lit(pipeline),
        "step": f.lit(step),
        "reason": f.col(f"{ROW}.{UNFIT}")
        if parse.format in KINDS
        else f.udf(_reasons(parse), "string")(f.col(parse.column)),
    }
    added = f.array(
        *(
            f.struct(f.lit(LETTER_PREFIX + name).alias("key"), text.cast("binary").alias("value"))
            for name, text in about.items()
        )
    )
    had = f.coalesce(f.col("headers"), f.array()) if "headers" in frame.columns else None
    return unfit.select(
        f.col("key") if "key" in frame.columns else f.lit(None).cast("binary").alias("key"),
        f.col(parse.column).cast("binary").alias("value"),
        (f.concat(had, added) if had is not None else added).alias("headers"),
    )


# What fits, decided by Spark


def _read(frame: "DataFrame", parse: ParseStep) -> "tuple[DataFrame, Column]":
    """The rows with what was read from them, and whether they do not fit."""
    from pyspark.sql import functions as f

    if parse.format == "text":
        return frame, ~f.is_valid_utf8(_text(parse))
    if parse.format in KINDS:
        return _read_from_registry(frame, parse)
    schema = _schema(parse)
    row_type = _nullable(schema).add(UNFIT, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNFIT}
    if parse.format == "json":
        row = f.from_json(_text(parse), row_type, options)
    else:
        row = f.from_csv(_text(parse), _ddl(row_type), options)
    is_unfit = f.col(f"{ROW}.{UNFIT}").isNotNull() | (f.col(ROW).isNull() & f.col(parse.column).isNotNull())
    for each in schema.fields:
        if not each.nullable:
            is_unfit = is_unfit | f.col(f"{ROW}.{_quoted(each.name)}").isNull()
    return frame.withColumn(ROW, row), f.coalesce(is_unfit, f.lit(False))


def _read_from_registry(frame: "DataFrame", parse: ParseStep) -> "tuple[DataFrame, Column]":
    """The columns of a record, and the reason why it does not fit beside them."""
    from pyspark.sql import functions as f

    from headwater.pipelines.values.from_schema import decoded
    from headwater.pipelines.values.rows import REASON, VALUE

    found = f.col("_headwater_found")
    row = f.struct(*(found[VALUE][name].alias(name) for name in _schema(parse).names), found[REASON].alias(UNFIT))
    read = frame.withColumn("_headwater_found", decoded(f.col(parse.column), _reader_schema(parse)))
    return read.withColumn(ROW, row), f.col(f"{ROW}.{UNFIT}").isNotNull()


def _reader_schema(parse: ParseStep) -> "ReaderSchema":
    from headwater.pipelines.values.registry import RegistryAddress
    from headwater.pipelines.values.rows import reader_schema

    assert parse.registry is not None, "check said so"
    return reader_schema(
        parse.format, RegistryAddress(parse.registry, parse.registry_token), parse.subject, message=parse.message
    )


def _text(parse: ParseStep) -> "Column":
    from pyspark.sql import functions as f

    column = f.col(parse.column)
    if parse.format == "json" and parse.registry is not None:
        from headwater.pipelines.values.from_schema import without_prefix

        column = without_prefix(column)
    return column.cast("string")


def _schema(parse: ParseStep) -> "StructType":
    from pyspark.sql.types import StructType

    if parse.format in KINDS:
        from headwater.pipelines.values.rows import value_reader

        kind = value_reader(_reader_schema(parse)).column.type
        if not isinstance(kind, StructType):
            raise ValueError(f"the schema of {parse.subject} is no record: its values are no rows")
        return kind
    assert parse.schema is not None, "json and csv have a schema: check said so"
    schema = StructType.fromDDL(parse.schema)
    assert isinstance(schema, StructType), "columns make a struct"
    return schema


def _nullable(schema: "StructType") -> "StructType":
    """Spark does not enforce `not null` while it parses; what is declared so would be trusted to be so."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, each.dataType, True) for each in schema.fields])


def _ddl(schema: "StructType") -> str:
    return ", ".join(f"{_quoted(each.name)} {each.dataType.simpleString()}" for each in schema.fields)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# Why a record does not fit, found out by Python


def _reasons(parse: ParseStep) -> Any:
    """A function from a record's value to the reason why it does not fit. It is shipped to the executors."""
    fields = (
        [] if parse.format == "text" else [(each.name, each.dataType, each.nullable) for each in _schema(parse).fields]
    )
    kind, is_framed = parse.format, parse.registry is not None
    return lambda value: reason_of(kind, fields, _unframed(value) if is_framed and value is not None else value)


def _unframed(value: "bytes | bytearray | str") -> bytes:
    """What follows the schema id."""
    from headwater.schemas.wire_format import PREFIX_BYTES, NotFramed, schema_id

    data = value.encode() if isinstance(value, str) else bytes(value)
    try:
        schema_id(data)
    except NotFramed:
        return data
    return data[PREFIX_BYTES:]


def reason_of(kind: str, fields: "list[tuple[str, DataType, bool]]", value: "bytes | bytearray | str | None") -> str:
    required = [name for name, _, is_nullable in fields if not is_nullable]
    if value is None:
        return f"There is no value, and {required[0]} must be there." if required else "There is no value."
    try:
        text = value if isinstance(value, str) else bytes(value).decode()
    except UnicodeDecodeError as error:
        return f"It is no UTF-8 (byte {error.start})."
    if kind == "json":
        return _json_reason(fields, required, text)
    if kind == "csv":
        cells = next(csv.reader(io.StringIO(text)), [])
        if len(cells) != len(fields):
            return f"It has {len(cells)} columns, not {len(fields)}."
        return f"Its columns do not fit {_shown_fields(fields)}."
    return "It is no text."


def _json_reason(fields: "list[tuple[str, DataType, bool]]", required: list[str], text: str) -> str:
    try:
        row = json.loads(text)
    except ValueError as error:
        return f"It is no JSON: {error}."
    except RecursionError:
        return "It is nested too deeply."
    if not isinstance(row, dict):
        return f"It is JSON, but no object: {text[:MAX_SHOWN_CHARS]}"
    for name in required:
        if row.get(name) is None:
            return f"{name} is missing."
    for name, kind, _ in fields:
        if name in row and not _could_be(row[name], kind.typeName()):
            return f"{name} is {json.dumps(row[name])[:MAX_SHOWN_CHARS]}, which is no {kind.simpleString()}."
    return f"It does not fit {_shown_fields(fields)}."


def _could_be(value: object, kind: str) -> bool:
    """A guess, to name the field at fault: Spark has decided already that one does not fit."""
    match kind:
        case _ if value is None:
            return True
        case "byte" | "short" | "integer" | "long":
            return isinstance(value, int) and not isinstance(value, bool)
        case "double" | "float" | "decimal":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "timestamp" | "timestamp_ntz" | "date":
            return isinstance(value, str | int) and _is_time(value)
        case "struct" | "map":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case _:
            return True


def _is_time(value: str | int) -> bool:
    from datetime import datetime

    if isinstance(value, int):
        return True
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _shown_fields(fields: "list[tuple[str, DataType, bool]]") -> str:
    return ", ".join(f"{name} {kind.simpleString()}" for name, kind, _ in fields)
