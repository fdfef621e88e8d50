"""Rows as JSON texts."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEEP_NULLS = {"ignoreNullFields": "false"}


def json_row(frame: "DataFrame") -> "Column":
    """The whole row as a JSON object."""
    from pyspark.sql import functions as f

    return f.to_json(f.struct(*(f.col("`" + name.replace("`", "``") + "`") for name in frame.columns)), KEEP_NULLS)
