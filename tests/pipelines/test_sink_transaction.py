"""One transaction for each batch, on a real broker: again, from two sides, after a death in the middle, and refused."""

import threading
import uuid
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.client.config import client_config
from headwater.pipelines.errors import BrokerUnreachable, RequestRefused, SourceError, UnknownTopic
from headwater.pipelines.sink.batches import PackedBatch, Packing, pack
from headwater.pipelines.sink.columns import Columns
from headwater.pipelines.sink.destinations import Destinations, partition_counter
from headwater.pipelines.sink.errors import ProducerFenced, RecordTooLarge, Superseded
from headwater.pipelines.sink.markers import MAX_EARLIER_RUNS, BatchMarker, BatchMarkers, read_markers
from headwater.pipelines.sink.transaction import BatchName, write_in_transaction
from tests.pipelines.reading_back import TIMEOUT_S, read_back, values_in
from tests.pipelines.topics import Topics, judged_topics

TIMEOUT_MS = 20_000


@pytest.fixture
def topics(request: pytest.FixtureRequest) -> Topics:
    return judged_topics(request)


def new_id() -> str:
    return f"sink-{uuid.uuid4().hex[:10]}"


def cluster_of(topics: Topics, **more: str) -> ClusterClient:
    return ClusterClient(client_config({"bootstrap.servers": topics.bootstrap, **more}))


def packed(cluster: ClusterClient, topic: str, values: list[str], batch_bytes: int = 100_000) -> list[PackedBatch]:
    """Batches for all partitions of the topic."""
    table = pa.record_batch({"key": pa.array(values, pa.binary()), "value": pa.array(values, pa.string())})
    destinations = Destinations(partition_counter(cluster), topic, 0)
    packing = Packing(Columns(value=1, key=0), batch_bytes, 0)
    return [batch for group in pack([table], packing, destinations, 1_700_000_000_000) for batch in group]


def write(topics: Topics, name: BatchName, topic: str, values: list[str], batch_bytes: int = 100_000) -> bool:
    cluster = cluster_of(topics)
    try:
        return write_in_transaction(cluster, name, packed(cluster, topic, values, batch_bytes), TIMEOUT_MS)
    finally:
        cluster.close()


def numbers(first: int, count: int) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def test_a_batch_that_is_run_again_adds_nothing(topics: Topics) -> None:
    topic, name = topics.create(3), BatchName(new_id(), "query", "run", 0)
    assert write(topics, name, topic, numbers(0, 100), batch_bytes=500)
    assert not write(topics, name, topic, numbers(0, 100))
    assert not write(topics, BatchName(name.transactional_id, "query", "run after a restart", 0), topic, ["other"])
    assert sorted(values_in(topics.bootstrap, topic), key=int) == numbers(0, 100)


def test_batches_follow_each_other_and_the_group_of_their_writer_has_no_lag(topics: Topics) -> None:
    topic, transactional_id = topics.create(2), new_id()
    for batch_id in range(3):
        values = [f"{batch_id}/{number}" for number in range(20)]
        assert write(topics, BatchName(transactional_id, "q", "r", batch_id), topic, values, batch_bytes=200)
    assert len(set(values_in(topics.bootstrap, topic))) == 60
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": transactional_id})
    committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], TIMEOUT_S)
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[1] for number in range(2)]
    consumer.close()
    assert [place.offset for place in committed] == ends
    assert not write(topics, BatchName(transactional_id, "q", "r", 2), topic, ["again"]), "the text has the number"


def test_what_a_dead_writer_left_open_is_aborted_by_the_next(topics: Topics) -> None:
    topic, transactional_id = topics.create(), new_id()
    dead = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    dead.init_transactions(TIMEOUT_S)
    dead.begin_transaction()
    dead.produce(topic, b"half of a batch")
    assert dead.flush(TIMEOUT_S) == 0
    assert write(topics, BatchName(transactional_id, "q", "r", 0), topic, ["whole"])
    assert values_in(topics.bootstrap, topic) == ["whole"]
    assert values_in(topics.bootstrap, topic, "read_uncommitted") == ["half of a batch", "whole"]


