"""aiokafka: asyncio, with old protocol versions (it opens with ApiVersions 0)."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import BrokerResponseError

from tests.clients.judged import (
    EVERY_ABILITY,
    EVERY_CODEC,
    HEARTBEAT_INTERVAL_MS,
    MAX_REQUEST_BYTES,
    PRODUCE_TIMEOUT_S,
    READ_TIMEOUT_S,
    ClusterView,
    GroupView,
    Received,
    Record,
    Refused,
    session_timeout_ms,
)

T = TypeVar("T")
ASK_TIMEOUT_S = 100.0
STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Loop:
    """An event loop in a thread, so that tests without asyncio can ask an asyncio client."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def ask(self, question: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(question, self._loop).result(ASK_TIMEOUT_S)
        except BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AiokafkaMember:
    def __init__(self, loop: Loop, consumer: AIOKafkaConsumer, topic: str) -> None:
        self._loop = loop
        self._consumer = consumer
        consumer.subscribe([topic])

    def poll(self, timeout_s: float) -> list[Received]:
        found = self._loop.ask(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [_received(record) for records in found.values() for record in records]

    def assigned(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._loop.ask(self._consumer.commit())

    def close(self) -> None:
        self._loop.ask(self._consumer.stop())


class AiokafkaClient:
    name = "aiokafka"
    abilities = EVERY_ABILITY - {"cooperative", "groups", "logs", "invalid-record"}
    codecs = EVERY_CODEC

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = Loop()
        self._admin = self._loop.ask(self._start_admin())
        self._producers: dict[tuple[str, str, bool], AIOKafkaProducer] = {}

    def close(self) -> None:
        for producer in self._producers.values():
            self._loop.ask(producer.stop())
        self._loop.ask(self._admin.close())
        self._loop.close()

    def produce(
        self, topic: str, records: Sequence[Record], acks: str = "all", codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        return self._loop.ask(self._produce(topic, records, (acks, codec, idempotent)))

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Received]:
        return self._loop.ask(self._read(TopicPartition(topic, partition), offset, count))

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        async def ask(consumer: AIOKafkaConsumer, wanted: TopicPartition) -> tuple[int, int]:
            low = await consumer.beginning_offsets([wanted])
            high = await consumer.end_offsets([wanted])
            return low[wanted], high[wanted]

        return self._loop.ask(self._with_consumer(ask, TopicPartition(topic, partition)))

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        async def ask(consumer: AIOKafkaConsumer, wanted: TopicPartition) -> int | None:
            found = (await consumer.offsets_for_times({wanted: timestamp_ms}))[wanted]
            return None if found is None else int(found.offset)

        return self._loop.ask(self._with_consumer(ask, TopicPartition(topic, partition)))

    def member(self, topic: str, group: str, strategy: str = "range", instance_id: str | None = None) -> AiokafkaMember:
        async def start() -> AIOKafkaConsumer:
            consumer = self._consumer(
                group_id=group,
                auto_offset_reset="earliest",
                partition_assignment_strategy=(STRATEGIES[strategy],),
                group_instance_id=instance_id,
                session_timeout_ms=session_timeout_ms(instance_id),
            )
            await consumer.start()
            return consumer

        return AiokafkaMember(self._loop, self._loop.ask(start()), topic)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(config or {}))
        _check(self._loop.ask(self._admin.create_topics([new])).topic_errors)

    def delete_topic(self, topic: str) -> None:
        _check(self._loop.ask(self._admin.delete_topics([topic])).topic_error_codes)

    def topics(self) -> dict[str, int]:
        found = self._loop.ask(self._admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in found}

    def add_partitions(self, topic: str, total: int) -> None:
        _check(self._loop.ask(self._admin.create_partitions({topic: NewPartitions(total)})).topic_errors)

    def topic_config(self, topic: str) -> dict[str, str]:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic)
        [answer] = self._loop.ask(self._admin.describe_configs([wanted]))
        [(code, message, _, _, entries)] = answer.resources
        if code:
            raise Refused(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})
        [answer] = self._loop.ask(self._admin.alter_configs([wanted]))
        [(code, message, *_)] = answer.resources
        if code:
            raise Refused(code, message)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        wanted = TopicPartition(topic, partition)
        left: dict[TopicPartition, int] = self._loop.ask(
            self._admin.delete_records({wanted: RecordsToDelete(before_offset)})
        )
        return left[wanted]

    def groups(self) -> set[str]:
        return {listing[0] for listing in self._loop.ask(self._admin.list_consumer_groups())}

    def group(self, group: str) -> GroupView:
        [answer] = self._loop.ask(self._admin.describe_consumer_groups([group]))
        [found] = answer.groups
        return GroupView(found[2].upper(), len(found[5]))

    def delete_group(self, group: str) -> None:
        raise NotImplementedError

    def cluster(self) -> ClusterView:
        found = self._loop.ask(self._admin.describe_cluster())
        return ClusterView(
            cluster_id=found["cluster_id"], brokers=tuple(f"{node['host']}:{node['port']}" for node in found["brokers"])
        )

    def log_sizes(self) -> dict[str, int]:
        raise NotImplementedError

    async def _start_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        return admin

    async def _produce(self, topic: str, records: Sequence[Record], kind: tuple[str, str, bool]) -> list[int]:
        producer = self._producers.get(kind)
        if producer is None:
            acks, codec, idempotent = kind
            producer = self._producers[kind] = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all" if acks == "all" else int(acks),
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                max_request_size=MAX_REQUEST_BYTES,
                linger_ms=5,
            )
            await producer.start()
        futures = [
            await producer.send(
                topic,
                record.value,
                record.key,
                record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            for record in records
        ]
        answers = await asyncio.wait_for(asyncio.gather(*futures), PRODUCE_TIMEOUT_S)
        return [-1 if answer is None else int(answer.offset) for answer in answers]

    async def _read(self, wanted: TopicPartition, offset: int, count: int) -> list[Received]:
        consumer = self._consumer(auto_offset_reset="none")
        await consumer.start()
        try:
            consumer.assign([wanted])
            consumer.seek(wanted, offset)
            received: list[Received] = []
            deadline_s = time.monotonic() + READ_TIMEOUT_S
            while len(received) < count and time.monotonic() < deadline_s:
                found = await consumer.getmany(timeout_ms=200, max_records=count - len(received))
                received += [_received(record) for record in found.get(wanted, [])]
            return received
        finally:
            await consumer.stop()

    async def _with_consumer(
        self, ask: Callable[[AIOKafkaConsumer, TopicPartition], Awaitable[T]], wanted: TopicPartition
    ) -> T:
        consumer = self._consumer()
        await consumer.start()
        try:
            return await ask(consumer, wanted)
        finally:
            await consumer.stop()

    def _consumer(self, **extra: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            fetch_max_wait_ms=100,
            **extra,
        )


def _check(answers: Sequence[tuple[Any, ...]]) -> None:
    for _, code, *message in answers:
        if code:
            raise Refused(code, str(message))


def _received(record: Any) -> Received:
    return Received(
        record.partition, record.offset, record.key, record.value, tuple(record.headers or ()), record.timestamp
    )
