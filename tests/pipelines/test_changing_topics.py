"""Topics that change under a pipeline: partitions are added, and retention takes records before they were read."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from headwater.pipelines.jvm.cache import cache_directory
from headwater.testing import Broker
from tests.pipelines.reading_back import values_in
from tests.pipelines.running import RunningPipeline
from tests.pipelines.topics import Topics, numbered
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark on a busy machine takes its time

PIPELINE = """
trigger = "50ms"
[source.rows]
kind = "topic"
topic = "{from_}"
from = "earliest"
options = {{ "kafka.metadata.max.age.ms" = "200" }}
{more}
[sink.copies]
kind = "topic"
input = "rows"
topic = "{to}"
format = "raw"
"""
ROW_BYTES = 1_000
WAIT_S = 60.0
RESTS = 50
"""Looks in a row that see the same, over a second: retention has ten rounds in that time."""


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with Broker(subprocess=True, retention_check_interval_ms=100) as broker:
        yield Topics(broker.bootstrap)


def copying(directory: Path, from_: str, to: str, more: str = "") -> Path:
    file = directory / "copy.toml"
    file.write_text(PIPELINE.format(from_=from_, to=to, more=more))
    return file


def test_a_partition_that_is_added_is_read_from_its_first_record(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    from_, to = topics.create(1), topics.create(2)
    topics.produce(from_, numbered(10))
    with RunningPipeline(spark, copying(tmp_path, from_, to), topics.bootstrap) as pipeline:
        pipeline.until(lambda: len(values_in(topics.bootstrap, to)) == 10, "the first partition is copied")
        topics.add_partitions(from_, 3)
        for partition in range(3):  # at once: nobody has seen the new ones empty
            topics.produce(from_, numbered(50, first=100 * (partition + 1)), partition=partition)
        pipeline.until(lambda: len(values_in(topics.bootstrap, to)) >= 160, "all partitions are copied")
        pipeline.until(lambda: pipeline.query("copies").lag == 0, "and nothing is left")
        assert pipeline.interruptions == []
    sent = numbered(10) + [row for first in (100, 200, 300) for row in numbered(50, first)]
    assert Counter(values_in(topics.bootstrap, to)) == Counter(row.decode() for row in sent)


def test_records_that_retention_takes_from_a_lagging_pipeline_stop_it_or_are_passed_over_as_it_says(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    small = {"segment.bytes": "16384", "retention.bytes": "32768"}
    from_, to = topics.create(1, small), topics.create(1)
    topics.produce(from_, numbered(10))
    file = copying(tmp_path, from_, to)
    with RunningPipeline(spark, file, topics.bootstrap) as pipeline:
        pipeline.until(lambda: len(values_in(topics.bootstrap, to)) == 10, "it is up to date")
    for _ in range(20):  # batches that fill segments while it is away
        topics.produce(from_, [b"x" * ROW_BYTES] * 10)
    first, end = until_retention_took_more(topics.bootstrap, from_, than=10)

    with RunningPipeline(spark, file, topics.bootstrap) as pipeline:
        told = str(pipeline.failure())
    assert told.startswith(
        f"sink copies: Offsets 10 to {first - 1} of topic {from_}, partition 0, cannot be read any more: "
        f"the log begins at {first} now, because of its retention or a deletion."
    )
    assert "failOnDataLoss" in told and "\n" not in told
    assert len(values_in(topics.bootstrap, to)) == 10, "nothing was passed over in silence"

    copying(tmp_path, from_, to, "fail_on_data_loss = false")
    with RunningPipeline(spark, file, topics.bootstrap) as pipeline:
        pipeline.until(lambda: len(values_in(topics.bootstrap, to)) >= 10 + end - first, "what is left is copied")
        topics.produce(from_, [b"later"])
        pipeline.until(lambda: values_in(topics.bootstrap, to)[-1] == "later", "it goes on")
        assert pipeline.interruptions == []
    assert len(values_in(topics.bootstrap, to)) == 10 + end - first + 1
    warning = f"records_lost topic={from_} partition=0 first_offset=10 last_offset={first - 1}"
    assert any(warning in log.read_text(errors="replace") for log in (cache_directory() / "logs").glob("spark-*.log"))


def until_retention_took_more(bootstrap: str, topic: str, than: int) -> tuple[int, int]:
    """Where the log begins and ends when retention has done what it can, beyond an offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watching"})
    try:
        seen: list[tuple[int, int]] = [(-1, -1)] * RESTS

        def rests_beyond() -> tuple[int, int] | None:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
            seen.append((int(first), int(end)))
            return seen[-1] if first > than and len(set(seen[-RESTS:])) == 1 else None

        return eventually(rests_beyond, lambda: f"retention works; the log is {seen[-1]}", patience_s=WAIT_S)
    finally:
        consumer.close()
