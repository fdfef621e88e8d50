"""The new consumer protocol (KIP-848) as its clients live it: the broker assigns, members give up and take."""

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from headwater.testing import Broker
from tests.clients.group_reading import PARTITIONS, Reading, assert_each_once_and_in_order, feed
from tests.clients.judged import BROKER_ASSIGNS, Client, Received, Record
from tests.support.eventually import blocks_for_a_while, eventually

TIMEOUT_S = 60.0
HEARTBEAT_MS = 150

OpenClient = Callable[[str, str], Client]


@pytest.fixture(scope="module")
def assigning(ours_only: None) -> Iterator[Broker]:
    """A broker that hears its members often, so that nobody waits the 5 s between two heartbeats."""
    with Broker(subprocess=True, group_consumer_heartbeat_interval_ms=HEARTBEAT_MS) as broker:
        yield broker


@pytest.fixture(scope="module")
def confluent(assigning: Broker, open_client: OpenClient) -> Client:
    return open_client("confluent", assigning.bootstrap)


@pytest.fixture(params=["confluent", "java"])
def client(request: pytest.FixtureRequest, assigning: Broker, open_client: OpenClient) -> Client:
    return open_client(request.param, assigning.bootstrap)


@pytest.fixture
def topic(confluent: Client) -> str:
    name = f"assigned-{uuid.uuid4().hex[:10]}"
    confluent.create_topic(name, PARTITIONS)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


def test_a_second_member_takes_a_share_and_gives_it_back(
    client: Client, confluent: Client, topic: str, group: str
) -> None:
    feed(confluent, topic, 0, 50)
    reading = Reading(client.member(topic, group, BROKER_ASSIGNS))
    try:
        reading.until_received(50 * PARTITIONS)
        reading.commit()
        reading.members.append(client.member(topic, group, BROKER_ASSIGNS))
        reading.until_shared()
        feed(confluent, topic, 50, 50)
        reading.until_received(100 * PARTITIONS)
        reading.commit()
        view = client.group(group)
        assert (view.state, view.members) == ("STABLE", 2) and group in client.groups()
        reading.members.pop(0).close()
        reading.until_shared()
        feed(confluent, topic, 100, 50)
        reading.until_received(150 * PARTITIONS)
        assert_each_once_and_in_order(reading.received, 150)
    finally:
        reading.close()
    assert client.group(group).state == "EMPTY"


def test_a_static_member_returns_to_its_share(client: Client, confluent: Client, topic: str, group: str) -> None:
    reading = Reading(client.member(topic, group, BROKER_ASSIGNS, "first"))
    try:
        reading.until_shared()
        reading.members.append(client.member(topic, group, BROKER_ASSIGNS, "second"))
        reading.until_shared()
        feed(confluent, topic, 0, 10)
        reading.until_received(10 * PARTITIONS)
        reading.commit()
        shares = reading.shares()
        reading.members.pop().close()
        for _ in range(3):
            reading.members[0].poll(HEARTBEAT_MS / 1000)
        assert reading.shares() == shares[:1], "the other keeps its own while it is away"
        feed(confluent, topic, 10, 10)
        reading.members.append(client.member(topic, group, BROKER_ASSIGNS, "second"))
        reading.until_received(20 * PARTITIONS)
        assert reading.shares() == shares
        assert_each_once_and_in_order(reading.received, 20)
    finally:
        reading.close()


def test_a_pattern_reads_topics_that_come_later(client: Client, confluent: Client, group: str) -> None:
    prefix = f"matched-{uuid.uuid4().hex[:10]}"
    confluent.create_topic(f"{prefix}.1")
    reading = Reading(client.member(f"^{prefix}.*", group, BROKER_ASSIGNS))
    try:
        confluent.produce(f"{prefix}.1", [Record(b"early")])
        reading.until_received(1)
        confluent.create_topic(f"{prefix}.2")
        confluent.produce(f"{prefix}.2", [Record(b"late")])
        reading.until_received(2)
        assert [record.value for record in reading.received] == [b"early", b"late"]
    finally:
        reading.close()


@pytest.mark.parametrize("partitions", [2, 5, 16])
def test_eight_members_share_any_number_of_partitions(
    confluent: Client, assigning: Broker, group: str, partitions: int
) -> None:
    topic = f"shared-{uuid.uuid4().hex[:10]}"
    confluent.create_topic(topic, partitions)
    workers = [Worker(assigning.bootstrap, topic, group) for _ in range(8)]
    try:

        def is_balanced() -> bool:
            shares = [set(worker.assigned) for worker in workers]
            loads = [len(share) for share in shares]
            together = sorted(index for share in shares for index in share)
            return together == [*range(partitions)] and max(loads) - min(loads) <= 1

        eventually(is_balanced, lambda: [worker.assigned for worker in workers])
    finally:
        for worker in workers:
            worker.stop()


