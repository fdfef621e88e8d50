"""What clients that others wrote say to users with few rights: the error names what was refused, and what is allowed
works beside it."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.admin
import aiokafka.errors
import kafka
import kafka.admin
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from headwater.security.access_codes import Operation, Permission
from headwater.security.access_codes import ResourceType as Resource
from tests.support.guarded import PASSWORD, Guarded, guarded_broker

WITHIN_S = 60


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


@pytest.fixture
def guarded(shared: Guarded) -> Iterator[Guarded]:
    yield shared
    shared.forget_bindings()


@pytest.fixture
def topics(guarded: Guarded) -> tuple[str, str]:
    """One that the user may write and read, and one of others, with a record."""
    mark = uuid.uuid4().hex
    known, secret = f"known-{mark}", f"secret-{mark}"
    guarded.create(known, secret)
    guarded.write(secret, b"a secret")
    for operation in (Operation.WRITE, Operation.READ):
        guarded.allow(operation, Resource.TOPIC, known)
    guarded.allow(Operation.READ, Resource.GROUP, "*")
    return known, secret


def python_login(guarded: Guarded) -> dict[str, Any]:
    return {
        "bootstrap_servers": guarded.librdkafka()["bootstrap.servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }


# confluent-kafka


def test_librdkafka_tells_a_producer_of_the_refused_topic_and_delivers_the_rest(
    guarded: Guarded, topics: tuple[str, str]
) -> None:
    known, secret = topics
    outcomes: dict[str, KafkaError | None] = {}
    producer = Producer(guarded.librdkafka())
    for name in topics:
        producer.produce(name, b"a value", on_delivery=lambda error, message: outcomes.update({message.topic(): error}))
    assert producer.flush(WITHIN_S) == 0
    assert outcomes[known] is None
    refused = outcomes[secret]
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_librdkafka_tells_an_idempotent_producer_whose_right_to_write_was_denied_after_it_had_the_metadata(
    guarded: Guarded, topics: tuple[str, str]
) -> None:
    known, _ = topics
    outcomes: list[KafkaError | None] = []
    producer = Producer({**guarded.librdkafka(), "enable.idempotence": True})

    def write() -> None:
        producer.produce(known, b"a value", on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(WITHIN_S) == 0

    write()
    guarded.allow(Operation.WRITE, Resource.TOPIC, known, permission=Permission.DENY)
    write()
    first, second = outcomes
    assert first is None
    assert second is not None and second.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_librdkafka_tells_a_consumer_of_the_refused_topic_and_reads_the_other(
    guarded: Guarded, topics: tuple[str, str]
) -> None:
    known, secret = topics
    guarded.write(known, b"for alice")
    guarded.allow(Operation.DESCRIBE, Resource.TOPIC, secret)
    consumer = Consumer({**guarded.librdkafka(), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0) for name in topics])
    values: list[bytes] = []
    codes: set[tuple[str, int]] = set()
    try:
        while not (values and codes):
            message = consumer.poll(WITHIN_S)
            assert message is not None, "the client says nothing"
            error = message.error()
            if error is None:
                values.append(message.value())
            else:
                codes.add((message.topic(), error.code()))
    finally:
        consumer.close()
    assert values == [b"for alice"]
    assert codes == {(secret, KafkaError.TOPIC_AUTHORIZATION_FAILED)}


def test_librdkafkas_admin_is_told_what_it_may_not_do(guarded: Guarded, topics: tuple[str, str]) -> None:
    known, secret = topics
    admin = AdminClient(guarded.librdkafka())
    assert set(admin.list_topics(timeout=WITHIN_S).topics) == {known}

    def refusal(future: Any) -> tuple[int, str]:
        with pytest.raises(KafkaException) as raised:
            future.result(WITHIN_S)
        error = raised.value.args[0]
        return error.code(), error.str()

    resource = ConfigResource(ResourceType.TOPIC, secret)
    of_topic = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert refusal(admin.create_topics([NewTopic("new", 1)])["new"]) == (
        of_topic, "User:alice may not create topic 'new'.",
    )  # fmt: skip
    assert refusal(admin.describe_configs([resource])[resource]) == (
        of_topic, f"User:alice may not describe the settings of topic '{secret}'.",
    )  # fmt: skip
    assert refusal(admin.delete_topics([secret])[secret])[0] == of_topic


# kafka-python


def test_kafka_python_raises_for_the_refused_topic_and_works_with_the_other(
    guarded: Guarded, topics: tuple[str, str]
) -> None:
    known, secret = topics
    login = python_login(guarded)
    producer = kafka.KafkaProducer(**login)
    try:
        assert producer.send(known, b"a value").get(WITHIN_S).offset == 0
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            producer.send(secret, b"a value").get(WITHIN_S)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(**login, group_id=None)
    try:
        assert consumer.topics() == {known}
        consumer.assign([kafka.TopicPartition(known, 0)])
        consumer.seek_to_beginning()
        assert [each.value for each in next(iter(consumer.poll(WITHIN_S * 1000).values()))] == [b"a value"]
        consumer.assign([kafka.TopicPartition(secret, 0)])
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            consumer.position(kafka.TopicPartition(secret, 0), timeout_ms=WITHIN_S * 1000)
            consumer.poll(WITHIN_S * 1000)
    finally:
        consumer.close()


def test_kafka_pythons_admin_is_told_what_it_may_not_do(guarded: Guarded, topics: tuple[str, str]) -> None:
    _, secret = topics
    admin = kafka.KafkaAdminClient(**python_login(guarded))
    try:
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            admin.create_topics([kafka.admin.NewTopic("new", 1, 1)])
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            admin.delete_topics([secret])
    finally:
        admin.close()


# aiokafka


def test_aiokafka_raises_for_the_refused_topic_and_works_with_the_other(
    guarded: Guarded, topics: tuple[str, str]
) -> None:
    known, secret = topics
    login = python_login(guarded)

    async def scenario() -> None:
        producer = aiokafka.AIOKafkaProducer(**login)
        await producer.start()
        try:
            assert (await producer.send_and_wait(known, b"a value")).offset == 0
            with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
                await producer.send_and_wait(secret, b"a value")
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(**login, auto_offset_reset="earliest")
        await consumer.start()
        try:
            assert await consumer.topics() == {known}
            consumer.assign([aiokafka.TopicPartition(known, 0)])
            assert (await consumer.getone()).value == b"a value"
        finally:
            await consumer.stop()
        refused = aiokafka.AIOKafkaConsumer(secret, **login)
        try:
            with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
                await refused.start()
        finally:
            await refused.stop()

    asyncio.run(asyncio.wait_for(scenario(), WITHIN_S))
