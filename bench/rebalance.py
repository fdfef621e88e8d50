"""How long the records of a partition wait while members join and leave a consumer group (KIP-848).

A hundred members read two hundred partitions, and one record a partition goes in every tenth of a second. Then ten more
members join, one after the other, and leave again. The pause of a partition is the longest time between two of its
records in that phase, less the time that always lies between two. Partitions that stay with their member should not
pause at all; those that move show how long the group took to hand them over."""

import time
from array import array
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import median
from threading import Thread
from typing import Any, Self

from bench.drain import PROCESSES, WrongCount
from bench.measures import Figures, Server, create_topic
from bench.turns import Say
from confluent_kafka import Consumer, KafkaException, Producer

TOPIC = "moving"
PARTITIONS = 200
INTERVAL_S = 0.1
MEMBERS_A_PROCESS = 10
EVENT_INTERVAL_S = 2.0
STABLE_S = 6.0
"""Longer than the members' heartbeat interval: what has not changed for this long does not change by itself."""
STABLE_TIMEOUT_S = 90.0
CATCH_UP_TIMEOUT_S = 30.0
LOOP_PAUSE_S = 0.005
BATCH_RECORDS = 100
STOP_TIMEOUT_S = 30.0
MAX_RECORDS = 4_000_000
NO_MEMBER = -1


@dataclass(frozen=True, slots=True)
class Scale:
    members: int
    newcomers: int