def test_of_two_runs_of_a_query_the_older_stops(topics: Topics) -> None:
    topic, transactional_id = topics.create(), new_id()
    write(topics, BatchName(transactional_id, "q", "older", 0), topic, ["0"])
    write(topics, BatchName(transactional_id, "q", "newer", 1), topic, ["1"])
    for batch_id in (1, 2):
        with pytest.raises(Superseded, match="Another run writes as"):
            write(topics, BatchName(transactional_id, "q", "older", batch_id), topic, ["late"])
    write(topics, BatchName(transactional_id, "q", "newer", 2), topic, ["2"])
    assert values_in(topics.bootstrap, topic) == ["0", "1", "2"]


def test_numbers_of_another_query_do_not_count(topics: Topics) -> None:
    """With a new checkpoint a query counts from 0 again, and what it writes are other rows."""
    topic, transactional_id = topics.create(), new_id()
    for batch_id in range(3):
        write(topics, BatchName(transactional_id, "old checkpoint", "r1", batch_id), topic, [f"old {batch_id}"])
    assert write(topics, BatchName(transactional_id, "new checkpoint", "r2", 0), topic, ["new 0"])
    assert values_in(topics.bootstrap, topic) == ["old 0", "old 1", "old 2", "new 0"]


def test_the_marker_is_found_whichever_topic_carries_it(topics: Topics) -> None:
    first, second, transactional_id = topics.create(), topics.create(), new_id()
    write(topics, BatchName(transactional_id, "q", "r", 0), first, ["0"])
    write(topics, BatchName(transactional_id, "q", "r", 1), second, ["1"])
    assert not write(topics, BatchName(transactional_id, "q", "r", 0), first, ["0"])
    assert not write(topics, BatchName(transactional_id, "q", "r", 1), second, ["1"])
    with pytest.raises(Superseded):
        write(topics, BatchName(transactional_id, "q", "newer", 2), first, ["2"])
        write(topics, BatchName(transactional_id, "q", "r", 2), second, ["late"])


def test_two_runs_at_once_write_every_batch_once_and_at_most_one_stops(topics: Topics) -> None:
    topic, transactional_id, batches = topics.create(2), new_id(), 12
    stopped: dict[str, SourceError] = {}

    def run(run_id: str) -> None:
        try:
            for batch_id in range(batches):
                write(topics, BatchName(transactional_id, "q", run_id, batch_id), topic, numbers(batch_id * 10, 10))
        except SourceError as error:
            stopped[run_id] = error

    threads = [threading.Thread(target=run, args=(run_id,)) for run_id in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stopped) <= 1, "one of them comes to the end"
    assert all(isinstance(error, Superseded | ProducerFenced) for error in stopped.values())
    written = Counter(values_in(topics.bootstrap, topic))
    assert written == Counter(numbers(0, 10 * batches))


def test_a_job_without_a_number_is_written_each_time(topics: Topics) -> None:
    topic = topics.create()
    for _ in range(2):
        assert write(topics, BatchName(new_id()), topic, ["job"])
    assert values_in(topics.bootstrap, topic) == ["job", "job"]


class Interrupted(list[PackedBatch]):
    """Batches; while they are sent, somebody else begins a transaction under the same id, once."""

    def __init__(self, batches: list[PackedBatch], other: Producer) -> None:
        super().__init__(batches)
        self._other: Producer | None = other
        self._is_sending = False

    def __iter__(self) -> Iterator[PackedBatch]:
        if self._is_sending and self._other is not None:
            other, self._other = self._other, None
            other.init_transactions(TIMEOUT_S)
        self._is_sending = True  # the first pass only asks which partitions there are
        return super().__iter__()


