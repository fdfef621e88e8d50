"""Deleting records, and where leader epochs end, on a running broker."""

from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka import admin as confluent
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from tests.support.messages import nested
from tests.support.wire import ask

DELETE_RECORDS, LEADER_EPOCH = 21, 23


@pytest.fixture
def librdkafka(headwater: Broker) -> confluent.AdminClient:
    return confluent.AdminClient({"bootstrap.servers": headwater.bootstrap})


def create(librdkafka: confluent.AdminClient, name: str, **config: str) -> None:
    options = {key.replace("_", "."): value for key, value in config.items()}
    librdkafka.create_topics([confluent.NewTopic(name, 1, 1, config=options)])[name].result(60)


def produce(broker: Broker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for number in range(count):
        producer.produce(topic, f"value {number}", key=b"k")
    assert producer.flush(60) == 0


def first_value(broker: Broker, topic: str) -> str:
    """The first record that a reader from offset 0 gets, without a group."""
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 10_000}
    with KafkaConsumer(bootstrap_servers=broker.bootstrap, **options) as consumer:
        consumer.assign([PythonTopicPartition(topic, 0)])
        consumer.seek(PythonTopicPartition(topic, 0), 0)
        value: bytes = next(consumer).value
        return value.decode()


def delete_before(librdkafka: confluent.AdminClient, topic: str, offset: int) -> int:
    until = TopicPartition(topic, 0, offset)
    low: int = librdkafka.delete_records([until])[until].result(60).low_watermark
    return low


def epoch_end(broker: Broker, topic: str, epoch: int, version: int = 4, partition: int = 0, current: int = -1) -> Any:
    asked = [nested(partition=partition, current_leader_epoch=current, leader_epoch=epoch)]
    answer = ask(broker, LEADER_EPOCH, version, replica_id=-1, topics=[nested(topic=topic, partitions=asked)])
    return answer.topics[0].partitions[0]


def test_records_before_an_offset_are_gone_and_stay_gone(headwater: Broker, librdkafka: confluent.AdminClient) -> None:
    create(librdkafka, "t", segment_bytes="1024")
    produce(headwater, "t", 60)
    assert delete_before(librdkafka, "t", 37) == 37
    assert first_value(headwater, "t") == "value 37"
    assert delete_before(librdkafka, "t", 5) == 37
    headwater.restart()
    assert first_value(headwater, "t") == "value 37"


def test_minus_one_deletes_everything_and_the_log_goes_on(headwater: Broker, librdkafka: confluent.AdminClient) -> None:
    create(librdkafka, "t")
    produce(headwater, "t", 10)
    assert delete_before(librdkafka, "t", -1) == 10
    produce(headwater, "t", 1)
    assert first_value(headwater, "t") == "value 0"


def test_an_offset_past_the_end_is_refused_and_nothing_is_deleted(
    headwater: Broker, librdkafka: confluent.AdminClient
) -> None:
    create(librdkafka, "t")
    produce(headwater, "t", 3)
    for offset in (4, 2**62):
        with pytest.raises(KafkaException) as caught:
            delete_before(librdkafka, "t", offset)
        assert caught.value.args[0].code() == ErrorCode.OFFSET_OUT_OF_RANGE
    assert first_value(headwater, "t") == "value 0"


def test_a_topic_that_is_only_compacted_keeps_its_records(headwater: Broker, librdkafka: confluent.AdminClient) -> None:
    create(librdkafka, "t", cleanup_policy="compact")
    produce(headwater, "t", 3)
    with pytest.raises(KafkaException) as caught:
        delete_before(librdkafka, "t", 2)
    assert caught.value.args[0].code() == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_answers_for_partitions_that_are_not_there(headwater: Broker, version: int) -> None:
    asked = [nested(name="absent", partitions=[nested(partition_index=0, offset=1)])]
    (topic,) = ask(headwater, DELETE_RECORDS, version, topics=asked, timeout_ms=1000).topics
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.partitions[0].low_watermark == -1


def test_a_partition_named_twice_keeps_its_records(headwater: Broker, librdkafka: confluent.AdminClient) -> None:
    create(librdkafka, "t")
    produce(headwater, "t", 3)
    asked = [nested(name="t", partitions=[nested(partition_index=0, offset=offset) for offset in (1, 2)])]
    (topic,) = ask(headwater, DELETE_RECORDS, 2, topics=asked, timeout_ms=1000).topics
    assert [partition.error_code for partition in topic.partitions] == [ErrorCode.INVALID_REQUEST] * 2
    assert first_value(headwater, "t") == "value 0"


def test_the_current_epoch_ends_where_the_log_does(headwater: Broker, librdkafka: confluent.AdminClient) -> None:
    create(librdkafka, "t")
    produce(headwater, "t", 4)
    for version in (2, 3, 4):
        found = epoch_end(headwater, "t", 0, version)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, 0, 4)
    unknown = epoch_end(headwater, "t", 99)
    assert (unknown.leader_epoch, unknown.end_offset) == (-1, -1)


def test_an_epoch_that_is_over_ends_where_the_next_began(headwater: Broker, librdkafka: confluent.AdminClient) -> None:
    create(librdkafka, "t")
    produce(headwater, "t", 4)
    headwater.restart()
    produce(headwater, "t", 3)
    ends = {epoch: epoch_end(headwater, "t", epoch) for epoch in (0, 1, 2)}
    assert {epoch: (found.leader_epoch, found.end_offset) for epoch, found in ends.items()} == {
        0: (0, 4),
        1: (1, 7),
        2: (-1, -1),
    }


def test_a_client_that_believes_in_another_leader_is_told(headwater: Broker, librdkafka: confluent.AdminClient) -> None:
    create(librdkafka, "t")
    assert epoch_end(headwater, "t", 0, current=50).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(headwater, "t", 0, partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert epoch_end(headwater, "absent", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
