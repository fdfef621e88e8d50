"""Share groups between nodes: a queue is served by the leader of its partition, its state is kept by another node, its
members are coordinated by a third; each of them dies or is paused, and no settled record comes again."""

import base64
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.model.ids import NodeId, PartitionId
from headwater.testing.processes.cluster import ProcessCluster
from tests.clients.judged import Record
from tests.clients.share_workers import ACCEPT, REJECT, ConfluentWorker, JavaWorker, Lent, Worker, configure
from tests.clients.with_confluent import ConfluentClient
from tests.cluster.coordinated import (
    OFFSETS,
    SHARES,
    ask_node,
    coordinated,
    coordinator,
    killed,
    lead_in_turns,
    name_kept_by,
    new_topic,
    place_in_turns,
)
from tests.support.effort import in_long
from tests.support.eventually import eventually, gathered
from tests.support.messages import nested

PATIENCE_S = 60.0
LEASE_S = 15.0
DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 90, 91, 92

NewWorker = Callable[[str, str], Worker]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    # A leader that the controller moves back while a worker commits makes the client refuse what a test counts on.
    config = {"share_record_lock_duration_ms": int(LEASE_S * 1000), "leader_balance": False}
    with coordinated(tmp_path_factory.mktemp("cluster"), **config) as cluster:
        topic = new_topic(cluster)
        produced(cluster, topic, 3)
        group = new_group(cluster, "the-first")
        worker = ConfluentWorker(cluster.bootstrap, topic, group)
        taken(worker, 3)
        worker.close()
        place_in_turns(cluster, OFFSETS, SHARES)
        yield cluster


@pytest.fixture(autouse=True)
def in_turns(cluster: ProcessCluster) -> None:
    lead_in_turns(cluster, OFFSETS, SHARES)


@pytest.fixture(params=["confluent", in_long("java")])
def new_worker(request: pytest.FixtureRequest, cluster: ProcessCluster) -> Iterator[NewWorker]:
    workers: list[Worker] = []
    java = request.getfixturevalue("java") if request.param == "java" else None

    def make(topic: str, group: str) -> Worker:
        if java is not None:
            workers.append(JavaWorker(java, topic, group))
        else:
            workers.append(ConfluentWorker(cluster.bootstrap, topic, group))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def produced(cluster: ProcessCluster, topic: str, count: int, partitions: int = 3) -> None:
    producer = ConfluentClient(cluster.bootstrap)
    for number in range(count):
        producer.produce(topic, [Record(b"%d" % number, partition=number % partitions)], idempotent=True)
    producer.close()


def new_group(cluster: ProcessCluster, name: str, **configs: str) -> str:
    configure(cluster.bootstrap, name, share_auto_offset_reset="earliest", **configs)
    return name


def topic_id(cluster: ProcessCluster, topic: str) -> uuid.UUID:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(60)
    return uuid.UUID(bytes=base64.urlsafe_b64decode(str(described.topic_id) + "=="))


def group_kept_by(cluster: ProcessCluster, topic: str, is_wanted: Callable[[NodeId], bool], **configs: str) -> str:
    """A group whose state of partition 0 is kept by a node that is wanted."""
    partition = PartitionId(topic_id(cluster, topic), 0)

    def found() -> str | None:
        name = f"workers-{uuid.uuid4().hex[:10]}"
        return name if is_wanted(coordinator(cluster, SHARES, f"{name}/{partition}")) else None

    return new_group(cluster, eventually(found, "a name is kept there"), **configs)


def keeper(cluster: ProcessCluster, topic: str, group: str) -> NodeId:
    return coordinator(cluster, SHARES, f"{group}/{PartitionId(topic_id(cluster, topic), 0)}")


