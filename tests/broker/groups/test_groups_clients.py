"""Groups as real clients live them: join, leave, die, come back, and go on where they were."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.testing.broker import Broker
from tests.broker.groups.group_readers import READERS, AiokafkaReader, ConfluentReader, KafkaPythonReader, until_shared
from tests.support.eventually import eventually

pytestmark = pytest.mark.clients

PARTITIONS = 4
QUICK: dict[str, Any] = {"group_min_session_timeout_ms": 500}

LONELY_READER = """
import sys
sys.path.insert(0, {folder!r})
from tests.broker.groups.group_readers import ConfluentReader
from tests.support.eventually import eventually
reader = ConfluentReader({bootstrap!r}, {topic!r}, {group!r})
eventually(lambda: bool(reader.assigned))
print("assigned", flush=True)
reader._thread.join()
"""


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    with Broker(**QUICK) as broker:
        yield broker


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker(**QUICK) as broker:
        yield broker


def new_topic(broker: Broker) -> str:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(broker, topic)
    return topic


def create_topic(broker: Broker, topic: str) -> None:
    client = admin(broker)
    client.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def feed(broker: Broker, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def committed(broker: Broker, group: str) -> dict[int, int]:
    client = admin(broker)
    (future,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {each.partition: each.offset for each in future.result(60).topic_partitions}


@pytest.mark.parametrize("client", READERS)
def test_a_second_member_takes_a_share_and_gives_it_back(shared_broker: Broker, client: str) -> None:
    topic, group, make = new_topic(shared_broker), new_group(), READERS[client]
    first = make(shared_broker.bootstrap, topic, group)
    until_shared(PARTITIONS, first)
    second = make(shared_broker.bootstrap, topic, group)
    until_shared(PARTITIONS, first, second)
    feed(shared_broker, topic, 0, 40)
    eventually(lambda: len(set(first.values + second.values)) == 40)
    assert len(first.values) == len(second.values) == 20
    second.stop()
    until_shared(PARTITIONS, first)
    first.stop()


def test_clients_of_three_makes_share_one_group(shared_broker: Broker) -> None:
    topic, group = new_topic(shared_broker), new_group()
    kafka_python = KafkaPythonReader(shared_broker.bootstrap, topic, group)
    until_shared(PARTITIONS, kafka_python)
    # The one strategy that all three offer: the others must be found out by the vote.
    strategies = {"partition.assignment.strategy": "range,roundrobin"}
    confluent = ConfluentReader(shared_broker.bootstrap, topic, group, **strategies)
    aiokafka = AiokafkaReader(shared_broker.bootstrap, topic, group)
    until_shared(PARTITIONS, kafka_python, confluent, aiokafka)
    for reader in (kafka_python, confluent, aiokafka):
        reader.stop()


def test_the_share_of_a_killed_member_goes_to_the_others_when_its_session_ends(shared_broker: Broker) -> None:
    topic, group = new_topic(shared_broker), new_group()
    survivor = ConfluentReader(shared_broker.bootstrap, topic, group)
    until_shared(PARTITIONS, survivor)
    folder = str(Path(__file__).parents[3])
    script = LONELY_READER.format(folder=folder, bootstrap=shared_broker.bootstrap, topic=topic, group=group)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"assigned\n"
        eventually(lambda: len(survivor.assigned) == PARTITIONS // 2)
        victim.kill()
    until_shared(PARTITIONS, survivor)
    survivor.stop()


def test_a_cooperative_rebalance_takes_only_what_moves(shared_broker: Broker) -> None:
    topic, group = new_topic(shared_broker), new_group()
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    first = ConfluentReader(shared_broker.bootstrap, topic, group, **cooperative)
    until_shared(PARTITIONS, first)
    second = ConfluentReader(shared_broker.bootstrap, topic, group, **cooperative)
    until_shared(PARTITIONS, first, second)
    assert [len(lost) for lost in first.lost if lost] == [PARTITIONS // 2]
    second.stop()
    until_shared(PARTITIONS, first)
    first.stop()


def test_a_static_member_that_restarts_does_not_disturb_the_others(shared_broker: Broker) -> None:
    topic, group = new_topic(shared_broker), new_group()
    steady = ConfluentReader(shared_broker.bootstrap, topic, group, **{"group.instance.id": "steady"})
    restarting = ConfluentReader(shared_broker.bootstrap, topic, group, **{"group.instance.id": "restarting"})
    until_shared(PARTITIONS, steady, restarting)
    rebalances, share = len(steady.gained), set(restarting.assigned)
    restarting.stop()
    again = ConfluentReader(shared_broker.bootstrap, topic, group, **{"group.instance.id": "restarting"})
    until_shared(PARTITIONS, steady, again)
    assert again.assigned == share
    assert len(steady.gained) == rebalances
    again.stop()
    until_shared(PARTITIONS, steady)
    steady.stop()


def test_a_second_member_with_the_same_instance_id_fences_the_first(shared_broker: Broker) -> None:
    topic, group = new_topic(shared_broker), new_group()
    first = ConfluentReader(shared_broker.bootstrap, topic, group, **{"group.instance.id": "same"})
    until_shared(PARTITIONS, first)
    second = ConfluentReader(shared_broker.bootstrap, topic, group, **{"group.instance.id": "same"})
    eventually(lambda: first.error is not None)
    assert isinstance(first.error, KafkaException)
    assert first.error.args[0].code() == KafkaError._FATAL
    until_shared(PARTITIONS, second)
    second.stop()


@pytest.mark.parametrize("client", READERS)
def test_a_group_resumes_where_it_was_after_the_broker_restarted(own_broker: Broker, client: str) -> None:
    topic, group, make = new_topic(own_broker), new_group(), READERS[client]
    feed(own_broker, topic, 0, 40)
    before = make(own_broker.bootstrap, topic, group)
    eventually(lambda: len(before.values) == 40)
    before.stop()
    assert committed(own_broker, group) == dict.fromkeys(range(PARTITIONS), 10)
    own_broker.restart()
    assert committed(own_broker, group) == dict.fromkeys(range(PARTITIONS), 10)
    feed(own_broker, topic, 40, 8)
    after = make(own_broker.bootstrap, topic, group)
    eventually(lambda: len(after.values) == 8)
    assert sorted(map(int, after.values)) == list(range(40, 48))
    after.stop()


def test_an_acknowledged_commit_survives_kill_9() -> None:
    with Broker(subprocess=True, **QUICK) as broker:
        topic, group = new_topic(broker), new_group()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
        for offset in range(1, 6):
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        broker.kill()
        broker.restart()
        assert committed(broker, group) == {0: 5}
        consumer.close()


def test_members_live_through_a_restart_of_the_broker_without_a_rebalance(own_broker: Broker) -> None:
    topic, group = new_topic(own_broker), new_group()
    patient = {"session.timeout.ms": 10_000}
    readers = [ConfluentReader(own_broker.bootstrap, topic, group, **patient) for _ in range(2)]
    until_shared(PARTITIONS, *readers)
    rebalances = [len(reader.gained) for reader in readers]
    own_broker.restart()
    feed(own_broker, topic, 0, 40)
    eventually(lambda: len({value for reader in readers for value in reader.values}) == 40)
    assert [len(reader.gained) for reader in readers] == rebalances
    for reader in readers:
        reader.stop()


def test_members_that_come_back_as_others_do_not_wait_for_sessions_of_before_the_restart(own_broker: Broker) -> None:
    """Programs that ended while the broker was away could not leave. Their sessions are longer than this test waits."""
    topic, group = new_topic(own_broker), new_group()
    options = {"session.timeout.ms": 300_000, "partition.assignment.strategy": "cooperative-sticky"}
    before = [ConfluentReader(own_broker.bootstrap, topic, group, **options) for _ in range(2)]
    until_shared(PARTITIONS, *before)
    own_broker.stop()
    for reader in before:
        reader.stop()
    own_broker.start()
    after = [ConfluentReader(own_broker.bootstrap, topic, group, **options) for _ in range(2)]
    until_shared(PARTITIONS, *after)
    for reader in after:
        reader.stop()


def test_administrators_list_describe_move_and_delete_groups(shared_broker: Broker) -> None:
    topic, group = new_topic(shared_broker), new_group()
    client = admin(shared_broker)
    reader = ConfluentReader(shared_broker.bootstrap, topic, group)
    until_shared(PARTITIONS, reader)
    described = client.describe_consumer_groups([group])[group].result(60)
    assert described.state.name == "STABLE" and len(described.members) == 1
    assert {each.partition for each in described.members[0].assignment.topic_partitions} == {0, 1, 2, 3}
    with pytest.raises(KafkaException) as refused:
        client.delete_consumer_groups([group])[group].result(60)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    reader.stop()
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    client.alter_consumer_group_offsets([moved])[group].result(60)
    assert committed(shared_broker, group)[0] == 7
    listed = client.list_consumer_groups().result(60).valid
    assert group in {each.group_id for each in listed if each.state.name == "EMPTY"}
    client.delete_consumer_groups([group])[group].result(60)
    assert group not in {each.group_id for each in client.list_consumer_groups().result(60).valid}


def test_a_topic_that_is_deleted_and_made_again_is_read_from_its_start(shared_broker: Broker) -> None:
    topic, group = new_topic(shared_broker), new_group()
    feed(shared_broker, topic, 0, 8)
    before = ConfluentReader(shared_broker.bootstrap, topic, group)
    eventually(lambda: len(before.values) == 8)
    before.stop()
    client = admin(shared_broker)
    client.delete_topics([topic])[topic].result(60)
    assert committed(shared_broker, group) == {}
    create_topic(shared_broker, topic)
    feed(shared_broker, topic, 100, 4)
    after = ConfluentReader(shared_broker.bootstrap, topic, group)
    eventually(lambda: len(after.values) == 4)
    after.stop()
