"""Transactions by kafka-python 3: pure Python, with the older protocol of transactions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.structs import OffsetAndMetadata

from tests.clients.judged import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Refused
from tests.clients.transacting import (
    CALL_TIMEOUT_S,
    CLASSIC,
    FETCH_WAIT_MS,
    READ_COMMITTED,
    TRANSACTION_TIMEOUT_MS,
    Fenced,
    Member,
    Place,
    Seen,
    Sent,
)

NO_CODE = -1
MAX_POLLED = 10_000
MEMBER_POLL_MS = 700


class KafkaPythonTransactionalProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            batch_size=256 * 1024,
            linger_ms=0,
        )
        _asked(self._producer.init_transactions)

    def begin(self) -> None:
        _asked(self._producer.begin_transaction)

    def send(self, records: Sequence[Sent]) -> list[int]:
        def send() -> list[int]:
            sent = [self._producer.send(record.topic, record.value, partition=record.partition) for record in records]
            return [future.get(CALL_TIMEOUT_S).offset for future in sent]

        offsets: list[int] = _asked(send)
        return offsets

    def send_offsets(self, group: Member | str, positions: Mapping[Place, int]) -> None:
        offsets = {TopicPartition(*place): OffsetAndMetadata(offset) for place, offset in positions.items()}
        metadata = group if isinstance(group, str) else group.group_metadata()  # type: ignore[attr-defined]
        _asked(lambda: self._producer.send_offsets_to_transaction(offsets, metadata))

    def commit(self) -> None:
        _asked(self._producer.commit_transaction)

    def abort(self) -> None:
        _asked(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=0)


class KafkaPythonReader:
    """A reader by assignment, or a member of a group. kafka-python loses an assignment that arrives in the moment in
    which poll() gives up (with Apache Kafka too), so a member is polled for longer than asked for."""

    def __init__(self, consumer: KafkaConsumer, min_poll_ms: int = 0) -> None:
        self._consumer = consumer
        self._min_poll_ms = min_poll_ms
        self._group_metadata: Any = None

    def poll(self, timeout_s: float) -> list[Seen]:
        timeout_ms = max(int(timeout_s * 1000), self._min_poll_ms)
        found = _asked(lambda: self._consumer.poll(timeout_ms=timeout_ms, max_records=MAX_POLLED))
        return [
            Seen(record.topic, record.partition, record.offset, record.value)
            for records in found.values()
            for record in records
        ]

    def committed(self, place: Place) -> int | None:
        offset: int | None = _asked(lambda: self._consumer.committed(TopicPartition(*place)))
        return offset

    def group_metadata(self) -> Any:
        return self._group_metadata or self._consumer.group_metadata()

    def close(self) -> None:
        self._group_metadata = self._consumer.group_metadata()
        self._consumer.close(autocommit=False)


class KafkaPythonTransactor:
    name = "kafka-python"
    protocols = (CLASSIC,)
    tells_membership = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def close(self) -> None:
        pass

    def producer(
        self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> KafkaPythonTransactionalProducer:
        return KafkaPythonTransactionalProducer(self._bootstrap, transactional_id, timeout_ms)

    def reader(
        self, places: Sequence[Place], isolation: str, wait_ms: int = FETCH_WAIT_MS, offset: int = 0
    ) -> KafkaPythonReader:
        consumer = self._consumer(isolation, wait_ms, auto_offset_reset="none")
        partitions = [TopicPartition(*place) for place in places]
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, offset)
        return KafkaPythonReader(consumer)

    def member(
        self, topic: str | None, group: str, protocol: str = CLASSIC, isolation: str = READ_COMMITTED
    ) -> KafkaPythonReader:
        consumer = self._consumer(
            isolation,
            FETCH_WAIT_MS,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )
        if topic is not None:
            consumer.subscribe([topic])
        return KafkaPythonReader(consumer, MEMBER_POLL_MS)

    def _consumer(self, isolation: str, wait_ms: int, **options: Any) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            isolation_level=isolation,
            enable_auto_commit=False,
            fetch_max_wait_ms=wait_ms,
            **options,
        )


def _asked(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except (errors.ProducerFencedError, errors.InvalidProducerEpochError) as fenced:
        raise Fenced(repr(fenced)) from fenced
    except errors.BrokerResponseError as refused:
        raise Refused(refused.errno, repr(refused)) from refused
    except errors.KafkaError as failed:
        raise Refused(NO_CODE, repr(failed)) from failed