def taken(worker: Worker, count: int) -> list[Lent]:
    """Polls and accepts until that many records came. None comes again whose acknowledgement was taken; one that was
    not, because a leader moved just then, may or may not."""
    settled: set[Lent] = set()
    doubtful: set[Lent] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(settled | doubtful) < count or doubtful:
        assert time.monotonic() < deadline, f"{len(settled)} of {count} records came"
        records = worker.poll(0.3)
        assert settled.isdisjoint(records), "what was settled came again"
        worker.acknowledge(records, ACCEPT)
        try:
            if records:
                worker.commit()
        except (KafkaException, RuntimeError):
            doubtful.update(records)
            continue
        settled.update(records)
        doubtful.difference_update(records)
        if not records and len(settled | doubtful) == count and nothing_comes(worker):
            settled |= doubtful
            doubtful.clear()
    return sorted(settled, key=lambda record: (record.partition, record.offset))


def lent(worker: Worker, count: int) -> list[Lent]:
    """One poll with that many records, none of them acknowledged."""
    records = gathered(lambda: worker.poll(0.5), 1)
    assert len(records) == count
    return records


def nothing_comes(worker: Worker, seconds: float = 2.0) -> bool:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if worker.poll(0.2):
            return False
    return True


def values(records: list[Lent]) -> Counter[bytes]:
    return Counter(record.value for record in records)


def lent_by_another_node(
    cluster: ProcessCluster, new_worker: NewWorker, count: int
) -> tuple[str, str, Worker, list[Lent]]:
    """Topic, group, and records that a worker holds, of which another node than the leader keeps the state."""
    topic = new_topic(cluster, 1)
    group = group_kept_by(cluster, topic, lambda node: node != 1)
    produced(cluster, topic, count, partitions=1)
    worker = new_worker(topic, group)
    records = lent(worker, count)
    assert keeper(cluster, topic, group) != cluster.find(f"leader of {topic}-0")
    return topic, group, worker, records


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_leases_outlive_whoever_keeps_the_state(cluster: ProcessCluster, new_worker: NewWorker, how: str) -> None:
    topic, group, worker, records = lent_by_another_node(cluster, new_worker, 10)
    victim = keeper(cluster, topic, group)
    if how == "killed":
        with killed(cluster, victim):
            worker.acknowledge(records, ACCEPT)
            worker.commit()
    else:
        cluster.pause(victim)
        try:
            worker.acknowledge(records, ACCEPT)
            worker.commit()
        finally:
            cluster.resume(victim)
    produced(cluster, topic, 1, partitions=1)
    assert [record.offset for record in taken(worker, 1)] == [10], "what was settled does not come again"


def test_the_next_leader_of_the_partition_knows_what_was_settled(
    cluster: ProcessCluster, new_worker: NewWorker
) -> None:
    topic = new_topic(cluster)
    group = group_kept_by(cluster, topic, lambda node: True)
    produced(cluster, topic, 30)
    worker = new_worker(topic, group)
    first = taken(worker, 30)
    assert values(first) == Counter({b"%d" % number: 1 for number in range(30)})
    for node in cluster.nodes:
        with killed(cluster, node):
            produced(cluster, topic, 6)
            again = taken(worker, 6)
            assert values(again) == Counter({b"%d" % number: 1 for number in range(6)})
    assert nothing_comes(worker)


def test_a_leader_that_was_replaced_changes_nothing(cluster: ProcessCluster) -> None:
    """It is paused while it serves, and wakes when another one has the queue: its leases run out then, and what it
    believes of the queue must not reach the log."""
    topic, group, lost, _ = lent_by_another_node(
        cluster, lambda topic, group: ConfluentWorker(cluster.bootstrap, topic, group), 10
    )
    victim = cluster.find(f"leader of {topic}-0")
    cluster.pause(victim)
    try:
        eventually(lambda: cluster.find(f"leader of {topic}-0") != victim, "another node takes over")
        others = ",".join(cluster.address(node) for node in cluster.nodes if node != victim)
        worker = ConfluentWorker(others, topic, group)
        found = taken(worker, 10)
    finally:
        cluster.resume(victim)
    assert sorted(record.offset for record in found) == list(range(10))
    time.sleep(LEASE_S)
    with killed(cluster, cluster.find(f"leader of {topic}-0")):
        assert nothing_comes(worker), "the next who reads the log finds all of it settled"
    worker.close()
    lost.close()


