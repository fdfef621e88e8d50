"""A steady producer, one record for each partition every few milliseconds, and the gaps between its acknowledgements:
how long writes stood still, as a client sees it."""

import threading
import time
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from headwater.testing.chaos.confluent_clients import PRODUCER
from headwater.testing.chaos.stage import FLUSH_TIMEOUT_S, MAX_UNACKNOWLEDGED, Stage

TOPIC: Final = "pulse"
PARTITIONS: Final = 3
EVERY_S: Final = 0.02


class Pulse:
    def __init__(self) -> None:
        self._acknowledged_s: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._lock = threading.Lock()

    def produce(self, stage: Stage, name: str) -> None:
        """Until the stage says to stop. Its records are noted like all others."""
        producer = Producer({**stage.way_in.confluent, "client.id": name, **PRODUCER, "linger.ms": 0})

        def delivered(value: str, partition: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                stage.unknown(name, value, (TOPIC, partition), error)
                return
            with self._lock:
                self._acknowledged_s[partition].append(time.monotonic())
            offset = message.offset()
            stage.record_acknowledged(value, (TOPIC, partition), -1 if offset is None else offset)

        number = 0
        while not stage.stop_producing.is_set():
            for partition in range(PARTITIONS) if len(producer) < MAX_UNACKNOWLEDGED else ():
                value = f"{name}:{number}"
                number += 1
                stage.sent(name, value, (TOPIC, partition))
                producer.produce(
                    TOPIC, value.encode(), None, partition,
                    on_delivery=lambda error, message, value=value, partition=partition: delivered(
                        value, partition, error, message
                    ),
                )  # fmt: skip
            producer.poll(EVERY_S)
        if left := producer.flush(FLUSH_TIMEOUT_S):
            stage.failure(f"{name}: {left} records were not acknowledged {FLUSH_TIMEOUT_S:.0f} s after the last fault")

    def silent_since(self) -> float:
        """The time of the last acknowledgement in the partition that has had none for longest; 0 before the first."""
        with self._lock:
            return min(times[-1] if times else 0.0 for times in self._acknowledged_s)

    def longest_gap_s(self, start_s: float, end_s: float, partition: int | None = None) -> float:
        """Between two acknowledgements of one partition, of those gaps that end within the time given."""
        with self._lock:
            chosen = self._acknowledged_s if partition is None else [self._acknowledged_s[partition]]
            return max(longest_gap_s(times, start_s, end_s) for times in chosen)


def longest_gap_s(times: list[float], start_s: float, end_s: float) -> float:
    """Of the gaps between these times, in order, that end within the time given."""
    concerned = times[max(bisect_left(times, start_s) - 1, 0) : bisect_right(times, end_s)]
    return max((after - before for before, after in pairwise(concerned)), default=0.0)
