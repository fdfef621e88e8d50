"""Records looked up by where they are: for dead letters that only say where they came from.

One consumer moves from record to record. Letters come mostly in the order of their originals, so what was fetched with
one record usually holds the next.
"""

import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headwater.client.librdkafka import POLL_S, REQUEST_TIMEOUT_S
from headwater.gateway.redrive.cluster import Settings


class Originals:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._consumer: Consumer | None = None
        self._next: tuple[str, int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def read(self, topic: str, partition: int, offset: int) -> Message | None:
        """None if the record is gone."""
        if self._consumer is None:
            config = {"group.id": "headwater-redrive", "enable.auto.commit": False, "enable.partition.eof": True}
            self._consumer = Consumer({**self._settings, **config, "auto.offset.reset": "error"})
        if self._next != (topic, partition, offset):
            self._consumer.assign([TopicPartition(topic, partition, offset)])
        self._next = None
        until_s = time.monotonic() + REQUEST_TIMEOUT_S
        while time.monotonic() < until_s:
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._next = (topic, partition, message.offset() + 1)
                return message if message.offset() == offset else None
            if error.code() in (
                KafkaError._PARTITION_EOF,
                KafkaError._AUTO_OFFSET_RESET,
                KafkaError.OFFSET_OUT_OF_RANGE,
            ):
                return None
            if not error.retriable():
                raise KafkaException(error)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
