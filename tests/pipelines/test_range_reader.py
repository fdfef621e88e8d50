"""One task's range of offsets: read whole, over restarts and moves, and told when a part of it is gone."""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from headwater.model.errors import ErrorCode
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.client.config import client_config
from headwater.pipelines.client.offsets import OffsetRange
from headwater.pipelines.errors import BrokerUnreachable, DataLost, RequestRefused, UnreadableRecords
from headwater.pipelines.source import range_reader
from headwater.pipelines.source.data_loss import Losses
from headwater.pipelines.source.range_reader import RangeReader
from headwater.records.batch import TRANSACTIONAL, Codec
from headwater.records.build import build_batch
from headwater.records.control import EndMarker, build_marker
from headwater.records.record import Record
from headwater.testing import Broker
from headwater.wire.typed.fetch import FetchRequest, FetchResponse
from tests.pipelines.scripted_cluster import FETCH, LIST_OFFSETS, Log, Misdeed, ScriptedCluster, running
from tests.pipelines.topics import Topics, judged_topics, numbered

SCHEMA = pa.schema([("value", pa.binary()), ("offset", pa.int64())])


@pytest.fixture
def scripted() -> Iterator[ScriptedCluster]:
    with running(ScriptedCluster(), brokers=2) as cluster:
        cluster.topic("t", Log(batches=[batch(offset, 10) for offset in range(0, 100, 10)]))
        yield cluster


@pytest.fixture
def topics(request: pytest.FixtureRequest) -> Topics:
    return judged_topics(request)


def batch(offset: int, count: int = 1, **more: int) -> bytes:
    records = [Record(None, b"value %d" % (offset + index)) for index in range(count)]
    return bytes(build_batch(records, base_offset=offset, **more))


def cluster_of(bootstrap: str, **more: str) -> ClusterClient:
    return ClusterClient(client_config({"bootstrap.servers": bootstrap, "fetch.max.wait.ms": "20", **more}))


def reader(
    cluster: ClusterClient, wanted: OffsetRange, is_failure: bool = True, poll_timeout_ms: int = 10_000
) -> RangeReader:
    return RangeReader(cluster, wanted, SCHEMA, Losses(is_failure), poll_timeout_ms)


def offsets(batches: Sequence[pa.RecordBatch] | Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for rows in batches for offset in rows["offset"].to_pylist()]


def whole(end: int = 100, start: int = 0) -> OffsetRange:
    return OffsetRange("t", 0, start, end)


def fetch_error(code: int) -> Misdeed:
    def misdeed(request: FetchRequest, right: FetchResponse) -> FetchResponse:
        right.responses[0].partitions[0].error_code = code
        right.responses[0].partitions[0].records = b""
        return right

    return misdeed


# A real broker


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_a_producer_sent_is_read(topics: Topics, codec: str) -> None:
    topic = topics.create()
    topics.produce(topic, [*numbered(3000), None, b""], codec=codec)
    rows = list(reader(cluster_of(topics.bootstrap), OffsetRange(topic, 0, 0, 3002)).rows())
    assert [value for one in rows for value in one["value"].to_pylist()] == [*numbered(3000), None, b""]
    assert offsets(rows) == list(range(3002))


def test_a_range_is_read_in_many_fetches(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "SMALLEST_FETCH_BYTES", 100)
    topic = topics.create()
    for first in range(0, 200, 20):
        topics.produce(topic, numbered(20, first))
    cluster = cluster_of(topics.bootstrap, **{"max.partition.fetch.bytes": "100"})
    rows = list(reader(cluster, OffsetRange(topic, 0, 33, 171)).rows())
    assert len(rows) == 8, "one batch in each answer"
    assert offsets(rows) == list(range(33, 171))


def test_a_broker_may_restart_while_a_range_is_read(headwater: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "SMALLEST_FETCH_BYTES", 100)
    topics = Topics(headwater.bootstrap)
    topic = topics.create()
    for first in range(0, 100, 20):
        topics.produce(topic, numbered(20, first))
    cluster = cluster_of(topics.bootstrap, **{"max.partition.fetch.bytes": "100"})
    wanted = OffsetRange(topic, 0, 0, 100, cluster.topics([topic])[topic].topic_id)
    reading = reader(cluster, wanted, poll_timeout_ms=60_000).rows()
    first = next(reading)
    headwater.restart()
    assert offsets([first]) + offsets(reading) == list(range(100))


def test_records_that_retention_took_are_told_with_their_range(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(50))
    topics.delete_records(topic, before=30)
    with pytest.raises(
        DataLost, match=rf"Offsets 10 to 29 of topic {topic}, partition 0.*begins at 30.*failOnDataLoss"
    ):
        list(reader(cluster_of(topics.bootstrap), OffsetRange(topic, 0, 10, 50)).rows())


