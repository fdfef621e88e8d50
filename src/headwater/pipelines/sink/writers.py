"""`df.writeStream.format("headwater")` and `df.write.format("headwater")`, as Spark calls them.

Spark makes a stream's writer twice for each micro-batch, in two processes: one goes to the tasks, the other commits.
Nothing is remembered between them; what a commit needs comes with the tasks' results. A commit that failed is followed
by an abort, and by then the batch may be written or not: nothing is done there, because the next run of the batch finds
out.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.pipelines.client.cluster_client import shared_cluster
from headwater.pipelines.errors import InvalidOption
from headwater.pipelines.sink.batches import PackedBatch
from headwater.pipelines.sink.columns import sink_columns
from headwater.pipelines.sink.destinations import partition_counter
from headwater.pipelines.sink.options import SinkOptions
from headwater.pipelines.sink.task import StagedBatches, write_rows
from headwater.pipelines.sink.transaction import BatchName, write_in_transaction

ID_PREFIX: Final = "headwater-spark-"


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._columns = sink_columns(schema, options.topic is not None)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._columns, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        staged = [message for message in messages if isinstance(message, StagedBatches)]
        batches = _all_batches(staged)
        if not batches:
            return
        options = self._options
        query_id, run_id = staged[0].query_id, staged[0].run_id
        if options.transactional_id is None and not query_id:
            raise InvalidOption("Spark does not tell the query's id here: set the option transactionalId.")
        name = BatchName(options.transactional_id or ID_PREFIX + query_id, query_id, run_id, batchId)
        write_in_transaction(shared_cluster(options.client), name, batches, options.transaction_timeout_ms)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: a transaction ends where it begins."""


class BatchWriter(DataSourceArrowWriter):
    """Made in the driver; copies of it go to the tasks, and it is there itself to commit."""

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        self._columns = sink_columns(schema, options.topic is not None)
        self._options = options
        self._transactional_id = options.transactional_id or f"{ID_PREFIX}job-{uuid.uuid4()}"
        cluster = shared_cluster(options.client)
        cluster.reach()
        if options.topic is not None:
            partition_counter(cluster)(options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._columns, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        batches = _all_batches([message for message in messages if isinstance(message, StagedBatches)])
        if batches:
            name = BatchName(self._transactional_id, self._options.query_id, batch_id=self._options.batch_id)
            timeout_ms = self._options.transaction_timeout_ms
            write_in_transaction(shared_cluster(self._options.client), name, batches, timeout_ms)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: a transaction ends where it begins."""


def refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise InvalidOption('A topic cannot be overwritten, only added to: say mode("append").')


def _all_batches(staged: Sequence[StagedBatches]) -> list[PackedBatch]:
    return [batch for message in staged for batch in message.batches]