def test_members_that_come_and_go_lose_and_double_nothing(confluent: Client, assigning: Broker, group: str) -> None:
    partitions, each = 6, 100
    topic = f"churned-{uuid.uuid4().hex[:10]}"
    confluent.create_topic(topic, partitions)
    commit_the_start(assigning.bootstrap, topic, partitions, group)
    chance = random.Random(848)
    workers, stopped = [Worker(assigning.bootstrap, topic, group)], []
    try:
        for start in range(0, each, 10):
            numbers = range(start, start + 10)
            confluent.produce(
                topic, [Record(b"%d" % number, partition=index) for number in numbers for index in range(partitions)]
            )
            if len(workers) > 1 and chance.random() < 0.4:
                gone = workers.pop(chance.randrange(len(workers)))
                gone.stop()
                stopped.append(gone)
            elif len(workers) < 5:
                workers.append(Worker(assigning.bootstrap, topic, group))
            blocks_for_a_while()

        def count() -> int:
            return sum(len(worker.handled) for worker in [*workers, *stopped])

        eventually(lambda: count() >= partitions * each, count)
    finally:
        for worker in workers:
            worker.stop()
    handled = Counter(record for worker in [*workers, *stopped] for record in worker.handled)
    assert set(handled) == {(index, offset) for index in range(partitions) for offset in range(each)}
    assert max(handled.values()) == 1


def test_members_go_on_after_a_restart_of_the_broker(
    client: Client, confluent: Client, topic: str, group: str, assigning: Broker
) -> None:
    reading = Reading(*(client.member(topic, group, BROKER_ASSIGNS) for _ in range(2)))
    try:
        reading.until_shared()
        feed(confluent, topic, 0, 20)
        reading.until_received(20 * PARTITIONS)
        reading.commit()
        shares = reading.shares()
        assigning.restart()
        feed(confluent, topic, 20, 20)
        reading.until_received(40 * PARTITIONS)
        assert reading.shares() == shares, "they are who they were"
        reading.commit()
        assert_each_once_and_in_order(reading.received, 40)
    finally:
        reading.close()


@pytest.mark.parametrize(
    ("client", "strategy"), [("confluent", "cooperative-sticky"), ("java", "range")], indirect=["client"]
)
def test_a_live_group_moves_to_the_new_protocol_and_back(
    client: Client, confluent: Client, topic: str, group: str, strategy: str
) -> None:
    """Its member is replaced by one of the new protocol while it lives, and that again by one of the old."""
    reading = Reading(client.member(topic, group, strategy))
    fed = 0

    def read_on() -> None:
        nonlocal fed
        reading.until_shared()
        feed(confluent, topic, fed, 10)
        fed += 10
        reading.until_received(fed * PARTITIONS)
        reading.commit()

    try:
        read_on()
        for next_strategy in (BROKER_ASSIGNS, strategy):
            reading.members.append(client.member(topic, group, next_strategy))
            read_on()
            reading.members.pop(0).close()
            read_on()
        assert_all_once(reading.received, fed)
    finally:
        reading.close()


def test_members_of_two_makes_and_two_protocols_share_a_topic(
    confluent: Client, assigning: Broker, open_client: OpenClient, topic: str, group: str
) -> None:
    java = open_client("java", assigning.bootstrap)
    reading = Reading(confluent.member(topic, group, "range"), java.member(topic, group, BROKER_ASSIGNS))
    try:
        reading.until_shared()
        reading.members += [java.member(topic, group, "range"), confluent.member(topic, group, BROKER_ASSIGNS)]
        reading.until_shared()
        feed(confluent, topic, 0, 10)
        reading.until_received(10 * PARTITIONS)
        assert_all_once(reading.received, 10)
    finally:
        reading.close()


def assert_all_once(received: list[Received], count: int) -> None:
    found = Counter((record.partition, record.offset) for record in received)
    assert found == {(partition, offset): 1 for partition in range(PARTITIONS) for offset in range(count)}


def commit_the_start(bootstrap: str, topic: str, partitions: int, group: str) -> None:
    """Commit offset 0 of each partition, so that no member has to ask where a partition begins.

    librdkafka 2.16 that asks while a rebalance pauses the partition may ask twice: the answer to the first question is
    outdated and starts a timer, the second begins the reading, and half a second later the timer asks once more and
    goes back to where the partition begins, amid records that were read. Committed offsets have no such timer."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        starts = [TopicPartition(topic, index, 0) for index in range(partitions)]
        assert not any(each.error for each in consumer.commit(offsets=starts, asynchronous=False) or ())
    finally:
        consumer.close()


class Worker:
    """A consumer in a thread of its own that commits what it handled before it gives a partition up. It reads from
    committed offsets alone."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.handled: list[tuple[int, int]] = []
        self.assigned: set[int] = set()
        self._topic = topic
        self._next: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._gained, on_revoke=self._lost)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                self.handled.append((partition, offset))
                self._next[partition] = offset + 1
        # Before it closes: on a busy machine the commits of a closing member were refused until its session ended.
        self._commit_and_forget(set(self._next))
        self._consumer.close()

    def _gained(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.assigned |= {each.partition for each in partitions}

    def _lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        lost = {each.partition for each in partitions}
        self._commit_and_forget(lost & self._next.keys())
        self.assigned -= lost

    def _commit_and_forget(self, partitions: set[int]) -> None:
        if partitions:
            self._commit([TopicPartition(self._topic, index, self._next.pop(index)) for index in sorted(partitions)])

    def _commit(self, offsets: list[TopicPartition]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        refusals: Counter[str] = Counter()
        while time.monotonic() < deadline_s:
            try:
                committed = self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:  # the epoch moved on between the commit and the answer to a heartbeat
                refusals[str(error)] += 1
                continue
            errors = [str(each.error) for each in committed or () if each.error]
            if not errors:
                return
            refusals.update(errors)
        raise TimeoutError(f"not committed: {offsets}, {refusals}")
