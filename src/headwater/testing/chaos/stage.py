"""What all clients of a run share: the cluster they use, the history they write, their pace, and when they end."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from headwater.testing.chaos.way_in import WayIn
from headwater.testing.oracles.checkers import Recorder

PADDING: Final = b"." * 200
"""The key of every record: segments grow, and the value stays short enough to be noted."""
MAX_UNACKNOWLEDGED: Final = 2000
"""Records that a producer has sent and that are not acknowledged. More would be a longer queue, not more load."""
FLUSH_TIMEOUT_S: Final = 120.0
MAX_TROUBLES: Final = 200

Partition = tuple[str, int]


@dataclass(slots=True)
class Stage:
    way_in: WayIn
    recorder: Recorder
    partitions: tuple[Partition, ...]
    """Where producers write."""
    watched: tuple[Partition, ...]
    """Where readers read: there, and where else something is written."""
    records_per_s: float
    """Of each producer."""
    stop_producing: threading.Event = field(default_factory=threading.Event)
    stop_reading: threading.Event = field(default_factory=threading.Event)
    troubles: list[str] = field(default_factory=list)
    """What clients complained of and got over: no violation, but worth a look."""
    failures: list[str] = field(default_factory=list)
    """What must not happen to a client, whatever happens to the cluster."""
    acknowledged: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def values(self, name: str) -> Iterator[tuple[str, Partition] | None]:
        """One value after the other in the producer's own time, round the partitions; None when none is due yet."""
        started_s, number = time.monotonic(), 0
        while not self.stop_producing.is_set():
            due = int((time.monotonic() - started_s) * self.records_per_s)
            if number >= due:
                yield None
                continue
            yield f"{name}:{number}", self.partitions[number % len(self.partitions)]
            number += 1

    def sent(self, name: str, value: str, partition: Partition) -> None:
        self.recorder.send(name, partition[0], value, partition=partition[1])

    def record_acknowledged(self, value: str, partition: Partition, offset: int) -> None:
        with self._lock:
            self.acknowledged += 1
        self.recorder.acknowledged(partition[0], value, partition[1], offset)

    def unknown(self, name: str, value: str, partition: Partition, error: object) -> None:
        self.trouble(f"{name}: {value} to {partition[0]}-{partition[1]}: {error}")
        self.recorder.send_unknown(partition[0], value)

    def trouble(self, sentence: str) -> None:
        with self._lock:
            if len(self.troubles) < MAX_TROUBLES:
                self.troubles.append(sentence)

    def failure(self, sentence: str) -> None:
        with self._lock:
            self.failures.append(sentence)

    def start(self, client: "Callable[[Stage, str], None]", name: str) -> threading.Thread:
        """Run a client in a thread; what it raises is a failure of the run."""
        thread = threading.Thread(target=self._run, args=(client, name), name=name, daemon=True)
        thread.start()
        return thread

    def _run(self, client: "Callable[[Stage, str], None]", name: str) -> None:
        try:
            client(self, name)
        except Exception as error:
            self.failure(f"{name} gave up: {type(error).__name__}: {error}")
