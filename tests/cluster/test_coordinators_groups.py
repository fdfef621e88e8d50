"""Consumer groups whose coordinator is killed, and what topics keep for groups that other nodes coordinate."""

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from headwater.testing.processes.cluster import ProcessCluster
from tests.clients.every_client import CLIENTS
from tests.clients.judged import BROKER_ASSIGNS, Client, Member, Record, Refused
from tests.clients.with_confluent import ConfluentClient
from tests.cluster.coordinated import OFFSETS, coordinated, coordinator, killed, name_kept_by, new_topic
from tests.support.effort import in_long
from tests.support.eventually import eventually

PATIENCE_S = 60.0
RETAIN_EVERY_MS = 300
QUIET_S = 6 * RETAIN_EVERY_MS / 1000
"""Enough for each node to look several times what it may drop."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with coordinated(directory, retention_check_interval_ms=RETAIN_EVERY_MS) as cluster:
        commit(cluster, "the first", new_topic(cluster), 0)
        yield cluster


@pytest.fixture
def client(request: pytest.FixtureRequest, cluster: ProcessCluster) -> Iterator[Client]:
    if request.param == "java":
        yield request.getfixturevalue("java")
        return
    found: Client = CLIENTS[request.param](cluster.bootstrap)
    yield found
    found.close()


def commit(cluster: ProcessCluster, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def produced(cluster: ProcessCluster, topic: str, label: str, count: int = 12) -> set[bytes]:
    producer = ConfluentClient(cluster.bootstrap)
    values = [f"{label} {number}".encode() for number in range(count)]
    records = [Record(value, partition=number % 3) for number, value in enumerate(values)]
    producer.produce(topic, records, idempotent=True)
    producer.close()
    return set(values)


def received(member: Member, wanted: set[bytes]) -> Counter[bytes]:
    """Everything that comes until all that is wanted has come."""
    found: Counter[bytes] = Counter()

    def has_all() -> bool:
        found.update(record.value for record in member.poll(0.2) if record.value is not None)
        return wanted <= set(found)

    eventually(has_all, lambda: f"{len(wanted - set(found))} of {len(wanted)} records did not come")
    return found


def commit_all(member: Member) -> None:
    """As a program does it: who is told of a rebalance, or of a coordinator that moves, polls on and commits again."""

    def is_committed() -> bool:
        try:
            member.commit()
        except Refused:
            assert not member.poll(0.2), "nothing new was written"
            return False
        return True

    eventually(is_committed, "the positions are committed")


@pytest.mark.parametrize(
    ("client", "strategy"),
    [
        ("confluent", "range"),
        in_long("confluent", BROKER_ASSIGNS),
        in_long("aiokafka", "range"),
        in_long("java", "range"),
        ("java", BROKER_ASSIGNS),
    ],
    indirect=["client"],
)
def test_a_group_goes_on_from_its_committed_offsets_when_its_coordinator_is_killed(
    cluster: ProcessCluster, client: Client, strategy: str
) -> None:
    topic = new_topic(cluster)
    group = name_kept_by(cluster, OFFSETS, lambda node: True, "group")
    member = client.member(topic, group, strategy)
    before = produced(cluster, topic, "before")
    assert received(member, before) == Counter(before)
    commit_all(member)
    with killed(cluster, coordinator(cluster, OFFSETS, group)):
        meanwhile = produced(cluster, topic, "meanwhile")
        assert received(member, meanwhile) == Counter(meanwhile), "what was committed does not come again"
        commit_all(member)
        member.close()
        after = produced(cluster, topic, "after")
        member = client.member(topic, group, strategy)
        assert received(member, after) == Counter(after)
        member.close()


def log_start(cluster: ProcessCluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "nobody", "log_level": 0})
    try:
        start, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10.0, cached=False)
    finally:
        consumer.close()
    return int(start)


def test_records_wait_for_groups_of_other_coordinators(cluster: ProcessCluster) -> None:
    """The partition is led by node 1; those who read it are coordinated by others, one of which dies."""
    topic = new_topic(cluster, 1, segment_bytes="1024", headwater_retention="consumed")
    fast, slow = (name_kept_by(cluster, OFFSETS, lambda node: node != 1, name) for name in ("fast", "slow"))
    commit(cluster, slow, topic, 0)
    producer = ConfluentClient(cluster.bootstrap)
    for _ in range(20):
        producer.produce(topic, [Record(bytes(300))])
    producer.close()
    commit(cluster, fast, topic, 20)
    time.sleep(QUIET_S)
    assert log_start(cluster, topic) == 0, "one of them has read nothing"
    with killed(cluster, coordinator(cluster, OFFSETS, slow)):
        time.sleep(QUIET_S)
        assert log_start(cluster, topic) == 0, "who cannot be asked may want everything"
        commit(cluster, slow, topic, 20)
        eventually(lambda: log_start(cluster, topic) == 20, "what both have read is dropped")
