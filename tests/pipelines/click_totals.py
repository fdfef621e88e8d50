"""A stateful processor for tests, in a module of its own: Python workers import it by its name."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class Totals(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        total = (self.total.get()[0] if self.total.exists() else 0) + sum(row.n for row in rows)
        self.total.update((total,))
        yield Row(id=key[0], total=total)

    def close(self) -> None:
        pass