def test_a_query_that_may_lose_records_reads_the_rest_and_warns(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(50))
    topics.delete_records(topic, before=30)
    with caplog.at_level(logging.WARNING, "headwater"):
        rows = list(reader(cluster_of(topics.bootstrap), OffsetRange(topic, 0, 10, 50), is_failure=False).rows())
    assert offsets(rows) == list(range(30, 50))
    assert f"records_lost topic={topic} partition=0 first_offset=10 last_offset=29" in caplog.text


def test_a_range_that_is_gone_altogether_gives_nothing(topics: Topics) -> None:
    topic = topics.create()
    topics.produce(topic, numbered(50))
    topics.delete_records(topic, before=40)
    wanted = OffsetRange(topic, 0, 10, 20)
    assert list(reader(cluster_of(topics.bootstrap), wanted, is_failure=False).rows()) == []
    with pytest.raises(DataLost, match="Offsets 10 to 19"):
        list(reader(cluster_of(topics.bootstrap), wanted).rows())


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_is_deleted_or_made_again_is_not_another_one(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    monkeypatch.setattr(range_reader, "NEW_TOPIC_TIMEOUT_MS", 200)
    topic = topics.create()
    topics.produce(topic, numbered(5))
    cluster = cluster_of(topics.bootstrap)
    wanted = OffsetRange(topic, 0, 0, 5, cluster.topics([topic])[topic].topic_id)
    assert wanted.topic_id is not None
    topics.delete(topic)
    if is_made_again:
        topics.create(name=topic)
        topics.produce(topic, numbered(5))
    with pytest.raises(DataLost, match="made again" if is_made_again else "does not exist"):
        list(reader(cluster, wanted).rows())
    assert list(reader(cluster, wanted, is_failure=False).rows()) == []


def test_an_abandoned_range_leaves_the_cluster_usable(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "SMALLEST_FETCH_BYTES", 100)
    topic = topics.create()
    for first in range(0, 60, 20):
        topics.produce(topic, numbered(20, first))
    cluster = cluster_of(topics.bootstrap, **{"max.partition.fetch.bytes": "100"})
    abandoned = reader(cluster, OffsetRange(topic, 0, 0, 60)).rows()
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    assert offsets(reader(cluster, OffsetRange(topic, 0, 0, 60)).rows()) == list(range(60))


def test_two_ranges_may_be_read_by_turns(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "SMALLEST_FETCH_BYTES", 100)
    topic = topics.create()
    for first in range(0, 60, 20):
        topics.produce(topic, numbered(20, first))
    cluster = cluster_of(topics.bootstrap, **{"max.partition.fetch.bytes": "100"})
    turns = [reader(cluster, OffsetRange(topic, 0, 0, 60)).rows() for _ in range(2)]
    found = [[next(turn) for turn in turns] for _ in range(3)]
    assert offsets([one for one, _ in found]) == offsets([other for _, other in found]) == list(range(60))


# Scripted brokers


def test_errors_that_pass_are_overcome(scripted: ScriptedCluster) -> None:
    passing = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.KAFKA_STORAGE_ERROR]
    scripted.misbehave(FETCH, *map(fetch_error, passing), lambda request, right: None)
    assert offsets(reader(cluster_of(scripted.bootstrap), whole()).rows()) == list(range(100))


