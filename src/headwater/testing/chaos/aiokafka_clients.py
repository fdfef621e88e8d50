"""aiokafka: a producer and a reader, each with its own event loop. A producer that gives up is made anew, under a new
name; what became of its last records is unknown."""

import asyncio
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from headwater.testing.chaos.stage import FLUSH_TIMEOUT_S, MAX_UNACKNOWLEDGED, PADDING, Partition, Stage

REQUEST_TIMEOUT_MS: Final = 30_000
"""How long a batch waits for its acknowledgement, too."""
RETRY_S: Final = 0.2
TICK_S: Final = 0.005


def produce(stage: Stage, name: str) -> None:
    asyncio.run(_Producing(stage, name).run())


def read(stage: Stage, name: str) -> None:
    asyncio.run(_read(stage, name))


class _Producing:
    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._name = name
        self._unacknowledged = 0
        self._has_failed = False

    async def run(self) -> None:
        generation = 0
        while not self._stage.stop_producing.is_set():
            generation += 1
            name = f"{self._name}.{generation}"
            producer = AIOKafkaProducer(
                **self._stage.way_in.aiokafka, client_id=name, enable_idempotence=True, acks="all",
                request_timeout_ms=REQUEST_TIMEOUT_MS, retry_backoff_ms=50, metadata_max_age_ms=5000,
            )  # fmt: skip
            try:
                await producer.start()
                await self._produce(producer, name)
            except KafkaError as error:
                self._stage.trouble(f"{name}: {type(error).__name__}: {error}")
                await asyncio.sleep(RETRY_S)
            finally:
                await _stop(self._stage, name, producer)

    async def _produce(self, producer: AIOKafkaProducer, name: str) -> None:
        self._has_failed = False
        for due in self._stage.values(name):
            while self._unacknowledged >= MAX_UNACKNOWLEDGED:  # noqa: ASYNC110 - any of them may end, and a short while
                await asyncio.sleep(TICK_S)
            if self._has_failed:
                return
            if due is None:
                await asyncio.sleep(TICK_S)
                continue
            value, partition = due
            self._stage.sent(name, value, partition)
            try:
                sent = await producer.send(partition[0], value.encode(), PADDING, partition[1])
            except KafkaError as error:
                self._stage.unknown(name, value, partition, f"{type(error).__name__}: {error}")
                return
            self._unacknowledged += 1
            sent.add_done_callback(
                lambda done, value=value, partition=partition: self._ended(name, value, partition, done)
            )

    def _ended(self, name: str, value: str, partition: Partition, done: "asyncio.Future[object]") -> None:
        self._unacknowledged -= 1
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._stage.record_acknowledged(value, partition, getattr(done.result(), "offset", -1))
        else:
            self._has_failed = True
            self._stage.unknown(name, value, partition, f"{type(error).__name__}: {error}")


async def _stop(stage: Stage, name: str, producer: AIOKafkaProducer) -> None:
    try:
        async with asyncio.timeout(FLUSH_TIMEOUT_S):
            await producer.stop()
    except (KafkaError, TimeoutError) as error:
        stage.trouble(f"{name}: stop: {type(error).__name__}: {error}")


async def _read(stage: Stage, name: str) -> None:
    consumer = AIOKafkaConsumer(
        **stage.way_in.aiokafka, client_id=name, enable_auto_commit=False, auto_offset_reset="none",
        request_timeout_ms=5000, retry_backoff_ms=50, metadata_max_age_ms=5000, fetch_max_wait_ms=100,
    )  # fmt: skip
    await consumer.start()
    partitions = [TopicPartition(*partition) for partition in stage.watched]
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    stage.recorder.assigned(name, dict.fromkeys(stage.watched, 0))
    try:
        while not stage.stop_reading.is_set():
            try:
                found = await consumer.getmany(timeout_ms=200, max_records=500)
            except OffsetOutOfRangeError as error:
                stage.failure(f"{name}: {type(error).__name__}: {error}")
                return
            except KafkaError as error:
                stage.trouble(f"{name}: {type(error).__name__}: {error}")
                continue
            rows = [(each.topic, each.partition, each.offset, each.value) for batch in found.values() for each in batch]
            if rows:
                stage.recorder.polled(name, "read_uncommitted", rows)
    finally:
        await consumer.stop()
