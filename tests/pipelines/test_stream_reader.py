"""A streaming query as Spark drives it, without Spark: how far batches go, what a restart repeats, what is lost."""

import json
import threading
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from headwater.pipelines.data_source import HeadwaterDataSource
from headwater.pipelines.errors import DataLost, InvalidOption, UnknownTopic
from headwater.pipelines.source import log_ends
from headwater.pipelines.source.columns import whole_schema
from tests.pipelines.scripted_cluster import Log, ScriptedCluster, running
from tests.pipelines.topics import Topics, judged_topics, numbered, values_of

ALL = ReadAllAvailable()
Reader = DataSourceStreamReader


@pytest.fixture
def topics(request: pytest.FixtureRequest) -> Topics:
    return judged_topics(request)


@pytest.fixture(autouse=True)
def no_pause_for_stale_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_ends, "STALE_PAUSE_S", 0.0)


def stream(options: dict[str, str]) -> Reader:
    quick = {"pollWaitMs": "10", "kafka.metadata.max.age.ms": "0"}
    return HeadwaterDataSource({**quick, **options}).streamReader(whole_schema(include_headers=False))


def read(reader: Reader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    return values_of(reader, reader.partitions(start, end))


# How far a batch goes


def test_a_stream_from_the_beginning_reads_everything_and_then_what_comes(topics: Topics) -> None:
    topic = topics.create(2)
    topics.produce(topic, numbered(10))
    reader = stream(topics.options(topic, startingOffsets="earliest"))
    start = reader.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, ALL)
    assert end == reader.reportLatestOffset() == {topic: {"0": 10, "1": 0}}
    assert read(reader, start, end) == numbered(10)
    topics.produce(topic, [b"more"], partition=1)
    later = reader.latestOffset(end, ALL)
    assert read(reader, end, later) == [b"more"]
    reader.stop()


def test_when_there_is_nothing_new_spark_gets_back_what_it_gave(topics: Topics) -> None:
    topic = topics.create(12)
    reader = stream(topics.options(topic, startingOffsets="earliest"))
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) is start
    assert list(start[topic]) == [str(number) for number in range(12)]
    assert reader.partitions(start, start) == []


def test_a_record_that_comes_while_an_idle_query_waits_is_in_the_next_batch(topics: Topics) -> None:
    topic = topics.create()
    waiting = stream(topics.options(topic, startingOffsets="earliest", pollWaitMs="50000"))
    start = waiting.initialOffset()
    timer = threading.Timer(0.2, topics.produce, (topic, [b"news"]))
    timer.start()
    assert read(waiting, start, waiting.latestOffset(start, ALL)) == [b"news"]
    timer.join()


def test_a_limit_is_shared_by_the_partitions(topics: Topics) -> None:
    topic = topics.create(2)
    topics.produce(topic, numbered(90))
    topics.produce(topic, numbered(10), partition=1)
    reader = stream(topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="20"))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    assert reader.latestOffset(reader.initialOffset(), limit) == {topic: {"0": 18, "1": 2}}
    assert reader.reportLatestOffset() == {topic: {"0": 90, "1": 10}}
    assert reader.latestOffset(reader.initialOffset(), ALL) == {topic: {"0": 90, "1": 10}}


def test_a_batch_waits_until_it_is_large_enough_or_long_enough_ago(topics: Topics) -> None:
    topic = topics.create()
    options = topics.options(topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    reader = stream(options)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    topics.produce(topic, numbered(3))
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == {topic: {"0": 3}}, "the first batch does not wait"
    topics.produce(topic, numbered(5))
    assert reader.latestOffset(first, limit) is first
    topics.produce(topic, numbered(5))
    assert reader.latestOffset(first, limit) == {topic: {"0": 13}}
    impatient = stream({**options, "maxTriggerDelay": "0"})
    assert impatient.latestOffset(first, limit) == {topic: {"0": 13}}


def test_a_query_of_what_is_available_now_has_an_end(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(10))
    reader = stream(topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="6"))
    reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    start, limit = reader.initialOffset(), ReadMaxRows(6)
    middle = reader.latestOffset(start, limit)
    topics.produce(topic, numbered(10))
    end = reader.latestOffset(middle, limit)
    assert (middle, end) == ({topic: {"0": 6}}, {topic: {"0": 10}})
    assert reader.latestOffset(end, limit) is end


