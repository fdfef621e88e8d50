"""Rows as records of a topic: each as a JSON object, or as columns that are a record already."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.pipelines.run.sinks.json_rows import json_row
from headwater.pipelines.spec.sinks import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITER_PREFIX = "headwater-pipeline-"
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


def writer_options(sink: TopicSink, bootstrap: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": sink.bootstrap or bootstrap,
        "topic": sink.topic,
        "exactlyOnce": str(sink.exactly_once).lower(),
        **sink.options,
    }


def to_topic(
    options: Mapping[str, str], exactly_once: bool, query_id: Callable[[], str]
) -> "Callable[[DataFrame, int], None]":
    """Batch by batch, for results that change (modes update and complete): Spark hands those to no stream writer in
    Python. Each batch is a job with a number, which is written once."""

    def write(batch: "DataFrame", batch_id: int) -> None:
        writer = batch.write.format("headwater").mode("append").options(**options)
        if exactly_once:
            given = options.get("transactionalId", WRITER_PREFIX + query_id())
            writer = writer.options(transactionalId=given, batchId=str(batch_id))
        writer.save()

    return write