FULL, QUICK = Scale(100, 10), Scale(100, 3)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Every record that came to some member: when, of which partition, to whom, with which offset."""

    at_s: "array[float]"
    partition: "array[int]"
    member: "array[int]"
    offset: "array[int]"

    @classmethod
    def none(cls) -> Self:
        return cls(array("d"), array("i"), array("i"), array("q"))

    def add(self, at_s: float, partition: int, member: int, offset: int) -> None:
        if len(self.at_s) >= MAX_RECORDS:
            raise RuntimeError("more records than a run can have")
        self.at_s.append(at_s)
        self.partition.append(partition)
        self.member.append(member)
        self.offset.append(offset)

    def join(self, other: Self) -> None:
        self.at_s.extend(other.at_s)
        self.partition.extend(other.partition)
        self.member.extend(other.member)
        self.offset.extend(other.offset)


def measure(server: Server, scale: Scale, say: Say) -> Figures:
    """Pauses in seconds: the longest of all, and the median of the partitions that changed hands."""
    server.start()
    create_topic(server, TOPIC, PARTITIONS)
    with _Group(server.bootstrap, scale) as group:
        say(f"{scale.members} members join")
        group.wait_until_stable(range(scale.members))
        steady_from_s = time.monotonic()
        time.sleep(EVENT_INTERVAL_S)
        steady_until_s = time.monotonic()
        say(f"{scale.newcomers} more join")
        group.let_newcomers("join")
        group.wait_until_stable(range(scale.members + scale.newcomers))
        joined_s = time.monotonic()
        say(f"{scale.newcomers} leave")
        group.let_newcomers("leave")
        group.wait_until_stable(range(scale.members))
        left_s = time.monotonic()
        say("catching up")
        arrivals, sent = group.finish()
    _check(server, arrivals, sent)
    return {
        **_pauses(arrivals, "without changes", steady_from_s, steady_until_s),
        **_pauses(arrivals, "at joins", steady_until_s, joined_s),
        **_pauses(arrivals, "at leaves", joined_s, left_s),
    }


class _Group:
    """The member processes and the producer. The last process holds the newcomers."""

    def __init__(self, bootstrap: str, scale: Scale) -> None:
        self._scale = scale
        self._owners = PROCESSES.RawArray("i", [NO_MEMBER] * PARTITIONS)
        self._stop = PROCESSES.Event()
        self._members: list[tuple[Any, Connection]] = []
        for first in range(0, scale.members, MEMBERS_A_PROCESS):
            numbers = range(first, min(first + MEMBERS_A_PROCESS, scale.members))
            self._members.append(self._process(_be_members, bootstrap, numbers, True, self._owners))
        newcomers = range(scale.members, scale.members + scale.newcomers)
        self._members.append(self._process(_be_members, bootstrap, newcomers, False, self._owners))
        self._producer = self._process(_produce, bootstrap, self._stop)

    def _process(self, work: Any, *arguments: Any) -> tuple[Any, Connection]:
        ours, theirs = PROCESSES.Pipe()
        process = PROCESSES.Process(target=work, args=(*arguments, theirs), daemon=True)
        return process, ours

    def __enter__(self) -> Self:
        for process, _ in self._all_processes():
            process.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self._stop.set()
        for process, _ in self._all_processes():
            if process.exitcode is None:
                process.kill()
            process.join()

    def _all_processes(self) -> list[tuple[Any, Connection]]:
        return [*self._members, self._producer]

    def wait_until_stable(self, members: range) -> None:
        """Until exactly these members get records, and for a while nothing has changed."""
        deadline_s = time.monotonic() + STABLE_TIMEOUT_S
        seen, since_s = [NO_MEMBER] * PARTITIONS, time.monotonic()
        while time.monotonic() < deadline_s:
            owners = list(self._owners)
            if owners != seen:
                seen, since_s = owners, time.monotonic()
            elif set(owners) == set(members) and time.monotonic() - since_s > STABLE_S:
                return
            self._must_live()
            time.sleep(INTERVAL_S)
        missing = sorted(set(members) - set(seen))
        raise TimeoutError(
            f"the group did not become stable: without records {missing}, beyond {set(seen) - set(members)}"
        )

    def let_newcomers(self, do: str) -> None:
        """One after the other."""
        orders = self._members[-1][1]
        for _ in range(self._scale.newcomers):
            orders.send(do)
            time.sleep(EVENT_INTERVAL_S)

    def finish(self) -> tuple[Arrivals, int]:
        """All that arrived, and how many records each partition was sent."""
        self._stop.set()
        sent: int = self._answer(self._producer)
        time.sleep(INTERVAL_S)
        arrivals = Arrivals.none()
        for _, connection in self._members:
            connection.send("finish")
        for member in self._members:
            arrivals.join(self._answer(member))
        return arrivals, sent

    def _answer(self, of: tuple[Any, Connection]) -> Any:
        _, connection = of
        if not connection.poll(CATCH_UP_TIMEOUT_S + STOP_TIMEOUT_S):
            raise TimeoutError("a process of the group gives no answer")
        return connection.recv()

    def _must_live(self) -> None:
        if any(process.exitcode is not None for process, _ in self._all_processes()):
            raise RuntimeError("a process of the group has ended")


def _be_members(bootstrap: str, numbers: range, at_once: bool, owners: Any, orders: Connection) -> None:
    """Several members of the group in one process; the newcomers among them join and leave on order."""
    arrivals, newcomers, finishing_until_s = Arrivals.none(), iter(numbers), float("inf")
    running = {number: _member(bootstrap, number) for number in newcomers} if at_once else {}
    while time.monotonic() < finishing_until_s:
        for number, consumer in running.items():
            for message in consumer.consume(BATCH_RECORDS, 0):
                if message.error() is not None:
                    raise KafkaException(message.error())
                arrivals.add(time.monotonic(), message.partition(), number, message.offset())
                owners[message.partition()] = number
        if orders.poll(LOOP_PAUSE_S):
            match orders.recv():
                case "join":
                    number = next(newcomers)
                    running[number] = _member(bootstrap, number)
                case "leave":
                    Thread(target=running.pop(min(running)).close).start()  # the others go on meanwhile
                case "finish":
                    finishing_until_s = time.monotonic() + STABLE_S
    orders.send(arrivals)


def _member(bootstrap: str, number: int) -> Consumer:
    options = {"bootstrap.servers": bootstrap, "group.id": TOPIC, "group.protocol": "consumer", "log_level": 0}
    consumer = Consumer(options | {"client.id": f"member-{number}", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    return consumer


def _produce(bootstrap: str, stop: Any, answers: Connection) -> None:
    """A record to each partition, again and again; at the end, how many each has got."""
    options = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
    producer = Producer(options | {"delivery.report.only.error": True})
    sent, next_s = 0, time.monotonic()
    while not stop.is_set():
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"record", partition=partition)
        sent += 1
        next_s += INTERVAL_S
        producer.poll(0)
        time.sleep(max(0.0, next_s - time.monotonic()))
    if producer.flush(STOP_TIMEOUT_S):
        raise TimeoutError("records were not acknowledged")
    answers.send(sent)


def _pauses(arrivals: Arrivals, when: str, from_s: float, until_s: float) -> Figures:
    last_s, last_member = [from_s] * PARTITIONS, [NO_MEMBER] * PARTITIONS
    longest_s, moved = [0.0] * PARTITIONS, set()
    for at in sorted(range(len(arrivals.at_s)), key=arrivals.at_s.__getitem__):
        at_s, partition, member = arrivals.at_s[at], arrivals.partition[at], arrivals.member[at]
        if not from_s <= at_s < until_s:
            continue
        longest_s[partition] = max(longest_s[partition], at_s - last_s[partition] - INTERVAL_S)
        if last_member[partition] not in (NO_MEMBER, member):
            moved.add(partition)
        last_s[partition], last_member[partition] = at_s, member
    figures = {f"pause {when}, longest": max(longest_s)}
    if moved:
        figures[f"pause {when}, partitions that moved"] = median(longest_s[partition] for partition in moved)
        figures[f"moved {when}"] = len(moved)
    return figures


def _check(server: Server, arrivals: Arrivals, sent: int) -> None:
    """A pause is worth nothing if records went missing in it. Twice is allowed: offsets are committed after reading."""
    seen: list[set[int]] = [set() for _ in range(PARTITIONS)]
    for partition, offset in zip(arrivals.partition, arrivals.offset, strict=True):
        seen[partition].add(offset)
    if lost := sum(sent - len(offsets) for offsets in seen):
        raise WrongCount(f"{server.name}: {lost} of {sent * PARTITIONS} records never arrived")
