"""Consumers of three makes, each polling in a thread of its own as applications do, seen through one small window."""

import asyncio
import threading
from typing import Any

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer
from confluent_kafka import KafkaError, KafkaException

from tests.support.eventually import eventually

SESSION_TIMEOUT_MS = 1_500
HEARTBEAT_MS = 100
WAIT_S = 60.0


class Reader:
    """One member of a group on one topic. `values` is what it has read, `gained` and `lost` what rebalances did."""

    def __init__(self, bootstrap: str, topic: str, group: str, **options: Any) -> None:
        self.bootstrap, self.topic, self.group, self.options = bootstrap, topic, group, options
        self.values: list[bytes] = []
        self.assigned: set[int] = set()
        self.gained: list[set[int]] = []
        self.lost: list[set[int]] = []
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def run(self) -> None:
        raise NotImplementedError

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Leave the group and end."""
        self._stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "a reader ends when it is told to"

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.error = error


class ConfluentReader(Reader):
    def run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **self.options,
            }
        )
        consumer.subscribe([self.topic], on_assign=self._gained, on_revoke=self._lost, on_lost=self._lost)
        try:
            while not self.is_stopping:
                message = consumer.poll(0.05)
                error = message.error() if message is not None else None
                if error is not None and error.code() == KafkaError._FATAL:
                    raise KafkaException(error)
                if message is not None and error is None:
                    self.values.append(message.value())
        finally:
            consumer.close()

    def _gained(self, _: Any, partitions: list[Any]) -> None:
        gained = {each.partition for each in partitions}
        self.gained.append(gained)
        self.assigned |= gained

    def _lost(self, _: Any, partitions: list[Any]) -> None:
        lost = {each.partition for each in partitions}
        self.lost.append(lost)
        self.assigned -= lost


class KafkaPythonReader(Reader):
    def run(self) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
            **self.options,
        )
        try:
            while not self.is_stopping:
                for records in consumer.poll(timeout_ms=500).values():
                    self.values += [record.value for record in records]
                self.assigned = {each.partition for each in consumer.assignment()}
        finally:
            consumer.close()


class AiokafkaReader(Reader):
    def run(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
            **self.options,
        )
        await consumer.start()
        try:
            while not self.is_stopping:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    self.values += [record.value for record in records]
                self.assigned = {each.partition for each in consumer.assignment()}
        finally:
            await consumer.stop()


READERS: dict[str, type[Reader]] = {
    "confluent": ConfluentReader,
    "kafka-python": KafkaPythonReader,
    "aiokafka": AiokafkaReader,
}


def until_shared(partitions: int, *readers: Reader) -> None:
    """Every partition has one reader, and every reader has a partition."""

    def is_shared() -> bool:
        for reader in readers:
            if reader.error is not None:
                raise reader.error
        shares = [set(reader.assigned) for reader in readers]
        return all(shares) and sorted(each for share in shares for each in share) == list(range(partitions))

    eventually(is_shared, lambda: [reader.assigned for reader in readers])
