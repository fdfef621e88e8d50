"""The sink in a real Spark: what arrives in topics, and that it arrives once, whatever fails and is run again."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from headwater.pipelines import register
from headwater.testing import Broker
from tests.pipelines.reading_back import read_back, values_in
from tests.pipelines.starting import patiently
from tests.pipelines.topics import Topics, numbered
from tests.support.effort import in_long, only_long
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(500)  # Spark on a busy machine takes its time

WAIT_S = 200


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with Broker(subprocess=True) as broker:
        yield Topics(broker.bootstrap)


@pytest.fixture(scope="module", autouse=True)
def sinks(spark: "SparkSession") -> None:
    from tests.pipelines.failing_sink import FailingSink

    register(spark)
    spark.dataSource.register(FailingSink)
    # Spark looks a stream's sink up in the session that is active: whichever made a frame last, in whatever test.
    spark.createDataFrame([], "value string")


def save(frame: "DataFrame", topics: Topics, format_: str = "headwater", **options: str) -> None:
    writer = frame.write.format(format_).mode("append").option("kafka.bootstrap.servers", topics.bootstrap)
    writer.options(**options).save()


def started(
    frame: "DataFrame", topics: Topics, checkpoint: Path, format_: str = "headwater", **options: str
) -> "StreamingQuery":
    writer = frame.writeStream.format(format_).option("kafka.bootstrap.servers", topics.bootstrap).options(**options)
    return patiently(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start)


def is_written(bootstrap: str, topic: str, values: list[str]) -> bool:
    return values_in(bootstrap, topic) == values


def rows_of(spark: "SparkSession", topics: Topics, topic: str, rows_at_once: int) -> "DataFrame":
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(rows_at_once))
    return spark.readStream.format("headwater").options(**options).load().select("key", "value")


def test_rows_arrive_with_all_that_they_say(spark: "SparkSession", topics: Topics) -> None:
    first, second = topics.create(3), topics.create(1)
    time_ = datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
    schema = (
        "key string, value binary, topic string, partition int, timestamp timestamp, "
        "headers array<struct<key: string, value: binary>>"
    )
    rows = [
        ("k", b"one", first, 2, time_, [("trace", b"1"), ("empty", None)]),
        (None, None, second, None, time_, None),
        ("", b"", second, None, time_, []),
    ]
    save(spark.createDataFrame(rows, schema), topics, compression="zstd")
    (one,) = read_back(topics.bootstrap, first)
    assert (one.partition(), one.key(), one.value()) == (2, b"k", b"one")
    assert one.headers() == [("trace", b"1"), ("empty", None)]
    assert one.timestamp()[1] == time_.timestamp() * 1000
    found = {(message.key(), message.value()) for message in read_back(topics.bootstrap, second)}
    assert found == {(None, None), (b"", b"")}


def test_keys_go_where_librdkafka_puts_them(spark: "SparkSession", topics: Topics) -> None:
    ours, theirs = topics.create(5), topics.create(5)
    keys = [f"customer {number}" for number in range(200)]
    save(spark.createDataFrame([(key, "v") for key in keys], "key string, value string"), topics, topic=ours)
    producer = Producer({"bootstrap.servers": topics.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(theirs, b"v", key)
    assert producer.flush(60) == 0
    places = [
        {message.key(): message.partition() for message in read_back(topics.bootstrap, topic)}
        for topic in (ours, theirs)
    ]
    assert places[0] == places[1]


def test_a_job_of_many_tasks_is_one_transaction(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    topic, once = topics.create(2), tmp_path / "once"
    frame = spark.range(0, 1_000, numPartitions=5).selectExpr("cast(id as string) as value")
    once.touch()
    with pytest.raises(Exception, match="Injected"):
        save(frame, topics, "failing", topic=topic, failAt="task", once=str(once))
    assert values_in(topics.bootstrap, topic, "read_uncommitted") == []
    save(frame, topics, topic=topic, batchBytes="1000")
    assert Counter(values_in(topics.bootstrap, topic)) == Counter(map(str, range(1_000)))


def test_a_job_that_has_a_number_is_written_once(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create()
    for number in (0, 0, 1, 1):
        frame = spark.createDataFrame([(f"job {number}",)], "value string")
        save(frame, topics, topic=topic, transactionalId=f"jobs-of-{topic}", batchId=str(number))
    assert values_in(topics.bootstrap, topic) == ["job 0", "job 1"]
    frame = spark.createDataFrame([("job 0 of another",)], "value string")
    for _ in range(2):
        named = {"transactionalId": f"jobs-of-{topic}", "queryId": "another", "batchId": "0"}
        save(frame, topics, topic=topic, **named)
    assert values_in(topics.bootstrap, topic) == ["job 0", "job 1", "job 0 of another"]


def test_at_least_once_needs_no_transaction(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create(3)
    save(spark.range(2_000).selectExpr("cast(id as string) as value"), topics, topic=topic, exactlyOnce="false")
    messages = read_back(topics.bootstrap, topic, "read_uncommitted")
    assert Counter(message.value() for message in messages) == Counter(b"%d" % number for number in range(2_000))
    offsets = Counter(message.partition() for message in messages)
    assert {message.offset() for message in messages if message.partition() == 0} == set(range(offsets[0]))


def test_a_stream_writes_each_row_once_though_everything_fails(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    from_, to, once = topics.create(2), topics.create(2), tmp_path / "once"
    topics.produce(from_, numbered(120))
    topics.produce(from_, numbered(120, first=120), partition=1)
    rows = rows_of(spark, topics, from_, rows_at_once=60)
    failures = 0
    for place in ("task", "before commit", "after commit", "nowhere"):
        once.touch()
        query = started(rows, topics, tmp_path / "checkpoint", "failing", topic=to, failAt=place, once=str(once))
        try:
            assert query.awaitTermination(WAIT_S), "the query ends"
        except Exception as error:
            assert "Injected" in str(error)
            failures += 1
    assert failures == 3
    assert Counter(values_in(topics.bootstrap, to)) == Counter(value.decode() for value in numbered(240))


@pytest.mark.crash
@only_long
def test_a_driver_that_is_killed_leaves_nothing_twice_and_nothing_out(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    from tests.pipelines.copying_driver import copy

    from_, to = topics.create(2), topics.create(2)
    topics.produce(from_, numbered(300))
    topics.produce(from_, numbered(300, first=300), partition=1)
    arguments = (topics.bootstrap, from_, to, str(tmp_path / "checkpoint"))
    command = [sys.executable, "-m", "tests.pipelines.copying_driver", *arguments]
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        eventually(lambda: driver.poll() is not None or len(values_in(topics.bootstrap, to)) >= 100, patience_s=WAIT_S)
        assert driver.poll() is None, (tmp_path / "driver.log").read_text()
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert len(values_in(topics.bootstrap, to)) < 600, "it was killed before its end"
    assert copy(spark, *arguments).awaitTermination(WAIT_S), "the query ends"
    assert Counter(values_in(topics.bootstrap, to)) == Counter(value.decode() for value in numbered(600))


def test_of_two_queries_under_one_id_the_older_stops(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    from_, to = topics.create(), topics.create()
    rows = rows_of(spark, topics, from_, rows_at_once=1_000)
    options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": to, "transactionalId": f"two-for-{to}"}
    queries: list[StreamingQuery] = []
    topics.produce(from_, [b"first"])
    try:
        for number, name in enumerate(("older", "newer")):
            writer = rows.writeStream.format("headwater").options(**options)
            writer = writer.option("checkpointLocation", str(tmp_path / name))
            queries.append(patiently(writer.trigger(processingTime="50 milliseconds").start))
            copies = ["first"] * (number + 1)
            eventually(partial(is_written, topics.bootstrap, to, copies), patience_s=WAIT_S)
        topics.produce(from_, [b"second"])
        eventually(lambda: not queries[0].isActive, patience_s=WAIT_S)
        assert "Another run writes as" in str(queries[0].exception())
        eventually(lambda: "second" in values_in(topics.bootstrap, to), patience_s=WAIT_S)
        assert values_in(topics.bootstrap, to) == ["first", "first", "second"]
        assert queries[1].isActive
    finally:
        for query in queries:
            query.stop()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "no-such-topic"}, "Topic no-such-topic does not exist. Create it first"),
        in_long({"topik": "x"}, "topik is unknown"),
        in_long({}, "set the option topic, or add a column topic"),
        ({"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}, "cannot be reached: 127.0.0.1:1"),
    ],
)
def test_a_query_that_cannot_write_says_why(
    spark: "SparkSession", topics: Topics, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    from_ = topics.create()
    topics.produce(from_, [b"row"])
    query = started(rows_of(spark, topics, from_, 10), topics, tmp_path / "checkpoint", **options)
    with pytest.raises(Exception, match="(?s)" + words.replace(".", r"\.")):
        query.awaitTermination(WAIT_S)
