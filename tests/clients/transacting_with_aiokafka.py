"""Transactions by aiokafka: asyncio, with the oldest version of each request."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from tests.clients.judged import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Refused
from tests.clients.transacting import (
    CALL_TIMEOUT_S,
    CLASSIC,
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
from tests.clients.with_aiokafka import Loop

T = TypeVar("T")
NO_CODE = -1
MAX_POLLED = 10_000


class AiokafkaTransactionalProducer:
    def __init__(self, loop: Loop, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                max_batch_size=256 * 1024,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            )
            await producer.start()
            return producer

        self._loop = loop
        self._producer = _asked(loop, start())

    def begin(self) -> None:
        _asked(self._loop, self._producer.begin_transaction())

    def send(self, records: Sequence[Sent]) -> list[int]:
        async def send() -> list[int]:
            sent = [
                await self._producer.send(record.topic, record.value, partition=record.partition) for record in records
            ]
            answers = await asyncio.wait_for(asyncio.gather(*sent), CALL_TIMEOUT_S)
            return [answer.offset for answer in answers]

        return _asked(self._loop, send())

    def send_offsets(self, group: Member | str, positions: Mapping[Place, int]) -> None:
        offsets = {TopicPartition(*place): offset for place, offset in positions.items()}
        name = group if isinstance(group, str) else group.group  # type: ignore[attr-defined]
        _asked(self._loop, self._producer.send_offsets_to_transaction(offsets, name))

    def commit(self) -> None:
        _asked(self._loop, self._producer.commit_transaction())

    def abort(self) -> None:
        _asked(self._loop, self._producer.abort_transaction())

    def close(self) -> None:
        _asked(self._loop, self._producer.stop())


class AiokafkaReader:
    """A reader by assignment, or a member of a group."""

    def __init__(self, loop: Loop, consumer: AIOKafkaConsumer, group: str | None = None) -> None:
        self._loop = loop
        self._consumer = consumer
        self.group = group

    def poll(self, timeout_s: float) -> list[Seen]:
        asked = self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=MAX_POLLED)
        found = _asked(self._loop, asked)
        return [
            Seen(record.topic, record.partition, record.offset, record.value)
            for records in found.values()
            for record in records
        ]

    def committed(self, place: Place) -> int | None:
        offset: int | None = _asked(self._loop, self._consumer.committed(TopicPartition(*place)))
        return offset

    def close(self) -> None:
        _asked(self._loop, self._consumer.stop())


class AiokafkaTransactor:
    name = "aiokafka"
    protocols = (CLASSIC,)
    tells_membership = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = Loop()

    def close(self) -> None:
        self._loop.close()

    def producer(
        self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> AiokafkaTransactionalProducer:
        return AiokafkaTransactionalProducer(self._loop, self._bootstrap, transactional_id, timeout_ms)

    def reader(
        self, places: Sequence[Place], isolation: str, wait_ms: int = FETCH_WAIT_MS, offset: int = 0
    ) -> AiokafkaReader:
        async def start() -> AIOKafkaConsumer:
            consumer = self._consumer(isolation, wait_ms, auto_offset_reset="none")
            await consumer.start()
            partitions = [TopicPartition(*place) for place in places]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, offset)
            return consumer

        return AiokafkaReader(self._loop, _asked(self._loop, start()))

    def member(
        self, topic: str | None, group: str, protocol: str = CLASSIC, isolation: str = READ_COMMITTED
    ) -> AiokafkaReader:
        async def start() -> AIOKafkaConsumer:
            consumer = self._consumer(
                isolation,
                FETCH_WAIT_MS,
                group_id=group,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
                session_timeout_ms=SESSION_TIMEOUT_MS,
            )
            await consumer.start()
            if topic is not None:
                consumer.subscribe([topic])
            return consumer

        return AiokafkaReader(self._loop, _asked(self._loop, start()), group)

    def _consumer(self, isolation: str, wait_ms: int, **options: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            isolation_level=isolation,
            enable_auto_commit=False,
            fetch_max_wait_ms=wait_ms,
            **options,
        )


def _asked(loop: Loop, question: Coroutine[Any, Any, T]) -> T:
    try:
        return loop.ask(question)
    except ProducerFenced as fenced:
        raise Fenced(repr(fenced)) from fenced
    except (KafkaError, CancelledError) as failed:  # it cancels what waits on a connection that ends
        raise Refused(NO_CODE, repr(failed)) from failed
