"""Values of records as columns of a query: bytes to text or to a struct."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType, StructField, StructType

from headwater.pipelines.errors import InvalidOption
from headwater.pipelines.values.registry import RegistryAddress
from headwater.pipelines.values.rows import KINDS, REASON, VALUE, ReaderSchema, reader_schema, rows_of, value_reader
from headwater.schemas.wire_format import PREFIX_BYTES

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON, *KINDS)
PERMISSIVE, FAILFAST = "PERMISSIVE", "FAILFAST"


def from_schema(
    column: Column | str, format: str, schema: StructType | str | None = None, options: Mapping[str, str] | None = None
) -> Column:
    """Decode a column of bytes.

    `text` gives a string; bytes that are not UTF-8 become replacement characters. `json` gives a struct of `schema`, a
    StructType or DDL ("id long, total double"), with null for what is missing or no JSON; `options` are those of
    Spark's `from_json`, for example {"mode": "FAILFAST"}.

    `avro` and `protobuf` read the schema registry's wire format; so does `json` when a registry is named. Options:

        registry        its URL, such as "http://127.0.0.1:8080"
        registry.token  a token that it asks for
        subject         whose latest schema gives the columns, such as "orders-value"; or `schema` is the schema itself
        message         protobuf: the message, if it is not the first of its file
        mode            PERMISSIVE: null for what cannot be read; FAILFAST: the query fails
    """
    chosen, given = format.strip().lower(), dict(options or {})
    if chosen not in FORMATS:
        raise InvalidOption(f"{format!r} is no format to decode: it can be {' or '.join(FORMATS)}.")
    values = F.col(column) if isinstance(column, str) else column
    if chosen in KINDS:
        return _from_registry(values, chosen, schema, given)
    if chosen == JSON and given.pop("registry", None) is not None:
        given.pop("registry.token", None)
        given.pop("subject", None)
        values = without_prefix(values)
    text = F.make_valid_utf8(values.cast("string"))
    if chosen == TEXT:
        if schema is not None:
            raise InvalidOption("Text has no schema; JSON has one.")
        return text
    if schema is None:
        raise InvalidOption('JSON needs a schema, for example from_schema("value", "json", "id long, total double").')
    return F.from_json(text, schema, given)


def decoded(values: Column, what: ReaderSchema) -> Column:
    """A struct of the value and, where there is none, the reason."""
    kind = StructType([StructField(VALUE, value_reader(what).column.type), StructField(REASON, StringType())])
    make: Any = arrow_udf  # its types know no struct
    made: Column = make(rows_of(what), kind)(values)
    return made


def without_prefix(values: Column) -> Column:
    """JSON in the registry's wire format as plain JSON; null for what has no schema id."""
    is_framed = (F.length(values) >= PREFIX_BYTES) & (F.substring(values, 1, 1) == F.lit(b"\0"))
    return F.when(is_framed, F.substring(values, PREFIX_BYTES + 1, 2**31 - 1))


def _from_registry(values: Column, chosen: str, schema: StructType | str | None, given: dict[str, str]) -> Column:
    if isinstance(schema, StructType):
        raise InvalidOption(f"A schema for {chosen} is the text of one; without, it is that of the subject.")
    url = given.pop("registry", None)
    if url is None:
        raise InvalidOption(f'{chosen} needs the registry, such as {{"registry": "http://127.0.0.1:8080"}}.')
    address = RegistryAddress(url, given.pop("registry.token", None))
    mode = given.pop("mode", PERMISSIVE).upper()
    what = reader_schema(chosen, address, given.pop("subject", None), schema, given.pop("message", None))
    if given or mode not in (PERMISSIVE, FAILFAST):
        raise InvalidOption(f"Unknown options or mode: {', '.join(given) or mode}.")
    found = decoded(values, what)
    if mode == PERMISSIVE:
        return found[VALUE]
    complaint = F.raise_error(F.concat(F.lit(f"A value is no {chosen} of its schema: "), found[REASON]))
    return F.when(found[REASON].isNull(), found[VALUE]).otherwise(complaint)
