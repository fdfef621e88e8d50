"""Records looked up by where they are: for dead letters that only say where they came from.

One consumer moves from record to record. Letters come mostly in the order of their originals, so what was fetched with
one record usually holds the next.
"""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headwater.cli.client import REQUEST_TIMEOUT_S, client_config

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

POLL_S = 0.2


class Originals:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer: Consumer | None = None
        self._next: tuple[str, int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def read(self, topic: str, partition: int, offset: int) -> "Message | None":
        """None if the record is gone."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        if self._consumer is None:
            config = {"group.id": "headwater-cli", "enable.auto.commit": False, "enable.partition.eof": True}
            self._consumer = Consumer(client_config(self._bootstrap, **config, **{"auto.offset.reset": "error"}))
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
