"""Queues over the Kafka protocol (KIP-932): share groups of Headwater and of Apache Kafka, with the same client.

Consumers accept implicitly, as is the client's default: the records of one poll with the next. The queue is a topic
with fewer partitions than consumers, and the group has the topic's name."""

import time

from bench.drain import IDLE_WAIT_S, READY_TIMEOUT_S, Consumer, Desk, payload
from bench.measures import Server, create_topic
from confluent_kafka import KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

PARTITIONS = 2
BATCH_RECORDS = 500
"""Records that a producer puts into one batch at most: as many as a consumer asks for at a time."""
POLL_S = 0.2
FLUSH_TIMEOUT_S = 60.0
OFFSET_BITS = 40


class ShareGroups:
    """The queues of a broker that speaks the Kafka protocol."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.name, self.address, self.process = server.name, server.bootstrap, server.process
        self.consume: Consumer = consume
        self._sent = 0

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def create(self, queue: str) -> None:
        create_topic(self._server, queue, PARTITIONS)
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, queue, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(FLUSH_TIMEOUT_S)

    def fill(self, queue: str, records: int) -> None:
        producer = self._producer()
        for at in range(records):
            self._send(producer, queue, at % PARTITIONS)
        _flush(producer)

    def nudge(self, queue: str) -> int:
        producer = self._producer()
        for partition in range(PARTITIONS):
            self._send(producer, queue, partition)
        _flush(producer)
        return PARTITIONS

    def left(self, queue: str) -> int:
        """Whatever another consumer of the group is given before records that are sent now."""
        consumer, found, last = _consumer(self.address, queue), 0, self._sent
        missing = self.nudge(queue)
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while missing and time.monotonic() < deadline_s:
            for message in consumer.poll(POLL_S):
                _must_be_a_record(message)
                if int.from_bytes((message.value() or b"")[:8]) >= last:
                    missing -= 1
                else:
                    found += 1
        consumer.close()
        if missing:
            raise TimeoutError(f"{self.name}: the group gives no records any more")
        return found

    def _send(self, producer: Producer, queue: str, partition: int) -> None:
        value = payload(self._sent)
        while True:
            try:
                producer.produce(queue, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.01)
        self._sent += 1

    def _producer(self) -> Producer:
        options = {"bootstrap.servers": self.address, "acks": "all", "linger.ms": 5, "log_level": 0}
        return Producer(options | {"batch.num.messages": BATCH_RECORDS, "delivery.report.only.error": True})


def consume(address: str, queue: str, desk: Desk) -> None:
    consumer = _consumer(address, queue)
    while not (first := consumer.poll(POLL_S)):
        pass  # not a member yet
    desk.took(_numbers(list(first)))
    _commit(consumer)
    desk.ready()
    while not desk.is_drained():
        if batch := consumer.poll(IDLE_WAIT_S):
            desk.took(_numbers(batch))
    _commit(consumer)
    desk.finish()
    consumer.close()


def _consumer(address: str, queue: str) -> ShareConsumer:
    consumer = ShareConsumer({"bootstrap.servers": address, "group.id": queue, "log_level": 0})
    consumer.subscribe([queue])
    return consumer


def _numbers(batch: list[Message]) -> list[int]:
    """Where a record lies is its number."""
    for message in batch:
        _must_be_a_record(message)
    return [message.partition() << OFFSET_BITS | message.offset() for message in batch]


def _must_be_a_record(message: Message) -> None:
    if message.error() is not None:
        raise KafkaException(message.error())


def _commit(consumer: ShareConsumer) -> None:
    for partition, failure in consumer.commit_sync().items():
        if failure is not None:
            raise RuntimeError(f"{partition} was not accepted: {failure}")


def _flush(producer: Producer) -> None:
    if left := producer.flush(FLUSH_TIMEOUT_S):
        raise TimeoutError(f"{left} records were not acknowledged")
