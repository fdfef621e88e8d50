"""Values of records as columns of a query: bytes to text or to a struct."""

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.pipelines.errors import InvalidOption

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
NEED_A_REGISTRY = ("avro", "protobuf")


def from_schema(
    column: Column | str, format: str, schema: StructType | str | None = None, options: Mapping[str, str] | None = None
) -> Column:
    """Decode a column of bytes.

    `text` gives a string; bytes that are not UTF-8 become replacement characters. `json` gives a struct of `schema`, a
    StructType or DDL ("id long, total double"), with null for what is missing or no JSON; `options` are those of
    Spark's `from_json`, for example {"mode": "FAILFAST"}."""
    chosen = format.strip().lower()
    if chosen in NEED_A_REGISTRY:
        raise InvalidOption(
            f"{format} needs the schema registry, which Headwater does not have yet. Decode it in the query, for "
            "example with mapInArrow."
        )
    if chosen not in FORMATS:
        raise InvalidOption(f"{format!r} is no format to decode: it can be {' or '.join(FORMATS)}.")
    text = F.make_valid_utf8((F.col(column) if isinstance(column, str) else column).cast("string"))
    if chosen == TEXT:
        if schema is not None:
            raise InvalidOption("Text has no schema; JSON has one.")
        return text
    if schema is None:
        raise InvalidOption('JSON needs a schema, for example from_schema("value", "json", "id long, total double").')
    return F.from_json(text, schema, dict(options or {}))
