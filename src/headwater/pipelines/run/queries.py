"""The queries of a pipeline: one for each sink, and one for the dead letters of each step that has some.

Dead letters have a query of their own because a query has one sink: they read their source a second time, and keep
their own place in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.pipelines.run.frames import Frames
from headwater.pipelines.run.problems import explain
from headwater.pipelines.run.sinks.console import to_console
from headwater.pipelines.run.sinks.hadoop_files import HadoopFiles
from headwater.pipelines.run.sinks.jdbc import to_jdbc
from headwater.pipelines.run.sinks.lakes import to_delta, to_iceberg
from headwater.pipelines.run.sinks.parquet import ToParquet
from headwater.pipelines.run.sinks.table import SQLITE, to_table
from headwater.pipelines.run.sinks.topic import records, to_topic, writer_options
from headwater.pipelines.run.sinks.webhook import to_webhook
from headwater.pipelines.run.sources import ReadOptions
from headwater.pipelines.run.steps import referenced
from headwater.pipelines.spec.durations import interval
from headwater.pipelines.spec.graph import Graph
from headwater.pipelines.spec.mistakes import BadPipeline, Mistake
from headwater.pipelines.spec.pipeline import Pipeline, SinkPart
from headwater.pipelines.spec.sinks import (
    ConsoleSink,
    DecoratedSink,
    DeltaSink,
    IcebergSink,
    JdbcSink,
    ParquetSink,
    PythonSink,
    TableSink,
    TopicSink,
    WebhookSink,
)
from headwater.pipelines.spec.steps import ParseStep
from headwater.pipelines.spec.triggers import Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    WriteBatch = Callable[[DataFrame, int], None]

LETTERS_SUFFIX = "_dead_letters"


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query that can be started, as often as it takes: it goes on from its checkpoint."""

    name: str
    frame: "DataFrame"
    checkpoint: str
    trigger: Trigger
    mode: str
    write_batch: "WriteBatch | None" = None
    options: Mapping[str, str] | None = None
    """Of the headwater sink, for queries into topics."""

    def start(self, *, is_once: bool = False) -> "StreamingQuery":
        writer = self.frame.writeStream.queryName(self.name).outputMode(self.mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if is_once or self.trigger.every_ms is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=interval(self.trigger.every_ms))
        if self.write_batch is not None:
            writer = writer.foreachBatch(self.write_batch)
        else:
            writer = writer.format("headwater").options(**(self.options or {}))
        return writer.start()

    def has_started_before(self, spark: "SparkSession") -> bool:
        return HadoopFiles(spark, self.checkpoint).exists("metadata")


def plan_queries(
    graph: Graph, frames: Frames, spark: "SparkSession", reading: ReadOptions, emit: Callable[[str], None]
) -> list[PlannedQuery]:
    """`emit` is given the lines of console sinks. Raises BadPipeline with every part that Spark does not take."""
    pipeline = graph.pipeline
    queries = []
    refused = dict(frames.refused)
    for sink in pipeline.sinks:
        (read,) = graph.reads[sink.name]
        if read not in frames.by_name:
            continue
        try:
            queries.append(_query(sink, frames.by_name[read], pipeline, spark, reading, emit))
        except Exception as error:
            refused[Mistake(sink.location, str(explain(error, str(sink))))] = error
    if refused:
        raise BadPipeline(refused) from next(iter(refused.values()))
    for step in graph.steps_in_order:
        if isinstance(step.does, ParseStep) and step.does.dead_letters is not None:
            name = step.name + LETTERS_SUFFIX
            sink_of_letters = TopicSink(topic=step.does.dead_letters, format="raw")
            queries.append(
                PlannedQuery(
                    name,
                    frames.letters[step.name],
                    pipeline.checkpoint_of(name),
                    pipeline.settings.trigger,
                    "append",
                    options=_writer_options(sink_of_letters, pipeline, name, reading),
                )
            )
    return queries


def _query(
    sink: SinkPart,
    frame: "DataFrame",
    pipeline: Pipeline,
    spark: "SparkSession",
    reading: ReadOptions,
    emit: Callable[[str], None],
) -> PlannedQuery:
    name, mode = sink.name, sink.delivery.mode
    checkpoint, trigger = pipeline.checkpoint_of(name), pipeline.trigger_of(sink)
    if isinstance(sink.does, TopicSink):
        options = _writer_options(sink.does, pipeline, name, reading)
        frame = records(frame, sink.does)
        if mode == "append":
            return PlannedQuery(name, frame, checkpoint, trigger, mode, options=options)
        write = to_topic(options, _query_id(spark, checkpoint))
        return PlannedQuery(name, frame, checkpoint, trigger, mode, write)
    return PlannedQuery(name, frame, checkpoint, trigger, mode, _write_batch(sink, pipeline, spark, emit))


def _writer_options(sink: TopicSink, pipeline: Pipeline, query: str, reading: ReadOptions) -> dict[str, str]:
    return writer_options(sink, reading.bootstrap, reading.security, pipeline.name, query)


def _write_batch(
    sink: SinkPart, pipeline: Pipeline, spark: "SparkSession", emit: Callable[[str], None]
) -> "WriteBatch":
    query_id = _query_id(spark, pipeline.checkpoint_of(sink.name))
    match sink.does:
        case ConsoleSink(rows=rows):
            return to_console(rows, emit)
        case ParquetSink() as parquet:
            return ToParquet(parquet, pipeline.located(parquet.path), query_id)
        case DeltaSink() as delta:
            return to_delta(delta, pipeline.located(delta.path), query_id)
        case IcebergSink() as iceberg:
            return to_iceberg(iceberg, query_id)
        case TableSink() as table:
            return to_table(table, _located_url(table.url, pipeline))
        case JdbcSink() as jdbc:
            return to_jdbc(jdbc)
        case WebhookSink() as webhook:
            return to_webhook(webhook, f"{pipeline.name}-{sink.name}")
        case PythonSink(function=reference):
            write: WriteBatch = referenced(reference, pipeline.directory)
            return write
        case DecoratedSink(function=function):
            decorated: WriteBatch = function
            return decorated
        case TopicSink():
            raise AssertionError("a topic is written by the headwater sink")


def _query_id(spark: "SparkSession", checkpoint: str) -> Callable[[], str]:
    """Of the checkpoint: Spark writes it there before the first batch."""
    return lambda: str(HadoopFiles(spark, checkpoint).read_json("metadata")["id"])


def _located_url(url: str, pipeline: Pipeline) -> str:
    return SQLITE + pipeline.located(url.removeprefix(SQLITE)) if url.startswith(SQLITE) else url
