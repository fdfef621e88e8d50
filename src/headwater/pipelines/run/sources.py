"""Sources as DataFrames."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.pipelines.run.cluster_options import cluster_options
from headwater.pipelines.spec.pipeline import Pipeline, PipelinePart
from headwater.pipelines.spec.sources import (
    TOPIC_COLUMNS,
    FilesSource,
    JdbcSource,
    PythonSource,
    SourceKind,
    TopicSource,
)
from headwater.pipelines.spec.starts import Start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CSV_DEFAULTS = {"header": "true"}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a run says of its sources beyond the file."""

    bootstrap: str
    now_ms: int
    start: Start | None = None
    """In place of what the file says."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """TLS and the login at the cluster, as librdkafka takes them."""


def read_source(
    source: PipelinePart[SourceKind],
    pipeline: Pipeline,
    spark: "SparkSession",
    reading: ReadOptions,
    columns: tuple[str, ...] | None = None,
) -> "DataFrame":
    """`columns` are those of a topic that anybody needs; reading fewer is faster. None: all of them."""
    match source.does:
        case TopicSource() as topic:
            return _topic(topic, spark, reading, columns or tuple(TOPIC_COLUMNS))
        case FilesSource() as files:
            return _files(files, pipeline, spark)
        case JdbcSource() as jdbc:
            return spark.read.format("jdbc").options(**jdbc_options(jdbc)).load()
        case PythonSource(function=function):
            frame: DataFrame = function(spark)
            return frame


def topic_options(topic: TopicSource, reading: ReadOptions) -> dict[str, str]:
    start = (reading.start or topic.start).resolved(reading.now_ms)
    options = {
        **cluster_options(topic, reading.bootstrap, reading.security),
        "kafka.isolation.level": topic.isolation,
        "subscribe": topic.topic,
        "failOnDataLoss": str(topic.fail_on_data_loss).lower(),
    }
    if start.time_ms is not None:
        # Nothing is that young: a query that reads from then on waits at the end.
        options |= {"startingTimestamp": str(start.time_ms), "startingOffsetsByTimestampStrategy": "latest"}
    elif topic.stream or start.is_earliest:
        options["startingOffsets"] = "earliest" if start.is_earliest else "latest"
    if topic.stream:
        options["maxOffsetsPerTrigger"] = str(topic.max_records)
    return {**options, **topic.options}


def jdbc_options(jdbc: JdbcSource) -> dict[str, str]:
    given = {
        "url": jdbc.url,
        "dbtable": jdbc.table,
        "query": jdbc.query,
        "driver": jdbc.driver,
        "user": jdbc.user,
        "password": jdbc.password,
    }
    return {**{name: value for name, value in given.items() if value is not None}, **jdbc.options}


def _topic(topic: TopicSource, spark: "SparkSession", reading: ReadOptions, columns: tuple[str, ...]) -> "DataFrame":
    options: Mapping[str, str] = topic_options(topic, reading)
    if "headers" in columns:
        options = {**options, "includeHeaders": "true"}
    schema = ", ".join(f"{name} {TOPIC_COLUMNS[name]}" for name in TOPIC_COLUMNS if name in columns)
    reader = spark.readStream if topic.stream else spark.read
    return reader.format("headwater").schema(schema).options(**options).load()


def _files(files: FilesSource, pipeline: Pipeline, spark: "SparkSession") -> "DataFrame":
    path = pipeline.located(files.path)
    options = {**(CSV_DEFAULTS if files.format == "csv" else {}), **files.options}
    if files.stream:
        assert files.schema is not None, "a stream of files has a schema: check said so"
        stream = spark.readStream.format(files.format).schema(files.schema)
        return stream.option("maxFilesPerTrigger", files.max_files).options(**options).load(path)
    reader = spark.read.format(files.format).options(**options)
    return (reader.schema(files.schema) if files.schema is not None else reader).load(path)