def dead_letters(cluster: ProcessCluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "undertaker", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = gathered(lambda: [each.value() for each in consumer.consume(100, 0.3) if each.error() is None], count)
        found += [each.value() for each in consumer.consume(100, 2.0) if each.error() is None]
    finally:
        consumer.close()
    return found


def test_dead_letters_land_once_in_a_partition_of_another_node(cluster: ProcessCluster) -> None:
    topic = new_topic(cluster, 1)
    letters = new_topic(cluster, 1, first=2, errors_deadletterqueue_group_enable="true")
    group = group_kept_by(
        cluster, topic, lambda node: True, errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_copy_record_enable="true",
    )  # fmt: skip
    produced(cluster, topic, 6, partitions=1)
    worker = ConfluentWorker(cluster.bootstrap, topic, group)
    records = lent(worker, 6)
    worker.acknowledge(records[:3], REJECT)
    worker.acknowledge(records[3:], ACCEPT)
    worker.commit()
    assert sorted(dead_letters(cluster, letters, 3)) == [b"0", b"1", b"2"]
    produced(cluster, topic, 3, partitions=1)
    records = lent(worker, 3)
    with killed(cluster, cluster.find(f"leader of {letters}-0")):
        worker.acknowledge(records, REJECT)
        try:
            worker.commit()
        except KafkaException:  # that node led the queue, too: what it did not take down is lent again
            worker.acknowledge(lent(worker, 3), REJECT)
            worker.commit()
        assert sorted(dead_letters(cluster, letters, 6)) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    worker.close()


def ask_coordinator(cluster: ProcessCluster, group: str, api_key: int, **fields: object) -> Any:
    return ask_node(cluster, coordinator(cluster, OFFSETS, group), api_key, 0, **fields)


def starts(cluster: ProcessCluster, group: str, topic: str) -> list[int]:
    asked = nested(group_id=group, topics=[nested(topic_name=topic, partitions=[0, 1, 2])])
    (found,) = ask_coordinator(cluster, group, DESCRIBE_OFFSETS, groups=[asked]).groups
    assert found.error_code == 0, found.error_message
    return [each.start_offset for each in found.topics[0].partitions]


def test_the_coordinator_tells_and_changes_where_queues_of_all_nodes_are(cluster: ProcessCluster) -> None:
    topic = new_topic(cluster)
    group = new_group(cluster, name_kept_by(cluster, OFFSETS, lambda node: True, "workers"))
    produced(cluster, topic, 12)
    worker = ConfluentWorker(cluster.bootstrap, topic, group)
    taken(worker, 12)
    worker.close()
    assert starts(cluster, group, topic) == [4, 4, 4]
    moved = [nested(partition_index=index, start_offset=offset) for index, offset in enumerate([1, 2, 99])]
    answer = ask_coordinator(
        cluster, group, ALTER_OFFSETS, group_id=group, topics=[nested(topic_name=topic, partitions=moved)]
    )
    assert [each.error_code for each in answer.responses[0].partitions] == [0, 0, 0]
    assert starts(cluster, group, topic) == [1, 2, 4], "an offset outside the log is moved to its end"
    worker = ConfluentWorker(cluster.bootstrap, topic, group)
    assert Counter(record.partition for record in taken(worker, 5)) == {0: 3, 1: 2}
    worker.close()
    answer = ask_coordinator(cluster, group, DELETE_OFFSETS, group_id=group, topics=[nested(topic_name=topic)])
    assert answer.responses[0].error_code == 0
    assert starts(cluster, group, topic) == [-1, -1, -1]