def test_more_tasks_than_partitions_are_made_when_asked_for(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(100))
    reader = stream(topics.options(topic, startingOffsets="earliest", minPartitions="4"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert len(reader.partitions(start, end)) == 4
    assert read(reader, start, end) == numbered(100)


# Where it starts


def test_a_stream_that_starts_at_the_end_records_its_start_first(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(5))
    options = topics.options(topic)
    reader = stream(options)
    start = reader.initialOffset()
    topics.produce(topic, numbered(5, first=5))
    assert reader.latestOffset(start, ALL) is start, "batch 0 only takes the start into the checkpoint"
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == numbered(5, first=5)

    restarted = stream(options)
    new_start = restarted.initialOffset()
    assert new_start != start
    assert restarted.partitions(new_start, start) == [], "batch 0 again: still nothing"
    end = restarted.latestOffset(start, ALL)
    assert read(restarted, start, end) == numbered(5, first=5), "batch 1 goes on from the recorded start"


def test_a_start_is_the_same_however_often_spark_asks(topics: Topics) -> None:
    topic = topics.create()
    reader = stream(topics.options(topic))
    start = reader.initialOffset()
    topics.produce(topic, numbered(5))
    assert reader.initialOffset() == start


def test_a_start_by_offsets_and_by_time(topics: Topics) -> None:
    topic = topics.create(2)
    topics.produce(topic, numbered(10), timestamp=1_000)
    topics.produce(topic, numbered(10), timestamp=2_000)
    topics.produce(topic, numbered(3), partition=1, timestamp=2_000)

    def start(**more: str) -> dict[str, Any]:
        return stream(topics.options(topic, **more)).initialOffset()

    assert start(startingOffsets=json.dumps({topic: {"0": 4, "1": -1}})) == {topic: {"0": 4, "1": 3}}
    assert start(startingOffsets=json.dumps({topic: {"0": -2, "1": 2}})) == {topic: {"0": 0, "1": 2}}
    assert start(startingTimestamp="1500") == {topic: {"0": 10, "1": 0}}
    by_time = json.dumps({topic: {"0": 1000, "1": 9000}})
    with pytest.raises(InvalidOption, match=f"{topic}-1 has no record at or after 9000 ms"):
        start(startingOffsetsByTimestamp=by_time)
    latest = start(startingOffsetsByTimestamp=by_time, startingOffsetsByTimestampStrategy="latest")
    assert latest == {topic: {"0": 0, "1": 3}}


def test_offsets_must_name_every_partition_and_no_other(topics: Topics) -> None:
    topic = topics.create(2)
    for named, words in (({"0": 1}, f"but not {topic}-1"), ({"0": 1, "1": 1, "2": 1}, f"names {topic}-2")):
        with pytest.raises(InvalidOption, match=words):
            stream(topics.options(topic, startingOffsets=json.dumps({topic: named}))).initialOffset()


# Topics that come and go


def test_partitions_that_are_added_are_read_from_their_beginning(topics: Topics) -> None:
    topic = topics.create()
    reader = stream(topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="100"))
    start = reader.initialOffset()
    topics.add_partitions(topic, 2)
    topics.produce(topic, numbered(7), partition=1)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {topic: {"0": 0, "1": 7}}
    assert read(reader, start, end) == numbered(7)


def test_a_pattern_finds_topics_that_come_later(topics: Topics) -> None:
    prefix = topics.create()
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribePattern": f"{prefix}-x.*"}
    reader = stream({**options, "startingOffsets": "earliest"})
    start = reader.initialOffset()
    assert start == {}
    new = topics.create(name=f"{prefix}-x1")
    topics.produce(new, numbered(3))
    end = reader.latestOffset(start, ALL)
    assert end == {new: {"0": 3}}
    assert read(reader, start, end) == numbered(3)


def test_assigned_partitions_are_read_and_no_others(topics: Topics) -> None:
    topic = topics.create(2)
    topics.produce(topic, numbered(3))
    topics.produce(topic, [b"other"], partition=1)
    options = {"kafka.bootstrap.servers": topics.bootstrap, "assign": json.dumps({topic: [1]})}
    reader = stream({**options, "startingOffsets": "earliest"})
    start = reader.initialOffset()
    assert read(reader, start, reader.latestOffset(start, ALL)) == [b"other"]
    with pytest.raises(UnknownTopic, match=f"no partition {topic}-7"):
        stream({**options, "assign": json.dumps({topic: [7]})}).initialOffset()


@pytest.mark.parametrize("is_failure", [True, False])
def test_a_topic_that_is_deleted_is_a_loss(topics: Topics, is_failure: bool) -> None:
    kept, deleted = topics.create(), topics.create()
    options = topics.options(f"{kept},{deleted}", startingOffsets="earliest", failOnDataLoss=str(is_failure))
    reader = stream(options)
    start = reader.initialOffset()
    topics.delete(deleted)
    topics.produce(kept, numbered(2))
    if is_failure:
        with pytest.raises(DataLost, match=f"topic {deleted}, partition 0.*was deleted"):
            reader.latestOffset(start, ALL)
    else:
        end = reader.latestOffset(start, ALL)
        assert end == {kept: {"0": 2}}
        assert read(reader, start, end) == numbered(2)


def test_a_topic_that_is_made_again_while_the_query_runs_is_a_loss(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(3))
    reader = stream(topics.options(topic, startingOffsets="earliest"))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    topics.delete(topic)
    topics.create(name=topic)
    topics.produce(topic, numbered(5))
    with pytest.raises(DataLost, match=f"Offsets from 3 on of topic {topic}, partition 0.*made again"):
        reader.latestOffset(end, ALL)


def test_a_log_that_became_shorter_is_a_loss(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(3))
    recorded = {topic: {"0": 10}}
    with pytest.raises(DataLost, match=r"Offsets from 10 on .* ends at 3 now"):
        stream(topics.options(topic)).latestOffset(recorded, ALL)
    careless = stream(topics.options(topic, failOnDataLoss="false"))
    end = careless.latestOffset(recorded, ALL)
    assert end == {topic: {"0": 3}}
    assert careless.partitions(recorded, end) == []


def test_a_new_partition_whose_beginning_is_gone_is_a_loss(topics: Topics) -> None:
    topic = topics.create(2)
    topics.produce(topic, numbered(10), partition=1)
    topics.delete_records(topic, before=4, partition=1)
    start, end = {topic: {"0": 0}}, {topic: {"0": 0, "1": 10}}
    with pytest.raises(DataLost, match=r"Offsets 0 to 3 .*partition 1.*begins at 4"):
        stream(topics.options(topic)).partitions(start, end)
    careless = stream(topics.options(topic, failOnDataLoss="false"))
    assert read(careless, start, end) == numbered(6, first=4)


def test_an_older_end_is_asked_for_again_before_it_counts_as_a_loss() -> None:
    with running(ScriptedCluster()) as scripted:
        scripted.topic("t", Log(end=10))
        older = scripted.topics["t"][0]

        def tell_an_older_end(request: Any, right: Any) -> Any:
            right.topics[0].partitions[0].offset = 4
            return right

        scripted.misbehave(2, tell_an_older_end, tell_an_older_end)
        reader = stream({"kafka.bootstrap.servers": scripted.bootstrap, "subscribe": "t"})
        start = {"t": {"0": older.high_watermark}}
        assert reader.latestOffset(start, ALL) is start


# Isolation


def test_a_reader_of_committed_data_goes_up_to_the_last_stable_offset() -> None:
    with running(ScriptedCluster()) as scripted:
        scripted.topic("t", Log(end=10, stable=6))
        ends = []
        for level in ("read_committed", "read_uncommitted"):
            options = {"kafka.bootstrap.servers": scripted.bootstrap, "subscribe": "t", "kafka.isolation.level": level}
            reader = stream({**options, "startingOffsets": "earliest"})
            ends.append(reader.latestOffset(reader.initialOffset(), ALL))
        assert ends == [{"t": {"0": 6}}, {"t": {"0": 10}}]
