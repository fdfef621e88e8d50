"""A producer that goes on while things happen to its cluster."""

import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.support.eventually import PATIENCE_S

RECORDS_PER_S = 200


class Producing:
    """An idempotent producer with acks=all that sends numbers, one after the other to each partition, until stopped."""

    def __init__(self, client: Mapping[str, Any], topic: str, partitions: int) -> None:
        """`client` is what a client of confluent-kafka is made with, to get in."""
        self.acknowledged: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        self.failed: list[str] = []
        self._topic = topic
        self._producer = Producer({**client, "acks": "all", "enable.idempotence": True, "log_level": 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def has_reached(self, count: int) -> bool:
        return self.count >= count

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(1 / RECORDS_PER_S):
            for partition in self.acknowledged:
                self._producer.produce(self._topic, str(number), partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[message.partition() or 0].append(int(message.value() or b""))
