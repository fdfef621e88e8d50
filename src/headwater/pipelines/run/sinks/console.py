"""Rows as JSON lines for people, or for the next program in a pipe."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.pipelines.run.sinks.json_rows import json_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def to_console(rows: int, emit: Callable[[str], None]) -> "Callable[[DataFrame, int], None]":
    def write(batch: "DataFrame", batch_id: int) -> None:
        """All rows are gone through, though some are shown: Spark keeps state only of partitions that were, and counts
        only what was read."""
        shown = batch.select(json_row(batch)).persist()
        try:
            lines = [row[0] for row in shown.take(rows + 1)]
            more = shown.count() - rows if len(lines) > rows else 0
        finally:
            shown.unpersist()
        for line in lines[:rows]:
            emit(line)
        if more:
            emit(f"… and {more} more in batch {batch_id}")

    return write
