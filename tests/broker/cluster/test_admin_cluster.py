"""The cluster, its disks, leaders and partitions as admin clients ask for them."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, Producer, TopicPartition
from confluent_kafka import admin as confluent
from kafka import KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import KafkaAdminClient

from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from tests.support.messages import nested
from tests.support.wire import ask

LOG_DIRS, ELECT, CLUSTER, PRODUCERS, PARTITIONS = 35, 43, 60, 61, 75


@pytest.fixture
def admin(headwater: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=headwater.bootstrap)
    yield client
    client.close()


@pytest.fixture
def librdkafka(headwater: Broker) -> confluent.AdminClient:
    return confluent.AdminClient({"bootstrap.servers": headwater.bootstrap})


def create(librdkafka: confluent.AdminClient, name: str, partitions: int = 1) -> None:
    librdkafka.create_topics([confluent.NewTopic(name, partitions, 1)])[name].result(60)


def produce(broker: Broker, topic: str, count: int, partition: int = 0, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **config})
    for number in range(count):
        producer.produce(topic, f"value {number}", partition=partition)
    assert producer.flush(60) == 0


def test_the_cluster_is_one_broker_that_controls_itself(
    headwater: Broker, admin: KafkaAdminClient, librdkafka: confluent.AdminClient
) -> None:
    found = admin.describe_cluster()
    assert found["controller_id"] == 1
    assert [(node["broker_id"], node["host"], node["port"]) for node in found["brokers"]] == [
        (1, headwater.host, headwater.port)
    ]
    cluster = librdkafka.describe_cluster().result(60)
    assert cluster.cluster_id == found["cluster_id"]
    assert cluster.controller.id == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_the_cluster_names_its_brokers(headwater: Broker, version: int) -> None:
    answer = ask(headwater, CLUSTER, version, include_cluster_authorized_operations=True, endpoint_type=1)
    assert (answer.error_code, len(answer.brokers)) == (ErrorCode.NONE, 1)
    assert answer.cluster_authorized_operations > 0


def test_a_broker_is_not_a_controllers_endpoint(headwater: Broker) -> None:
    for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (5, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        assert ask(headwater, CLUSTER, 2, endpoint_type=kind).error_code == code


def test_the_log_directory_shows_what_each_partition_takes(
    headwater: Broker, admin: KafkaAdminClient, librdkafka: confluent.AdminClient
) -> None:
    create(librdkafka, "t", 2)
    produce(headwater, "t", 100, partition=1)
    answer = ask(
        headwater, LOG_DIRS, 4, topics=[nested(topic="t", partitions=[0, 1, 7]), nested(topic="no", partitions=[0])]
    )
    (result,) = answer.results
    assert result.log_dir == str(headwater.data_dir.resolve())
    assert result.total_bytes >= result.usable_bytes > 0
    (topic,) = result.topics
    sizes = {partition.partition_index: partition.partition_size for partition in topic.partitions}
    assert sizes.keys() == {0, 1}
    assert sizes[0] == 0
    assert sizes[1] > 500
    (by_python,) = admin.describe_log_dirs()
    assert "t" in str(by_python)
    for version in (1, 2, 3, 4):
        assert ask(headwater, LOG_DIRS, version, topics=None).results[0].error_code == ErrorCode.NONE


def test_no_election_is_ever_needed(headwater: Broker, librdkafka: confluent.AdminClient) -> None:
    create(librdkafka, "t")
    asked = [TopicPartition("t", 0), TopicPartition("t", 9)]
    outcome = librdkafka.elect_leaders(ElectionType.PREFERRED, asked).result(60)
    codes = {partition.partition: error.code() for partition, error in outcome.items()}
    assert codes == {0: KafkaError.ELECTION_NOT_NEEDED, 9: KafkaError.UNKNOWN_TOPIC_OR_PART}
    for version in (0, 1, 2):
        answer = ask(headwater, ELECT, version, election_type=0, topic_partitions=None, timeout_ms=1000)
        assert answer.replica_election_results == []
    assert ask(headwater, ELECT, 2, election_type=5, topic_partitions=None, timeout_ms=1).error_code == (
        ErrorCode.INVALID_REQUEST
    )


def pages(broker: Broker, names: list[str], limit: int) -> list[list[tuple[str, int]]]:
    """What each page of a description holds, followed cursor by cursor."""
    cursor, found = None, []
    while True:
        asked = [nested(name=name) for name in names]
        answer = ask(broker, PARTITIONS, 0, topics=asked, response_partition_limit=limit, cursor=cursor)
        found.append(
            [(topic.name, partition.partition_index) for topic in answer.topics for partition in topic.partitions]
        )
        if answer.next_cursor is None:
            return found
        cursor = answer.next_cursor
        assert len(found) < 50


def test_partitions_are_described_a_page_at_a_time(
    headwater: Broker, admin: KafkaAdminClient, librdkafka: confluent.AdminClient
) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        create(librdkafka, name, count)
    everything = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert pages(headwater, ["c", "b", "a"], 2000) == [everything]
    for limit in (1, 2, 3, 4, 5):
        split = pages(headwater, ["a", "b", "c"], limit)
        assert [entry for page in split for entry in page] == everything
        assert all(len(page) <= limit for page in split)
    assert [entry for page in pages(headwater, ["a", "b", "c"], 0) for entry in page] == everything
    first = admin.describe_topic_partitions(["a"])["topics"][0]
    assert [partition["leader_id"] for partition in first["partitions"]] == [1, 1]
    assert ask(headwater, PARTITIONS, 0, topics=[], response_partition_limit=100, cursor=None).topics


def test_an_unknown_topic_is_described_as_an_error_between_the_others(
    headwater: Broker, librdkafka: confluent.AdminClient
) -> None:
    create(librdkafka, "a")
    create(librdkafka, "c")
    asked = [nested(name=name) for name in ("a", "b", "c", "not valid")]
    answer = ask(headwater, PARTITIONS, 0, topics=asked, response_partition_limit=100, cursor=None)
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "c": ErrorCode.NONE,
        "not valid": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_an_idempotent_producer_is_shown_with_its_last_sequence(
    headwater: Broker, admin: KafkaAdminClient, librdkafka: confluent.AdminClient
) -> None:
    create(librdkafka, "t")
    with KafkaProducer(bootstrap_servers=headwater.bootstrap, enable_idempotence=True) as producer:
        for _ in range(3):
            producer.send("t", b"x").get(10)
    partition = PythonTopicPartition("t", 0)
    (state,) = admin.describe_producers([partition])[partition].active_producers
    assert state.last_sequence == 2
    answer = ask(headwater, PRODUCERS, 0, topics=[nested(name="t", partition_indexes=[5, 0, 0])])
    assert [partition.error_code for partition in answer.topics[0].partitions] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
