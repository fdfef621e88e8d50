"""The sink with a weak point: it fails once, where and when a test says.

Options: `failAt` is `task`, `before commit` or `after commit`, and `once` a file: the first to remove it fails."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.pipelines.data_source import HeadwaterDataSource
from headwater.pipelines.sink.options import sink_options
from headwater.pipelines.sink.writers import BatchWriter, StreamWriter

OWN = ("failat", "once")


class Injected(Exception):
    """What a test asked for."""


class Weakness:
    def __init__(self, options: Any) -> None:
        self._fail_at, self._once = options["failat"], options["once"]

    def strike(self, place: str) -> None:
        if place == self._fail_at:
            try:
                Path(self._once).unlink()
            except FileNotFoundError:
                return
            raise Injected(place)


class FailingStreamWriter(StreamWriter):
    weakness: Weakness

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        self.weakness.strike("task")
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.weakness.strike("before commit")
        super().commit(messages, batchId)
        self.weakness.strike("after commit")


class FailingBatchWriter(BatchWriter):
    weakness: Weakness

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        self.weakness.strike("task")
        return message


class FailingSink(HeadwaterDataSource):
    @classmethod
    def name(cls) -> str:
        return "failing"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        writer = FailingBatchWriter(schema, sink_options(self._rest(), is_streaming=False))
        writer.weakness = Weakness(self.options)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        writer = FailingStreamWriter(schema, sink_options(self._rest(), is_streaming=True))
        writer.weakness = Weakness(self.options)
        return writer

    def _rest(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name not in OWN}
