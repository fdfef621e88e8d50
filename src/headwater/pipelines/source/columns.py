"""The columns of a topic in Spark, named and typed as Spark's Kafka source has them, and the columns that a query asks
for.

Spark does not tell a Python source which columns a query uses. `.schema("value binary, offset long")` does: only these
are made, which saves half of the work when it is the value alone.
"""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.pipelines.errors import InvalidColumns

HEADERS = "headers"
HEADER_LIST = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: HEADER_LIST,
}


def whole_schema(include_headers: bool) -> StructType:
    names = [name for name in COLUMNS if include_headers or name != HEADERS]
    return StructType([StructField(name, COLUMNS[name]) for name in names])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that the query asks for, as Spark expects it of the record batches. Raises InvalidColumns."""
    types = {name.lower(): type_ for name, type_ in COLUMNS.items()}
    for field in schema.fields:
        known = types.get(field.name.lower())
        if known is None:
            raise InvalidColumns(f"A topic has no column {field.name}. It has: {', '.join(COLUMNS)}.")
        if field.dataType != known:
            raise InvalidColumns(
                f"Column {field.name} is {known.simpleString()}, not {field.dataType.simpleString()}. Read it as it "
                "is, and cast it in the query."
            )
    return to_arrow_schema(schema, timezone="UTC")
