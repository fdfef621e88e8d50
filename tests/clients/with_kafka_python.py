"""kafka-python 3: a client in pure Python, with a codec of its own."""

import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.clients.judged import (
    ADMIN_TIMEOUT_S,
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
from tests.support.eventually import eventually

STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


POLL_MS = 700


class KafkaPythonMember:
    """A consumer in a thread of its own, as programs use it: kafka-python rebalances only inside poll(), and loses an
    assignment that arrives in the moment in which poll() gives up (with Apache Kafka too), so polls are long."""

    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        self._received: queue.Queue[Received] = queue.Queue()
        self._calls: queue.Queue[tuple[Callable[[], None], Future[None]]] = queue.Queue()
        self._is_closed = False
        consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def poll(self, timeout_s: float) -> list[Received]:
        received: list[Received] = []
        try:
            received.append(self._received.get(timeout=timeout_s))
            while True:
                received.append(self._received.get_nowait())
        except queue.Empty:
            return received

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        done: Future[None] = Future()
        self._calls.put((self._consumer.commit, done))
        done.result(ADMIN_TIMEOUT_S)

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()
        self._consumer.close(autocommit=False)

    def _run(self) -> None:
        while not self._is_closed:
            for records in _asked(partial(self._consumer.poll, timeout_ms=POLL_MS)).values():
                for record in records:
                    self._received.put(_received(record))
            while not self._calls.empty():
                call, done = self._calls.get()
                try:
                    done.set_result(call())
                except Exception as error:
                    done.set_exception(error)


class KafkaPythonClient:
    name = "kafka-python"
    abilities = EVERY_ABILITY
    codecs = EVERY_CODEC

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._producers: dict[tuple[str, str, bool], KafkaProducer] = {}

    def close(self) -> None:
        self._admin.close()
        for producer in self._producers.values():
            producer.close(timeout=1)

    def produce(
        self, topic: str, records: Sequence[Record], acks: str = "all", codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        producer = self._producer(acks, codec, idempotent)
        futures = [
            producer.send(topic, record.value, record.key, list(record.headers), record.partition, record.timestamp_ms)
            for record in records
        ]
        return [int(_asked(partial(future.get, timeout=PRODUCE_TIMEOUT_S)).offset) for future in futures]

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Received]:
        consumer = self._consumer(None, auto_offset_reset="none")
        try:
            wanted = TopicPartition(topic, partition)
            consumer.assign([wanted])
            consumer.seek(wanted, offset)
            received: list[Received] = []
            deadline_s = time.monotonic() + READ_TIMEOUT_S
            while (missing := count - len(received)) > 0 and time.monotonic() < deadline_s:
                found = _asked(partial(consumer.poll, timeout_ms=200, max_records=missing))
                received += [_received(record) for record in found.get(wanted, [])]
            return received
        finally:
            consumer.close(autocommit=False)

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer(None)
        try:
            wanted = TopicPartition(topic, partition)
            low, high = consumer.beginning_offsets([wanted])[wanted], consumer.end_offsets([wanted])[wanted]
            return low, high
        finally:
            consumer.close(autocommit=False)

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer(None)
        try:
            wanted = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({wanted: timestamp_ms})[wanted]
            return None if found is None else int(found.offset)
        finally:
            consumer.close(autocommit=False)

    def member(
        self, topic: str, group: str, strategy: str = "range", instance_id: str | None = None
    ) -> KafkaPythonMember:
        consumer = self._consumer(
            group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[STRATEGIES[strategy]],
            group_instance_id=instance_id,
            session_timeout_ms=session_timeout_ms(instance_id),
        )
        return KafkaPythonMember(consumer, topic)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(config or {}))
        _asked(lambda: self._admin.create_topics([new]))

    def delete_topic(self, topic: str) -> None:
        _asked(lambda: self._admin.delete_topics([topic]))

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in _asked(self._admin.describe_topics)}

    def add_partitions(self, topic: str, total: int) -> None:
        _asked(lambda: self._admin.create_partitions({topic: NewPartitions(total)}))

    def topic_config(self, topic: str) -> dict[str, str]:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = _asked(lambda: self._admin.describe_configs([wanted], config_filter="all"))
        if not found["topic"][topic]:  # how kafka-python shows a refusal
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})
        answer = _asked(lambda: self._admin.alter_configs([wanted]))["topic"][topic]
        if refusal := re.match(r"\[Error (\d+)\]", answer):
            raise Refused(int(refusal[1]), answer)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        wanted = TopicPartition(topic, partition)
        found = _asked(lambda: self._admin.delete_records({wanted: before_offset}))
        return int(found[wanted]["low_watermark"])

    def groups(self) -> set[str]:
        return {listing["group_id"] for listing in _asked(self._admin.list_groups)}

    def group(self, group: str) -> GroupView:
        found = _asked(lambda: self._admin.describe_groups([group]))[group]
        return GroupView(found["group_state"].upper(), len(found["members"]))

    def delete_group(self, group: str) -> None:
        answer = _asked(lambda: self._admin.delete_groups([group]))[group]
        if answer != "OK":
            raise Refused(getattr(errors, answer).errno, answer)

    def cluster(self) -> ClusterView:
        found = _asked(self._admin.describe_cluster)
        return ClusterView(
            cluster_id=found["cluster_id"], brokers=tuple(f"{node['host']}:{node['port']}" for node in found["brokers"])
        )

    def log_sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for broker in _asked(self._admin.describe_log_dirs):
            for topic in (topic for log_dir in broker["log_dirs"] for topic in log_dir["topics"]):
                size_bytes = sum(partition["partition_size"] for partition in topic["partitions"])
                sizes[topic["name"]] = sizes.get(topic["name"], 0) + size_bytes
        return sizes

    def _producer(self, acks: str, codec: str, idempotent: bool) -> KafkaProducer:
        kind = (acks, codec, idempotent)
        if kind not in self._producers:
            self._producers[kind] = KafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all" if acks == "all" else int(acks),
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                max_request_size=MAX_REQUEST_BYTES,
                linger_ms=5,
            )
        return self._producers[kind]

    def _consumer(self, group: str | None, **extra: Any) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            fetch_max_wait_ms=100,
            **extra,
        )


def _asked(question: Callable[[], Any]) -> Any:
    """Ask, and again while the client itself waits before it connects to a restarted broker."""

    def answer() -> tuple[Any] | None:
        try:
            return (question(),)
        except errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error
        except (errors.NodeNotReadyError, errors.KafkaConnectionError):
            return None

    return eventually(answer, "the client has connected", patience_s=ADMIN_TIMEOUT_S)[0]


def _received(record: Any) -> Received:
    return Received(
        record.partition, record.offset, record.key, record.value, tuple(record.headers or ()), record.timestamp
    )
