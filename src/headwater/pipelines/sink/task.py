"""What a task does with its rows: it packs them into batches, and stages or sends them.

*Staged* batches travel to the driver as the task's result, and are sent from there when all tasks are done. A task that
fails, or runs twice, leaves no trace. *Sent* batches are in the topic when the task is done, whatever becomes of the
job.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from headwater.pipelines.client.cluster_client import ClusterClient, shared_cluster
from headwater.pipelines.sink.batches import PackedBatch, Packing, pack
from headwater.pipelines.sink.columns import Columns
from headwater.pipelines.sink.coordinator import TransactionCoordinators
from headwater.pipelines.sink.destinations import Destinations, partition_counter
from headwater.pipelines.sink.errors import BatchTooLarge
from headwater.pipelines.sink.options import SinkOptions
from headwater.pipelines.sink.producer import IdempotentProducer, SinkProducerIdentity
from headwater.pipelines.sink.producer_requests import init_producer
from headwater.pipelines.worker import freeze_heap

QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"
"""Spark runs all jobs of a streaming query as one group, named by the run."""
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class StagedBatches(WriterCommitMessage):
    batches: tuple[PackedBatch, ...]
    query_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class SentBatches(WriterCommitMessage):
    """Nothing is left to do."""


def write_rows(
    iterator: Iterator[pa.RecordBatch], columns: Columns, options: SinkOptions
) -> StagedBatches | SentBatches:
    """In an executor."""
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    freeze_heap()
    cluster = shared_cluster(options.client)
    batch_id = int(task.getLocalProperty(BATCH_ID) or 0)
    if batch_id == 0:
        cluster.reach()  # a wrong address is reported soon, while the user who started the query still looks
    packed = pack(
        iterator,
        Packing(columns, options.batch_bytes, options.codec),
        Destinations(partition_counter(cluster), options.topic, batch_id + task.partitionId()),
        time.time_ns() // 1_000_000,
    )
    if not options.is_exactly_once:
        _send(packed, cluster)
        return SentBatches()
    return StagedBatches(
        _stage(packed, options.max_staged_bytes),
        task.getLocalProperty(QUERY_ID) or "",
        task.getLocalProperty(RUN_ID) or "",
    )


def new_producer(cluster: ClusterClient) -> SinkProducerIdentity:
    """For each task another one: what a task that died has sent late does not disturb the sequence of the next."""
    with TransactionCoordinators(cluster) as coordinators:
        return coordinators.answer(init_producer(None, transaction_timeout_ms=0))


def _stage(packed: Iterator[list[PackedBatch]], max_bytes: int) -> tuple[PackedBatch, ...]:
    staged: list[PackedBatch] = []
    size_bytes = 0
    for batches in packed:
        staged.extend(batches)
        size_bytes += sum(len(batch.data) for batch in batches)
        if size_bytes > max_bytes:
            raise BatchTooLarge(
                f"A task has more than {max_bytes} bytes for one transaction (option maxStagedBytes). Take smaller "
                "batches (maxOffsetsPerTrigger) or more tasks, let the rows be compressed (compression=zstd), or write "
                "at least once (exactlyOnce=false), which has no such limit. If you raise maxStagedBytes, the driver "
                "needs memory for all tasks together (spark.driver.memory, spark.driver.maxResultSize)."
            )
    return tuple(staged)


def _send(packed: Iterator[list[PackedBatch]], cluster: ClusterClient) -> None:
    producer: IdempotentProducer | None = None
    try:
        for batches in packed:
            if producer is None:
                producer = IdempotentProducer(cluster, new_producer(cluster))
            producer.send(batches)
        if producer is not None:
            producer.flush()
    finally:
        if producer is not None:
            producer.close()
