"""confluent-kafka: librdkafka from Python."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.clients.judged import (
    ADMIN_TIMEOUT_S,
    BROKER_ASSIGNS,
    EVERY_ABILITY,
    EVERY_CODEC,
    HEARTBEAT_INTERVAL_MS,
    MAX_REQUEST_BYTES,
    PRODUCE_TIMEOUT_S,
    READ_TIMEOUT_S,
    ClusterView,
    ErrorCode,
    GroupView,
    Received,
    Record,
    Refused,
    session_timeout_ms,
)


class ConfluentMember:
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> list[Received]:
        messages = self._consumer.consume(500, timeout_s)
        return [_received(message) for message in messages if not message.error()]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class ConfluentClient:
    name = "confluent"
    abilities = EVERY_ABILITY - {"logs"}
    codecs = EVERY_CODEC

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producers: dict[tuple[str, str, bool], Producer] = {}

    def close(self) -> None:
        self._producers.clear()
        del self._admin

    def produce(
        self, topic: str, records: Sequence[Record], acks: str = "all", codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        producer = self._producer(acks, codec, idempotent)
        offsets: list[int | Refused] = [Refused(ErrorCode.INVALID_RECORD, "never delivered")] * len(records)

        def on_delivery(index: int, error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            offsets[index] = _refused(error) if error else (-1 if offset is None else offset)

        for index, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                lambda error, message, index=index: on_delivery(index, error, message),
                timestamp=record.timestamp_ms or 0,
                headers=list(record.headers),
            )
        assert producer.flush(PRODUCE_TIMEOUT_S) == 0, "every record is answered in time"
        for offset in offsets:
            if isinstance(offset, Refused):
                raise offset
        return [offset for offset in offsets if isinstance(offset, int)]

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Received]:
        consumer = self._consumer(group="reader", **{"auto.offset.reset": "error"})
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            received: list[Received] = []
            deadline_s = time.monotonic() + READ_TIMEOUT_S
            while len(received) < count and time.monotonic() < deadline_s:
                for message in consumer.consume(count - len(received), 0.2):
                    if error := message.error():
                        raise _refused(error)
                    received.append(_received(message))
            return received
        finally:
            consumer.close()

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer(group="reader")
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), ADMIN_TIMEOUT_S)
            return low, high
        except KafkaException as error:
            raise _refused(error.args[0]) from error
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer(group="reader")
        try:
            wanted = [TopicPartition(topic, partition, timestamp_ms)]
            [found] = consumer.offsets_for_times(wanted, ADMIN_TIMEOUT_S)
            offset: int = found.offset
            return offset if offset >= 0 else None
        finally:
            consumer.close()

    def member(
        self, topic: str, group: str, strategy: str = "range", instance_id: str | None = None
    ) -> ConfluentMember:
        extra: dict[str, Any] = {"auto.offset.reset": "earliest"}
        if strategy == BROKER_ASSIGNS:
            extra |= {"group.protocol": "consumer", "group.remote.assignor": strategy}
        else:
            extra |= {
                "partition.assignment.strategy": strategy,
                "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
                "session.timeout.ms": session_timeout_ms(instance_id),
            }
        if instance_id is not None:
            extra["group.instance.id"] = instance_id
        return ConfluentMember(self._consumer(group, **extra), topic)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        _settle(self._admin.create_topics([new])[topic])

    def delete_topic(self, topic: str) -> None:
        _settle(self._admin.delete_topics([topic])[topic])

    def topics(self) -> dict[str, int]:
        found = self._admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
        return {name: len(metadata.partitions) for name, metadata in found.items()}

    def add_partitions(self, topic: str, total: int) -> None:
        _settle(self._admin.create_partitions([NewPartitions(topic, total)])[topic])

    def topic_config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = _settle(self._admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in entries.items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        _settle(self._admin.incremental_alter_configs([resource])[resource])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        until = TopicPartition(topic, partition, before_offset)
        low: int = _settle(self._admin.delete_records([until])[until]).low_watermark
        return low

    def groups(self) -> set[str]:
        found = _settle(self._admin.list_consumer_groups())
        return {listing.group_id for listing in found.valid}

    def group(self, group: str) -> GroupView:
        found = _settle(self._admin.describe_consumer_groups([group])[group])
        return GroupView(found.state.name, len(found.members))

    def delete_group(self, group: str) -> None:
        _settle(self._admin.delete_consumer_groups([group])[group])

    def cluster(self) -> ClusterView:
        found = _settle(self._admin.describe_cluster())
        return ClusterView(
            cluster_id=found.cluster_id, brokers=tuple(f"{node.host}:{node.port}" for node in found.nodes)
        )

    def log_sizes(self) -> dict[str, int]:
        raise NotImplementedError

    def _producer(self, acks: str, codec: str, idempotent: bool) -> Producer:
        kind = (acks, codec, idempotent)
        if kind not in self._producers:
            self._producers[kind] = Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "acks": acks,
                    "compression.type": codec,
                    "enable.idempotence": idempotent,
                    "message.max.bytes": MAX_REQUEST_BYTES,
                    "linger.ms": 5,
                    "message.timeout.ms": int(PRODUCE_TIMEOUT_S * 1000),
                }
            )
        return self._producers[kind]

    def _consumer(self, group: str, **extra: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                **extra,
            }
        )


def _settle(future: "Future[Any]") -> Any:
    try:
        return future.result(ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise _refused(error.args[0]) from error


def _refused(error: KafkaError) -> Refused:
    if error.code() == KafkaError._AUTO_OFFSET_RESET and "out of range" in error.str():
        return Refused(ErrorCode.OFFSET_OUT_OF_RANGE, error.str())
    return Refused(error.code(), error.str())


def _received(message: Message) -> Received:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return Received(partition, offset, key, value, tuple(message.headers() or ()), message.timestamp()[1])