def interrupted(topics: Topics, cluster: ClusterClient, topic: str, transactional_id: str) -> Interrupted:
    config = {"bootstrap.servers": topics.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    return Interrupted(packed(cluster, topic, ["row"]), Producer(config))


def test_a_batch_that_was_fenced_by_nobody_newer_is_tried_again(topics: Topics) -> None:
    topic, transactional_id, cluster = topics.create(), new_id(), cluster_of(topics)
    batches = interrupted(topics, cluster, topic, transactional_id)
    assert write_in_transaction(cluster, BatchName(transactional_id, "q", "r", 0), batches, TIMEOUT_MS)
    assert values_in(topics.bootstrap, topic) == ["row"]


def test_a_job_without_a_number_that_was_fenced_is_not_tried_again(topics: Topics) -> None:
    """Nothing tells whether it was committed all the same."""
    topic, transactional_id, cluster = topics.create(), new_id(), cluster_of(topics)
    batches = interrupted(topics, cluster, topic, transactional_id)
    with pytest.raises(ProducerFenced):
        write_in_transaction(cluster, BatchName(transactional_id), batches, TIMEOUT_MS)
    assert values_in(topics.bootstrap, topic) == []


def test_a_batch_that_is_refused_leaves_nothing_and_blocks_nobody(topics: Topics) -> None:
    topic, transactional_id = topics.create(2, {"max.message.bytes": "2000"}), new_id()
    values = [*numbers(0, 50), "9" * 5_000]
    with pytest.raises(RecordTooLarge, match=f"{topic} does not take a batch of this size"):
        write(topics, BatchName(transactional_id, "q", "r", 0), topic, values, batch_bytes=1_000)
    topics.produce(topic, [b"after"])
    assert values_in(topics.bootstrap, topic) == ["after"]
    assert write(topics, BatchName(transactional_id, "q", "r", 0), topic, numbers(0, 50))


def test_a_group_of_readers_is_not_taken_for_a_writer(topics: Topics) -> None:
    topic, group = topics.create(), new_id()
    topics.produce(topic, [b"read"])
    reader = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": group})
    reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    reader.close()
    with pytest.raises(RequestRefused, match="choose another transactionalId"):
        write(topics, BatchName(group, "q", "r", 0), topic, ["x"])


def test_a_topic_that_is_gone_is_told(topics: Topics) -> None:
    topic = topics.create()
    cluster = cluster_of(topics, **{"default.api.timeout.ms": "300"})
    batches = packed(cluster, topic, ["x"])
    topics.delete(topic)
    with pytest.raises((UnknownTopic, RequestRefused), match=f"{topic}|UNKNOWN_TOPIC"):
        write_in_transaction(cluster, BatchName(new_id(), "q", "r", 0), batches, TIMEOUT_MS)


def test_brokers_that_cannot_be_reached_are_named() -> None:
    cluster = ClusterClient(client_config({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "100"}))
    batch = PackedBatch(("t", 0), bytearray(b"never sent"))  # type: ignore[arg-type]
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        write_in_transaction(cluster, BatchName("x", "q", "r", 0), [batch], TIMEOUT_MS)


def test_records_of_one_batch_are_in_order_in_each_partition(topics: Topics) -> None:
    topic = topics.create(3)
    write(topics, BatchName(new_id(), "q", "r", 0), topic, numbers(0, 3_000), batch_bytes=2_000)
    found: dict[int, list[int]] = {}
    for message in read_back(topics.bootstrap, topic):
        found.setdefault(message.partition() or 0, []).append(int(message.value() or b""))
    assert len(found) == 3
    assert all(values == sorted(values) for values in found.values())


def test_markers_name_no_more_runs_than_fit() -> None:
    markers = BatchMarkers()
    for number in range(100):
        markers = BatchMarkers((markers.after("q" * 36, f"{number:036}", number),))
    (marker,) = markers.found
    assert len(marker.earlier_runs) == MAX_EARLIER_RUNS
    assert markers.have_replaced(f"{98:036}")
    assert not markers.have_replaced(f"{99:036}")
    assert len(marker.text()) < 4_096
    assert read_markers("g", [(100, marker.text()), (-1, "")]) == markers


def test_a_marker_of_before_has_the_next_batch_as_its_offset() -> None:
    text = '{"query": "q", "run": "r", "before": []}'
    assert read_markers("g", [(7, text)]) == BatchMarkers((BatchMarker("q", "r", 7),))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "hello",
        "[]",
        '{"next": "7", "query": "q", "run": "r", "before": []}',
        '{"query": 1, "run": "", "before": []}',
        '{"query": "q"}',
    ],
)
def test_a_text_that_is_no_marker_is_refused(text: str | None) -> None:
    with pytest.raises(RequestRefused, match="Group g has offsets of a reader"):
        read_markers("g", [(7, text)])


def test_a_marker_is_read_as_it_was_written() -> None:
    marker = BatchMarker("q", "r", 5, ("before",))
    assert read_markers("g", [(5, marker.text())]) == BatchMarkers((marker,))