def test_a_leader_that_moves_is_followed(scripted: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "SMALLEST_FETCH_BYTES", 100)
    cluster = cluster_of(scripted.bootstrap, **{"max.partition.fetch.bytes": "100"})
    reading = reader(cluster, whole()).rows()
    first = next(reading)
    scripted.topics["t"][0].leader = 1
    scripted.misbehave(FETCH, fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert offsets([first]) + offsets(reading) == list(range(100))
    assert scripted.asked[-1] == (1, FETCH)


def test_errors_that_do_not_pass_end_the_task(scripted: ScriptedCluster) -> None:
    scripted.misbehave(FETCH, fetch_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(RequestRefused, match="does not let this client read t-0"):
        list(reader(cluster_of(scripted.bootstrap), whole()).rows())


def test_brokers_that_stay_away_end_the_task(scripted: ScriptedCluster) -> None:
    scripted.misbehave(FETCH, *[lambda request, right: None] * 50)
    with pytest.raises(BrokerUnreachable, match="closed the connection"):
        list(reader(cluster_of(scripted.bootstrap), whole(), poll_timeout_ms=200).rows())


def test_a_client_that_is_held_back_waits_and_goes_on(scripted: ScriptedCluster) -> None:
    def hold_back(request: FetchRequest, right: FetchResponse) -> FetchResponse:
        right.responses[0].partitions[0].records = b""
        right.throttle_time_ms = 10
        return right

    scripted.misbehave(FETCH, *[hold_back] * 3)
    assert offsets(reader(cluster_of(scripted.bootstrap), whole()).rows()) == list(range(100))


def test_offsets_that_compaction_took_away_are_not_waited_for_long(
    scripted: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(range_reader, "GAP_TIMEOUT_MS", 100)
    scripted.topics["t"][0].end = 120
    with caplog.at_level(logging.WARNING, "headwater"):
        assert offsets(reader(cluster_of(scripted.bootstrap), whole(end=110)).rows()) == list(range(100))
    assert "no_records_in_range topic=t partition=0 first_offset=100 last_offset=109" in caplog.text


def test_a_broker_that_needs_time_to_find_its_records_is_not_taken_for_one_that_has_none(
    scripted: ScriptedCluster,
) -> None:
    def find_nothing_yet(request: FetchRequest, right: FetchResponse) -> FetchResponse:
        right.responses[0].partitions[0].records = b""
        return right

    scripted.misbehave(FETCH, *[find_nothing_yet] * 5)
    assert offsets(reader(cluster_of(scripted.bootstrap), whole()).rows()) == list(range(100))


def test_a_log_that_ends_before_the_range_is_told(scripted: ScriptedCluster) -> None:
    with pytest.raises(DataLost, match=r"Offsets 100 to 149 .* log ends at 100"):
        list(reader(cluster_of(scripted.bootstrap), whole(end=150), poll_timeout_ms=100).rows())
    with pytest.raises(DataLost, match=r"Offsets 120 to 149 .* log ends at 100; was the topic"):
        list(reader(cluster_of(scripted.bootstrap), whole(start=120, end=150)).rows())


def test_a_damaged_batch_is_told_with_its_place(scripted: ScriptedCluster) -> None:
    damaged = bytearray(scripted.topics["t"][0].batches[2])
    damaged[-1] ^= 1
    scripted.topics["t"][0].batches[2] = bytes(damaged)
    with pytest.raises(UnreadableRecords, match=r"topic t, partition 0, at offset 0 or after.*checksum"):
        list(reader(cluster_of(scripted.bootstrap), whole()).rows())


def test_a_batch_that_unpacks_to_too_much_is_told(scripted: ScriptedCluster) -> None:
    bomb = build_batch([Record(None, bytes(40_000_000))], base_offset=0, compression=Codec.GZIP)
    scripted.topics["t"][0].batches = [bytes(bomb)]
    with pytest.raises(UnreadableRecords, match="unpack to more than"):
        list(reader(cluster_of(scripted.bootstrap), whole(end=1)).rows())


def test_an_answer_without_a_whole_batch_is_not_asked_for_forever(scripted: ScriptedCluster) -> None:
    def cut(request: FetchRequest, right: FetchResponse) -> FetchResponse:
        right.responses[0].partitions[0].records = batch(0, 10)[:-5]
        return right

    scripted.misbehave(FETCH, cut)
    with pytest.raises(UnreadableRecords, match="cut off"):
        list(reader(cluster_of(scripted.bootstrap), whole()).rows())


def test_committed_data_is_read_without_what_was_aborted(scripted: ScriptedCluster) -> None:
    transaction = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    marker = build_marker(5, 0, EndMarker(is_commit=False, coordinator_epoch=0), 0)
    marker[:8] = (20).to_bytes(8, "big")
    log = Log(batches=[batch(0, 10), batch(10, 10, **transaction), bytes(marker), batch(21, 9)], aborted=[(5, 10)])
    scripted.topic("t", log)
    committed = cluster_of(scripted.bootstrap, **{"isolation.level": "read_committed"})
    assert offsets(reader(committed, whole(end=30)).rows()) == [*range(10), *range(21, 30)]
    assert offsets(reader(cluster_of(scripted.bootstrap), whole(end=30)).rows()) == [*range(20), *range(21, 30)]


def test_nothing_is_fetched_for_an_empty_range(scripted: ScriptedCluster) -> None:
    assert list(reader(cluster_of(scripted.bootstrap), whole(start=5, end=5)).rows()) == []
    assert scripted.asked == []


def test_a_broker_that_fails_to_tell_where_its_log_begins_is_asked_again(scripted: ScriptedCluster) -> None:
    scripted.topics["t"][0].start = 10
    del scripted.topics["t"][0].batches[0]
    scripted.misbehave(LIST_OFFSETS, lambda request, right: None)
    rows = reader(cluster_of(scripted.bootstrap), whole(), is_failure=False).rows()
    assert offsets(rows) == list(range(10, 100))
