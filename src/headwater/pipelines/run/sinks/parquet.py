"""Rows into Parquet files, each batch once, with small files joined from time to time.

    <root>/<column>=<value>/<query>-<batch>-<n>.parquet      files of one batch
    <root>/<column>=<value>/<query>-joined-….parquet         files that were joined
    <root>/_headwater/                                       what is under way; readers of Parquet pass it over

A batch is written aside and its files are renamed into place one by one. A batch that Spark repeats is the last one
that it began, so the first batch after a start removes what is there under its own number. Files of earlier batches may
be joined: they are never repeated. Names begin with the query's id, so that a pipeline that starts with a new
checkpoint does not take the files of the old one for its own.

A reader who lists the directory while files are renamed or joined may see a part of a batch, or for a moment a joined
file beside what it replaces. Where that matters, Delta and Iceberg have commits.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.pipelines.run.sinks.hadoop_files import HadoopFiles
from headwater.pipelines.run.sinks.joined_files import finish_joins, join_small_files
from headwater.pipelines.spec.sinks import ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWN = "_headwater"
ID_CHARS = 8


class ToParquet:
    def __init__(self, sink: ParquetSink, path: str, query_id: Callable[[], str]) -> None:
        self._sink = sink
        self._path = path
        self._query_id = query_id
        self._is_first = True
        self._joined_s = time.monotonic()

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        files = HadoopFiles(batch.sparkSession, self._path)
        query = self._query_id()[:ID_CHARS]
        prefix = f"{query}-{batch_id:010d}-"
        if self._is_first:
            _clean_up(files, query, prefix)
        staging = f"{OWN}/{prefix}staged"
        writer = batch.write.mode("overwrite")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.parquet(files.url(staging))
        staged = sorted(path for path, _ in files.walk(staging) if path.endswith(".parquet"))
        for number, path in enumerate(staged):
            directory = path.removeprefix(staging).rpartition("/")[0].lstrip("/")
            files.rename(path, f"{directory}/{prefix}{number:05d}.parquet".lstrip("/"))
        files.delete(staging)
        self._is_first = False
        self._join_when_due(batch, batch_id, files, query)

    def _join_when_due(self, batch: "DataFrame", batch_id: int, files: HadoopFiles, query: str) -> None:
        every_ms = self._sink.compact_every_ms
        if every_ms is None or (time.monotonic() - self._joined_s) * 1000 < every_ms:
            return
        name = re.compile(rf"(?:.*/)?{query}-(?P<batch>\d+|joined)-[^/]*\.parquet")

        def is_committed(path: str) -> bool:
            match = name.fullmatch(path)
            return match is not None and (match["batch"] == "joined" or int(match["batch"]) < batch_id)

        limits = self._sink.compact_below_bytes, self._sink.compact_to_bytes
        join_small_files(batch.sparkSession, files, OWN, query, is_committed, *limits)
        self._joined_s = time.monotonic()


def _clean_up(files: HadoopFiles, query: str, prefix: str) -> None:
    """After a crash: finish what was begun, and remove what was written of the batch that comes again."""
    finish_joins(files, OWN, query)
    for name in files.names(OWN):
        if name.startswith(f"{query}-"):
            files.delete(f"{OWN}/{name}")
    for path, _ in list(files.walk()):
        if path.rpartition("/")[2].startswith(prefix):
            files.delete(path)
