"""How fast the consumers of one queue take and accept what lies in it, whatever the broker.

Consumers are processes. Each connects and says that it is ready; then the queue is filled; then all start at the same
moment, and the clock runs until the last of them has had its last acknowledgement confirmed. Every record has a number,
and each number must have been accepted by exactly one consumer, once; nothing may be left in the queue."""

import multiprocessing
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Any, Protocol

from bench.process import BrokerProcess

RECORD_BYTES = 100
NUMBER_BYTES = 8
READY_TIMEOUT_S = 60.0
DRAIN_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 20.0
IDLE_WAIT_S = 0.02
"""How long a consumer waits for records before it looks whether all have been taken."""
READY_PAUSE_S = 0.05

PROCESSES = multiprocessing.get_context("spawn")


class WrongCount(Exception):
    """Records were accepted twice, never, or are still in the queue: the figure would be worth nothing."""


@dataclass(frozen=True, slots=True)
class Drained:
    records: int
    seconds: float
    broker_cpu_s: float

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_s_per_million(self) -> float:
        return self.broker_cpu_s / self.records * 1e6


class Desk:
    """What a consumer process shares with the others: the signal to start, and how much each has taken."""

    def __init__(self, index: int, taken: Any, total: "Synchronized[int]", go: Event, answers: Connection) -> None:
        self._index, self._taken, self._total, self._go, self._answers = index, taken, total, go, answers
        self._numbers = array("q")

    def ready(self) -> None:
        """Connected, and a member where there is membership: wait with the others for the start."""
        self._answers.send("ready")
        if not self._go.wait(READY_TIMEOUT_S + DRAIN_TIMEOUT_S):
            raise TimeoutError("the signal to start did not come")

    def took(self, numbers: list[int]) -> None:
        self._numbers.extend(numbers)
        self._taken[self._index] = len(self._numbers)

    def is_drained(self) -> bool:
        """Each record was taken by a consumer."""
        taken: int = sum(self._taken)
        return taken >= self._total.value

    def finish(self) -> None:
        """All that this consumer took is accepted, and the broker has said so."""
        self._answers.send((time.monotonic(), self._numbers.tobytes()))


Consumer = Callable[[str, str, Desk], None]
"""One consumer of a queue: address, name of the queue, desk. A plain function: it runs in a process of its own."""


class QueueBroker(Protocol):
    """A broker with queues, of any kind."""

    name: str
    address: str
    process: BrokerProcess
    consume: Consumer

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def create(self, queue: str) -> None: ...
    def fill(self, queue: str, records: int) -> None:
        """Put that many records in, acknowledged by the broker, with numbers that no record had before."""

    def nudge(self, queue: str) -> int:
        """Send a few records for consumers that know only by one that they are members; say how many."""

    def left(self, queue: str) -> int:
        """Records that wait in the queue or are with a consumer."""


def drain(broker: QueueBroker, queue: str, consumers: int, records: int) -> Drained:
    """Fill a new queue with `records` and have that many consumers empty it."""
    broker.create(queue)
    with _Team(broker, queue, consumers) as team:
        nudged = team.wait_until_ready()
        broker.fill(queue, records)
        before = team.taken()
        cpu_before_s, started_at_s = broker.process.cpu_seconds(), time.monotonic()
        team.go(nudged + records)
        finished_at_s, numbers = team.finish()
        used_s = broker.process.cpu_seconds() - cpu_before_s
    _check(broker, queue, nudged + records, numbers)
    return Drained(nudged + records - before, finished_at_s - started_at_s, used_s)


class _Team:
    """The consumer processes of one drain."""

    def __init__(self, broker: QueueBroker, queue: str, consumers: int) -> None:
        self._broker, self._queue = broker, queue
        self._taken = PROCESSES.RawArray("q", consumers)
        self._total = PROCESSES.Value("q", 1 << 62, lock=False)
        self._go = PROCESSES.Event()
        self._answers: list[Connection] = []
        self._processes: list[BaseProcess] = []

    def __enter__(self) -> "_Team":
        for index in range(len(self._taken)):
            ours, theirs = PROCESSES.Pipe()
            desk = Desk(index, self._taken, self._total, self._go, theirs)
            options = (self._broker.address, self._queue, desk)
            process = PROCESSES.Process(target=self._broker.consume, args=options, daemon=True)
            process.start()
            theirs.close()
            self._answers.append(ours)
            self._processes.append(process)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.join(READY_PAUSE_S if process.exitcode is None and not self._go.is_set() else STOP_TIMEOUT_S)
            if process.exitcode is None:
                process.kill()
                process.join()
        for answers in self._answers:
            answers.close()

    def wait_until_ready(self) -> int:
        """How many records it took to have all of them ready."""
        nudged, waiting = 0, list(self._answers)
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while waiting:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self._broker.name}: {len(waiting)} consumers are not ready")
            nudged += self._broker.nudge(self._queue)
            time.sleep(READY_PAUSE_S)
            for answers in [answers for answers in waiting if answers.poll()]:
                answers.recv()
                waiting.remove(answers)
        return nudged

    def taken(self) -> int:
        return sum(self._taken)

    def go(self, total: int) -> None:
        self._total.value = total
        self._go.set()

    def finish(self) -> "tuple[float, array[int]]":
        """When the last one was done, and the numbers of all records that were accepted."""
        last_s, numbers = 0.0, array("q")
        deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
        for answers in self._answers:
            if not answers.poll(max(0.0, deadline_s - time.monotonic())):
                raise TimeoutError(
                    f"{self._broker.name}: {self.taken()} of {self._total.value} records after a long wait"
                )
            finished_at_s, taken = answers.recv()
            last_s = max(last_s, finished_at_s)
            numbers.frombytes(taken)
        return last_s, numbers


def _check(broker: QueueBroker, queue: str, sent: int, numbers: "array[int]") -> None:
    different, left = len(set(numbers)), broker.left(queue)
    if len(numbers) != sent or different != sent or left:
        found = f"{len(numbers)} accepted, {different} different, {left} left"
        raise WrongCount(f"{broker.name}: of {sent} records {found}")


def payload(number: int) -> bytes:
    """A record that carries its number. The rest does not matter: nothing is compressed here."""
    return number.to_bytes(NUMBER_BYTES) + bytes(RECORD_BYTES - NUMBER_BYTES)


def number_in(record: bytes) -> int:
    return int.from_bytes(record[:NUMBER_BYTES])
