"""Clients that others wrote, with exactly the rights that they need, and with one right less: then they say which."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer, TopicPartition

from headwater.security.access_codes import Operation, PatternType, ResourceType
from headwater.wire.api_keys import ApiKey
from tests.support.eventually import eventually
from tests.support.guarded import PASSWORD, Guarded, guarded_broker

TOPIC, GROUP, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TIMEOUT_S = 60.0
GROUP_CONFIG = 32


@pytest.fixture(scope="module")
def shared_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    quick: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "group_consumer_heartbeat_interval_ms": 100}
    with guarded_broker(tmp_path_factory.mktemp("guarded"), **quick) as guarded:
        yield guarded


class Scene:
    def __init__(self, guarded: Guarded) -> None:
        self.guarded = guarded
        self.mark = uuid.uuid4().hex
        self.topic, self.secret = f"known-{self.mark}", f"secret-{self.mark}"
        self.group, self.id = f"group-{self.mark}", f"id-{self.mark}"
        guarded.create(self.topic, self.secret)
        for topic in (self.topic, self.secret):
            guarded.write(topic, topic.encode())
        self.librdkafka = {**guarded.librdkafka(), "log_level": 0}
        self.python: dict[str, Any] = {
            "bootstrap_servers": self.librdkafka["bootstrap.servers"],
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
        }

    def reads(self) -> dict[str, Any]:
        """For a consumer of kafka-python or aiokafka."""
        return {**self.python, "group_id": self.group, "auto_offset_reset": "earliest", "enable_auto_commit": False}

    def may_read(self, topic: str = "", group: str = "") -> None:
        self.guarded.allow(READ, TOPIC, topic or self.topic)
        self.guarded.allow(READ, GROUP, group or self.group)

    def committed(self) -> int:
        """By the administrator: the offset of the group in the topic."""
        return offset_of(self.guarded.librdkafka("admin"), self.group, self.topic)


@pytest.fixture
def scene(guarded: Guarded) -> Scene:
    return Scene(guarded)


def offset_of(config: dict[str, Any], group: str, topic: str) -> int:
    consumer = Consumer({**config, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        return int(found.offset)
    finally:
        consumer.close()


def consumer_of(scene: Scene, protocol: str) -> Consumer:
    return Consumer(
        {
            **scene.librdkafka, "group.id": scene.group, "group.protocol": protocol, "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )  # fmt: skip


def first_of(consumer: Any) -> Any:
    """The first record, or raises KafkaException."""

    def polled() -> Any:
        message = consumer.poll(0.5)
        if message is not None and message.error() is not None:
            raise KafkaException(message.error())
        return message

    return eventually(polled, "a record or an error comes")


def code_of(failing: Callable[[], Any]) -> int:
    with pytest.raises(KafkaException) as failure:
        failing()
    code: int = failure.value.args[0].code()
    return code


# Consumers


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_consumes_with_the_topic_and_the_group_alone(scene: Scene, protocol: str) -> None:
    scene.may_read()
    consumer = consumer_of(scene, protocol)
    try:
        consumer.subscribe([scene.topic])
        record = first_of(consumer)
        assert record.value() == scene.topic.encode()
        consumer.commit(record, asynchronous=False)
    finally:
        consumer.close()
    assert scene.committed() == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_says_that_the_group_is_refused(scene: Scene, protocol: str) -> None:
    scene.may_read(group="another")
    consumer = consumer_of(scene, protocol)
    try:
        consumer.subscribe([scene.topic])
        assert code_of(lambda: first_of(consumer)) == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()


def test_librdkafka_says_that_a_topic_is_refused_to_a_member(scene: Scene) -> None:
    scene.guarded.allow(READ, GROUP, scene.group)
    consumer = consumer_of(scene, "consumer")
    try:
        consumer.subscribe([scene.secret])
        assert code_of(lambda: first_of(consumer)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    finally:
        consumer.close()


def test_librdkafka_reads_by_a_pattern_what_it_may_read(scene: Scene) -> None:
    scene.may_read()
    consumer = consumer_of(scene, "consumer")
    try:
        consumer.subscribe([f"^.*-{scene.mark}"])
        assert first_of(consumer).topic() == scene.topic
        assert [each.topic for each in consumer.assignment()] == [scene.topic]
        scene.may_read(topic=scene.secret)
        assert first_of(consumer).topic() == scene.secret, "granted while it reads"
    finally:
        consumer.close()


def test_kafka_python_consumes_with_the_topic_and_the_group_alone(scene: Scene) -> None:
    scene.guarded.allow(READ, TOPIC, scene.topic)
    consumer = kafka.KafkaConsumer(scene.topic, **scene.reads())
    try:
        with pytest.raises(kafka.errors.GroupAuthorizationFailedError):
            eventually(lambda: consumer.poll(timeout_ms=500), "a record or an error comes")
        scene.guarded.allow(READ, GROUP, scene.group)
        (records,) = eventually(lambda: consumer.poll(timeout_ms=500), "a record comes").values()
        assert [record.value for record in records] == [scene.topic.encode()]
        consumer.commit()
    finally:
        consumer.close()
    assert scene.committed() == 1


def test_aiokafka_consumes_with_the_topic_and_the_group_alone(scene: Scene) -> None:
    async def read() -> Any:
        consumer = aiokafka.AIOKafkaConsumer(scene.topic, **scene.reads())
        try:
            await consumer.start()
            record = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            await consumer.commit()
            return record.value
        finally:
            await consumer.stop()

    scene.guarded.allow(READ, TOPIC, scene.topic)
    with pytest.raises(aiokafka.errors.GroupAuthorizationFailedError):
        asyncio.run(read())
    scene.guarded.allow(READ, GROUP, scene.group)
    assert asyncio.run(read()) == scene.topic.encode()
    assert scene.committed() == 1


def test_a_share_consumer_reads_with_the_topic_and_the_group_alone(scene: Scene) -> None:
    config = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": GROUP_CONFIG, "resource_name": scene.group, "configs": [config]}
    answer = scene.guarded.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code == 0

    def values() -> list[bytes]:
        """Of one consumer, which a refusal ends."""
        consumer = ShareConsumer({**scene.librdkafka, "group.id": scene.group})
        try:
            consumer.subscribe([scene.topic])
            return eventually(
                lambda: [each.value() for each in consumer.poll(0.5) if each.error() is None], "a record comes"
            )
        finally:
            consumer.close()

    scene.guarded.allow(DESCRIBE, GROUP, scene.group)
    assert code_of(values) == KafkaError.GROUP_AUTHORIZATION_FAILED
    scene.guarded.allow(READ, GROUP, scene.group)
    assert code_of(values) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    scene.guarded.allow(READ, TOPIC, scene.topic)
    assert values() == [scene.topic.encode()]


# Producers


def transactional(scene: Scene) -> Producer:
    return Producer({**scene.librdkafka, "transactional.id": scene.id, "transaction.timeout.ms": 60_000})


def test_a_producer_is_idempotent_with_the_topic_alone(scene: Scene) -> None:
    scene.guarded.allow(WRITE, TOPIC, scene.topic)
    failures: list[KafkaError] = []
    producer = Producer({**scene.librdkafka, "enable.idempotence": True, "error_cb": failures.append})
    producer.produce(scene.topic, b"once")
    assert (producer.flush(TIMEOUT_S), failures) == (0, [])


def test_a_producer_without_any_topic_is_not_idempotent(scene: Scene) -> None:
    producer = Producer({**scene.librdkafka, "enable.idempotence": True})
    with suppress(KafkaException):
        producer.produce(scene.topic, b"never")
    assert code_of(lambda: eventually(lambda: producer.poll(0.2) < 0)) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    producer.purge()


def test_a_transaction_needs_its_id_its_topic_and_the_group(scene: Scene) -> None:
    scene.guarded.allow(DESCRIBE, ID, scene.id)
    refused = transactional(scene)
    assert code_of(lambda: refused.init_transactions(TIMEOUT_S)) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    scene.guarded.allow(WRITE, ID, scene.id)
    scene.guarded.allow(WRITE, TOPIC, scene.topic)
    scene.guarded.allow(READ, TOPIC, scene.topic)
    consumer = consumer_of(scene, "classic")
    members = consumer.consumer_group_metadata()
    offsets = [TopicPartition(scene.topic, 0, 1)]
    producer = transactional(scene)
    try:
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(scene.topic, b"aborted")
        failing = code_of(lambda: producer.send_offsets_to_transaction(offsets, members, TIMEOUT_S))
        assert failing == KafkaError.GROUP_AUTHORIZATION_FAILED
        producer.abort_transaction(TIMEOUT_S)
        scene.guarded.allow(READ, GROUP, scene.group)
        producer.begin_transaction()
        producer.produce(scene.topic, b"committed")
        producer.send_offsets_to_transaction(offsets, members, TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        assert scene.committed() == 1
        scene.guarded.forget_bindings()
        producer.begin_transaction()
        with suppress(KafkaException):
            producer.produce(scene.topic, b"not to be seen")
            producer.flush(5)
        assert code_of(lambda: producer.commit_transaction(TIMEOUT_S)) in (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        )
    finally:
        consumer.close()
    assert read_committed(scene) == [scene.topic.encode(), b"committed"]


def read_committed(scene: Scene) -> list[bytes]:
    """By the administrator: all that is committed."""
    config = {**scene.guarded.librdkafka("admin"), "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer({**config, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(scene.topic, 0, 0)])
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return found
            found.append(message.value())
    finally:
        consumer.close()


def test_kafka_python_commits_a_transaction_with_its_id_and_its_topic(scene: Scene) -> None:
    def write() -> None:
        producer = kafka.KafkaProducer(**scene.python, transactional_id=scene.id)
        try:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(scene.topic, b"committed").get(TIMEOUT_S)
            producer.commit_transaction()
        finally:
            producer.close(timeout=1)

    scene.guarded.allow(WRITE, TOPIC, scene.topic)
    with pytest.raises(kafka.errors.TransactionalIdAuthorizationFailedError):
        write()
    scene.guarded.allow(WRITE, ID, "id-", pattern=PatternType.PREFIXED)
    write()
    assert read_committed(scene)[-1] == b"committed"


def test_aiokafka_commits_a_transaction_with_its_id_and_its_topic(scene: Scene) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(**scene.python, transactional_id=scene.id)
        try:
            await producer.start()
            async with producer.transaction():
                await producer.send_and_wait(scene.topic, b"committed")
        finally:
            await producer.stop()

    scene.guarded.allow(WRITE, TOPIC, scene.topic)
    with pytest.raises(aiokafka.errors.TransactionalIdAuthorizationFailed):
        asyncio.run(write())
    scene.guarded.allow(WRITE, ID, scene.id)
    asyncio.run(write())
    assert read_committed(scene)[-1] == b"committed"
