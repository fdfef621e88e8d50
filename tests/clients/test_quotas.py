"""Clients that others wrote under quotas: everything arrives, and those that can tell of throttling do."""

import asyncio
import uuid
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from headwater.testing import Broker
from tests.support.eventually import eventually
from tests.support.messages import nested
from tests.support.wire import WireClient

ALTER_CLIENT_QUOTAS, CREATE_TOPICS = 49, 19
LIMIT = 400_000
"""Bytes per second: ten seconds' worth may be used at once, and COUNT values are a little more."""
VALUE = bytes(100_000)
COUNT = 10 * LIMIT // len(VALUE) + 3
SMALL_LIMIT = 1_000
"""One value is more than a minute's worth: however slow a client is, it has to wait after it, and is told."""

Name = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def name(broker: Broker) -> Name:
    """Makes a topic, and a client id that has the limit."""

    def make(key: str, limit: int = SMALL_LIMIT) -> tuple[str, str]:
        name = f"limited-{uuid.uuid4().hex[:8]}"
        with WireClient((broker.host, broker.port)) as client:
            topic = nested(name=name, num_partitions=1, replication_factor=1)
            client.ask(CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000, validate_only=False)
            entry = nested(
                entity=[nested(entity_type="client-id", entity_name=name)],
                ops=[nested(key=key, value=float(limit), remove=False)],
            )
            (answer,) = client.ask(ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False).entries
            assert answer.error_code == 0, answer.error_message
        return name, name

    return make


def fill(broker: Broker, topic: str, count: int = COUNT) -> None:
    """By a client that nothing limits."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 110_000})
    for _ in range(count):
        producer.produce(topic, VALUE)
    assert producer.flush(60) == 0


def test_confluent_kafka_tells_a_producer_of_its_wait(broker: Broker, name: Name) -> None:
    topic, client_id = name("producer_byte_rate")
    events: list[ThrottleEvent] = []
    delivered: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": client_id, "throttle_cb": events.append})
    producer.produce(topic, VALUE, on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(60) == 0
    assert delivered == [None]
    eventually(lambda: producer.poll(0.1) or events, "the wait is told")
    assert max(event.throttle_time for event in events) > 0


def test_confluent_kafka_tells_a_consumer_of_its_wait(broker: Broker, name: Name) -> None:
    topic, client_id = name("consumer_byte_rate")
    fill(broker, topic, 1)
    events: list[ThrottleEvent] = []
    consumer = consumer_of(broker, topic, client_id, throttle_cb=events.append)
    message = consumer.poll(60)
    assert message is not None and message.error() is None, "a batch is sent, however large"
    eventually(lambda: consumer.poll(0.1) or events, "the wait is told")
    consumer.close()


def test_a_consumer_reads_on_at_its_limit(broker: Broker, name: Name) -> None:
    topic, client_id = name("consumer_byte_rate", LIMIT)
    fill(broker, topic)
    consumer = consumer_of(broker, topic, client_id)
    offsets: list[int | None] = []
    while len(offsets) < COUNT:
        message = consumer.poll(60)
        assert message is not None and message.error() is None
        offsets.append(message.offset())
    consumer.close()
    assert offsets == list(range(COUNT))


def consumer_of(broker: Broker, topic: str, client_id: str, **more: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "client.id": client_id, "group.id": topic,
            "enable.auto.commit": False, **more,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def test_kafka_python_tells_both_sides_of_their_waits(
    broker: Broker, name: Name, caplog: pytest.LogCaptureFixture
) -> None:
    topic, client_id = name("producer_byte_rate")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id=client_id)
    producer.send(topic, VALUE).get(timeout=60)
    eventually(lambda: "ProduceResponse throttled by broker" in caplog.text, "the producer tells its wait")
    producer.close(timeout=0)
    _, reader = name("consumer_byte_rate")
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, client_id=reader, group_id=None, auto_offset_reset="earliest"
    )
    consumer.assign([KafkaPythonPartition(topic, 0)])
    assert next(consumer).offset == 0
    eventually(
        lambda: consumer.poll(timeout_ms=100) or "FetchResponse throttled by broker" in caplog.text,
        "the consumer tells its wait",
    )
    consumer.close()


def test_aiokafka_gets_on_at_its_limit(broker: Broker, name: Name) -> None:
    topic, client_id = name("producer_byte_rate", LIMIT)
    _, reader = name("consumer_byte_rate", LIMIT)

    async def main() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, client_id=client_id)
        await producer.start()
        try:
            for _ in range(COUNT):
                await producer.send_and_wait(topic, VALUE)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, client_id=reader, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            assert [(await consumer.getone()).offset for _ in range(COUNT)] == list(range(COUNT))
        finally:
            await consumer.stop()

    asyncio.run(main())
