"""Rows as records of a topic: each as a JSON object, or as columns that are a record already."""

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.pipelines.run.cluster_options import cluster_options
from headwater.pipelines.run.sinks.json_rows import json_row
from headwater.pipelines.spec.sinks import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITER_PREFIX = "headwater-pipeline-"
MAX_WRITER_CHARS = 200
RECORD_COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")


def records(frame: "DataFrame", sink: TopicSink) -> "DataFrame":
    """The frame with the columns that the headwater sink takes."""
    from pyspark.sql import functions as f

    if sink.format == "raw":
        if "value" not in frame.columns:
            raise ValueError(f"raw needs a column value; there is: {', '.join(frame.columns)}")
        # Where a record came from is no place to write it to: topic and partition are the sink's business.
        return frame.select(*(name for name in ("key", "value", "headers") if name in frame.columns))
    columns: list[Any] = [json_row(frame).alias("value")]
    if sink.key is not None:
        columns.append(f.expr(sink.key).cast("string").alias("key"))
    if sink.headers:
        pairs = [
            f.struct(f.lit(name).alias("key"), f.expr(text).cast("string").cast("binary").alias("value"))
            for name, text in sink.headers.items()
        ]
        columns.append(f.array(*pairs).alias("headers"))
    return frame.select(*columns)


def writer_options(
    sink: TopicSink, bootstrap: str, security: Mapping[str, str], pipeline: str, query: str
) -> dict[str, str]:
    options = {
        **cluster_options(sink, bootstrap, security),
        "topic": sink.topic,
        "exactlyOnce": str(sink.exactly_once).lower(),
    }
    if sink.exactly_once and not {"exactlyonce", "transactionalid"} & {name.lower() for name in sink.options}:
        options["transactionalId"] = writer_name(pipeline, query)
    return {**options, **sink.options}


def writer_name(pipeline: str, query: str) -> str:
    """Of the transactions of a query, and of the group that remembers its last batch: the same for every run and every
    checkpoint, so that a pipeline leaves no group behind for each."""
    name = f"{WRITER_PREFIX}{pipeline}-{query}"
    if len(name) <= MAX_WRITER_CHARS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: MAX_WRITER_CHARS - 17]}-{digest}"


def to_topic(options: Mapping[str, str], query_id: Callable[[], str]) -> "Callable[[DataFrame, int], None]":
    """Batch by batch, for results that change (modes update and complete): Spark hands those to no stream writer in
    Python. Each batch is a job with a number, which is written once."""

    def write(batch: "DataFrame", batch_id: int) -> None:
        writer = batch.write.format("headwater").mode("append").options(**options)
        if any(name.lower() == "transactionalid" for name in options):
            writer = writer.options(queryId=query_id(), batchId=str(batch_id))
        writer.save()

    return write
