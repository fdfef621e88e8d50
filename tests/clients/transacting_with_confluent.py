"""Transactions by confluent-kafka: librdkafka from Python, with the older protocol of transactions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.clients.judged import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Refused
from tests.clients.transacting import (
    CALL_TIMEOUT_S,
    CLASSIC,
    CONSUMER,
    FETCH_WAIT_MS,
    READ_COMMITTED,
    REQUEST_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    Fenced,
    Member,
    Place,
    Seen,
    Sent,
)

FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
DROPPED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""A record that the client let go because of an error that the next call tells."""


class ConfluentTransactionalProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 0,
            "socket.timeout.ms": min(REQUEST_TIMEOUT_MS, timeout_ms),
            "log_level": 0,
            # By default the client forgets a single broker while it is down, and send_offsets_to_transaction then waits
            # forever for the coordinator that it was (librdkafka #5511).
            "metadata.recovery.strategy": "none",
        }
        self._bootstrap = bootstrap
        self._producer = Producer(options)
        _asked(lambda: self._producer.init_transactions(CALL_TIMEOUT_S))

    def begin(self) -> None:
        _asked(self._producer.begin_transaction)

    def send(self, records: Sequence[Sent]) -> list[int]:
        answers: list[Any] = [None] * len(records)

        def on_delivery(index: int, error: KafkaError | None, message: Message) -> None:
            # flush() may be about to raise a fatal error: until it has, nothing of the client can be called.
            answers[index] = message if error is None else error

        def send() -> list[int]:
            for index, record in enumerate(records):
                self._producer.produce(
                    record.topic,
                    record.value,
                    partition=record.partition,
                    on_delivery=lambda error, message, index=index: on_delivery(index, error, message),
                )
            assert self._producer.flush(CALL_TIMEOUT_S) == 0, "every record is answered in time"
            for answer in answers:
                if isinstance(answer, KafkaError) and answer.code() not in DROPPED:
                    raise KafkaException(answer)
            return [-1 if isinstance(answer, KafkaError) else answer.offset() for answer in answers]

        offsets: list[int] = _asked(send)
        return offsets

    def send_offsets(self, group: Member | str, positions: Mapping[Place, int]) -> None:
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        if isinstance(group, str):
            outsider = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
            metadata = outsider.consumer_group_metadata()
            outsider.close()
        else:
            assert isinstance(group, ConfluentReader)
            metadata = group.group_metadata()
        _asked(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, CALL_TIMEOUT_S))

    def commit(self) -> None:
        _asked(lambda: self._producer.commit_transaction(CALL_TIMEOUT_S))

    def abort(self) -> None:
        _asked(lambda: self._producer.abort_transaction(CALL_TIMEOUT_S))

    def close(self) -> None:
        self._producer.purge()


class ConfluentReader:
    """A reader by assignment, or a member of a group."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._group_metadata: Any = None

    def poll(self, timeout_s: float) -> list[Seen]:
        found = []
        for message in self._consumer.consume(10_000, timeout_s):
            if error := message.error():
                raise Refused(error.code(), error.str())
            topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
            assert topic is not None and partition is not None and offset is not None and isinstance(value, bytes)
            found.append(Seen(topic, partition, offset, value))
        return found

    def committed(self, place: Place) -> int | None:
        [found] = _asked(lambda: self._consumer.committed([TopicPartition(*place)], CALL_TIMEOUT_S))
        offset: int = found.offset
        return offset if offset >= 0 else None

    def group_metadata(self) -> Any:
        return self._group_metadata or self._consumer.consumer_group_metadata()

    def close(self) -> None:
        self._group_metadata = self._consumer.consumer_group_metadata()
        self._consumer.close()


class ConfluentTransactor:
    name = "confluent"
    protocols = (CLASSIC, CONSUMER)
    tells_membership = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def close(self) -> None:
        pass

    def producer(
        self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> ConfluentTransactionalProducer:
        return ConfluentTransactionalProducer(self._bootstrap, transactional_id, timeout_ms)

    def reader(
        self, places: Sequence[Place], isolation: str, wait_ms: int = FETCH_WAIT_MS, offset: int = 0
    ) -> ConfluentReader:
        consumer = self._consumer("reader", isolation, {"fetch.wait.max.ms": wait_ms, "auto.offset.reset": "error"})
        consumer.assign([TopicPartition(topic, partition, offset) for topic, partition in places])
        return ConfluentReader(consumer)

    def member(
        self, topic: str | None, group: str, protocol: str = CLASSIC, isolation: str = READ_COMMITTED
    ) -> ConfluentReader:
        options: dict[str, Any] = {"group.protocol": protocol, "auto.offset.reset": "earliest"}
        if protocol == CLASSIC:
            options |= {"heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS, "session.timeout.ms": SESSION_TIMEOUT_MS}
        consumer = self._consumer(group, isolation, {**options, "fetch.wait.max.ms": FETCH_WAIT_MS})
        if topic is not None:
            consumer.subscribe([topic])
        return ConfluentReader(consumer)

    def _consumer(self, group: str, isolation: str, options: dict[str, Any]) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "log_level": 0,
                **options,
            }
        )


def _asked(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except KafkaException as failed:
        error = failed.args[0]
        if error.code() in FENCED:
            raise Fenced(str(error)) from failed
        raise Refused(error.code(), str(error)) from failed
