"""The source in a real Spark: what only Spark can judge, its types, its checkpoints and its processes."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.pipelines import HeadwaterDataSource, from_schema, register
from headwater.testing import Broker
from tests.pipelines.starting import patiently
from tests.pipelines.topics import Topics, numbered
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

WAIT_S = 100


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with Broker(subprocess=True) as broker:
        yield Topics(broker.bootstrap)


def table(spark: "SparkSession", options: dict[str, str], schema: str | None = None) -> "DataFrame":
    reading = spark.read.format("headwater").options(**options)
    return (reading.schema(schema) if schema else reading).load()


class Collected:
    """A query that keeps the values of each micro-batch."""

    def __init__(self, stream: "DataFrame", checkpoint: Path, **trigger: Any) -> None:
        self.batches: list[list[bytes]] = []
        writer = stream.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(checkpoint))
        self.query: StreamingQuery = patiently(writer.trigger(**trigger).start)

    def _keep(self, rows: "DataFrame", batch_id: int) -> None:
        self.batches.append(sorted(bytes(row.value) for row in rows.select("value").collect()))

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch]

    @property
    def sources(self) -> list[dict[str, Any]]:
        """What the batches with rows told of the source."""
        progress = [json.loads(one.json) for one in self.query.recentProgress if one.numInputRows]
        return [one["sources"][0] for one in progress]


def available_now(spark: "SparkSession", options: dict[str, str], checkpoint: Path) -> Collected:
    collected = Collected(spark.readStream.format("headwater").options(**options).load(), checkpoint, availableNow=True)
    assert collected.query.awaitTermination(WAIT_S), "the query has an end"
    return collected


def test_a_topic_is_a_table_with_the_columns_of_the_kafka_source(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create(2)
    topics.produce(topic, [b"a", None], key=b"k", headers=[("trace", b"1")], timestamp=1_700_000_000_123, codec="zstd")
    topics.produce(topic, [b"b"], partition=1, timestamp=1_700_000_000_000)
    rows = table(spark, topics.options(topic, includeHeaders="true"))
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    first, second, third = rows.orderBy("partition", "offset").collect()
    assert first.asDict(recursive=True) | {"timestamp": first.timestamp.astimezone(UTC)} == {
        "key": b"k",
        "value": b"a",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"1"}],
    }
    assert (second.value, second.offset) == (None, 1)
    assert (third.key, third.value, third.partition, third.headers) == (None, b"b", 1, None)


def test_a_schema_chooses_the_columns(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(5))
    rows = table(spark, topics.options(topic), "offset long, value binary")
    assert [tuple(row) for row in rows.orderBy("offset").collect()] == list(enumerate(numbered(5)))


def test_values_are_decoded_as_text_and_as_json(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, [b'{"id": 1, "total": 2.5}', b"no json", b"\xff\xfe", None])
    text, order = from_schema("value", "text"), from_schema("value", "json", "id long, total double")
    rows = table(spark, topics.options(topic)).orderBy("offset").select(text.alias("text"), order.alias("order"))
    found = [(row.text, row.order.asDict() if row.order else None) for row in rows.collect()]
    empty = {"id": None, "total": None}
    assert found == [
        ('{"id": 1, "total": 2.5}', {"id": 1, "total": 2.5}),
        ("no json", empty),
        ("\ufffd\ufffd", empty),
        (None, None),
    ]


def test_filters_are_pushed_down_for_a_query_that_asks_for_it(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create(2)
    for partition in (0, 1):
        topics.produce(topic, numbered(100), partition=partition)
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        plain = table(spark, topics.options(topic))
        assert plain.where("partition = 1 and offset >= 90").count() == 10
        assert plain.count() == 200, "another query on the same table reads all of it"
        filtering = table(spark, topics.options(topic, pushFilters="true")).where("partition = 1 and offset >= 90")
        assert filtering.count() == 10
        assert "Filter (" not in filtering._jdf.queryExecution().executedPlan().toString()
        assert table(spark, topics.options(topic, pushFilters="true")).where("offset > 1000").count() == 0
    finally:
        spark.conf.unset(setting)


def test_a_stream_goes_on_from_its_checkpoint_in_batches_of_the_size_asked_for(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(250))
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    first = available_now(spark, options, tmp_path)
    assert [len(batch) for batch in first.batches] == [100, 100, 50]
    assert sorted(first.values) == sorted(numbered(250))
    topics.add_partitions(topic, 2)
    topics.produce(topic, numbered(5, first=1000), partition=1)
    topics.produce(topic, numbered(5, first=2000))
    second = available_now(spark, options, tmp_path)
    assert sorted(second.values) == sorted(numbered(5, first=1000) + numbered(5, first=2000))
    recorded = json.loads((tmp_path / "offsets" / "3").read_text().splitlines()[-1])
    assert recorded == {topic: {"0": 255, "1": 5}}
    assert available_now(spark, options, tmp_path).values == []


def test_a_running_stream_reads_what_comes_and_tells_its_lag(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.produce(topic, [b"before"])
    stream = spark.readStream.format("headwater").options(**topics.options(topic)).load()
    running = Collected(stream, tmp_path, processingTime="0 seconds")
    try:
        _until(running, lambda: len(running.batches) == 1)
        topics.produce(topic, [b"one"])
        _until(running, lambda: running.values == [b"one"])
        topics.produce(topic, [b"two"])
        _until(running, lambda: running.values == [b"one", b"two"])
        _until(running, lambda: {topic: {"0": 3}} in [source["endOffset"] for source in running.sources])
        assert all(source["latestOffset"][topic]["0"] >= source["endOffset"][topic]["0"] for source in running.sources)
    finally:
        running.query.stop()


def test_retention_under_a_lagging_stream_is_told_or_passed_over_as_asked(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(10))
    options = topics.options(topic, startingOffsets="earliest")
    assert available_now(spark, options, tmp_path).values == sorted(numbered(10))
    topics.produce(topic, numbered(20, first=10))
    topics.delete_records(topic, before=25)
    strict = Collected(spark.readStream.format("headwater").options(**options).load(), tmp_path, availableNow=True)
    with pytest.raises(Exception, match=f"Offsets 10 to 24 of topic {topic}, partition 0, cannot be read any more"):
        strict.query.awaitTermination(WAIT_S)
    careless = available_now(spark, {**options, "failOnDataLoss": "false"}, tmp_path)
    assert careless.values == numbered(5, first=25)


def test_mistakes_are_told_in_one_sentence(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create()
    for options, words in (
        (topics.options("nope"), "There is no topic nope"),
        (topics.options(topic, startingOffset="latest"), "Did you mean startingOffsets?"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.default.api.timeout.ms": "0"}, "reached"),
    ):
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
            table(spark, options).count()
        told = [line for line in str(caught.value).splitlines() if line.startswith("headwater.pipelines.errors.")]
        assert len(told) == 1 and words in told[0]


def test_the_source_can_be_registered_by_hand(spark: "SparkSession", topics: Topics) -> None:
    register(spark)
    topic = topics.create()
    topics.produce(topic, numbered(3))
    assert table(spark, topics.options(topic)).count() == 3
    assert HeadwaterDataSource.name() == "headwater"


def _until(running: Collected, is_reached: Any) -> None:
    def look() -> bool:
        assert running.query.exception() is None, running.query.exception()
        return bool(is_reached())

    eventually(look, lambda: f"so far there are {running.batches}", patience_s=WAIT_S)
