"""Rows as JSON lines for people, or for the next program in a pipe."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.pipelines.run.sinks.json_rows import json_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def to_console(rows: int, emit: Callable[[str], None]) -> "Callable[[DataFrame, int], None]":
    def write(batch: "DataFrame", batch_id: int) -> None:
        lines = [row[0] for row in batch.select(json_row(batch)).take(rows + 1)]
        for line in lines[:rows]:
            emit(line)
        if len(lines) > rows:
            emit(f"… and more rows in batch {batch_id}")

    return write
