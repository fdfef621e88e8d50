"""Pushing one subscription: what to send next, what to send again and when, and what became of each record.

No I/O and no clock: deliveries, outcomes and `now_s` go in; attempts to make and records to acknowledge come out.
`jitter` gives numbers from 0 to 1.

A sequence is what must go one after the other: the records of a key or of a partition, or, without an order, each
record for itself. The head of a sequence that fails rests, and with it the sequence. Everything that was added is held
until it is acknowledged, dropped or given back.
"""

import enum
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headwater.gateway.push.window import Window
from headwater.gateway.subscriptions.members.deliveries import Delivery
from headwater.gateway.subscriptions.push_settings import PushSettings

HELD_PER_REQUEST = 2
"""Records taken for each request that may be under way, so that the next one is there when one ends."""
HELD_IN_ORDER = 8
"""With an order more are needed: many of them wait for others."""
HELD_AT_LEAST = 256
"""While nothing fails: a quick receiver needs few requests at a time, and more records than that in the time that it
takes to ask the cluster for the next ones."""
MAX_RETRY_AFTER_S = 3_600.0
_MAX_DOUBLINGS = 30

SequenceKey: TypeAlias = Any


class Answer(enum.Enum):
    TAKEN = "taken"
    FAILED = "failed"
    GONE = "gone"
    """The receiver wants nothing any more, for good."""


@dataclass(frozen=True, slots=True)
class Outcome:
    answer: Answer
    reason: str = ""
    retry_after_s: float | None = None
    """The receiver says itself when to come again."""


@dataclass(slots=True, eq=False)
class _Sequence:
    key: SequenceKey
    waiting: deque[Delivery] = field(default_factory=deque)
    is_busy: bool = False
    """Its head is under way, or rests."""


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """One request."""

    deliveries: tuple[Delivery, ...]
    sequences: tuple[_Sequence, ...]
    """Of each delivery."""
    round_number: int


@dataclass(frozen=True, slots=True)
class Decided:
    accepted: tuple[Delivery, ...] = ()
    rejected: tuple[Delivery, ...] = ()
    """Sent as often as is allowed: dead letters."""


class PushMachine:
    def __init__(self, settings: PushSettings, jitter: Callable[[], float]) -> None:
        self.settings = settings
        self.window = Window(settings.concurrency)
        self.is_failing = False
        """The last request to end failed."""
        self._jitter = jitter
        self._sequences: dict[SequenceKey, _Sequence] = {}
        self._ready: deque[_Sequence] = deque()
        self._resting: list[tuple[float, int, _Sequence]] = []
        self._held: dict[int, Delivery] = {}
        """By identity."""
        self._paused_until_s = 0.0
        self._count = 0

    @property
    def held(self) -> list[Delivery]:
        return list(self._held.values())

    @property
    def room(self) -> int:
        """How many records more are worth taking."""
        target = self.window.size * self.settings.batch_records
        if not self.is_failing:
            factor = HELD_PER_REQUEST if self.settings.order == "none" else HELD_IN_ORDER
            target = max(target * factor, HELD_AT_LEAST)
        return max(target - len(self._held), 0)

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Those of one partition in the order of their offsets."""
        for delivery in deliveries:
            self._held[id(delivery)] = delivery
            key = self._sequence_key(delivery)
            sequence = self._sequences.get(key)
            if sequence is None:
                sequence = self._sequences[key] = _Sequence(key)
            sequence.waiting.append(delivery)
            if not sequence.is_busy and len(sequence.waiting) == 1:
                self._ready.append(sequence)

    def attempts(self, now_s: float) -> Iterator[Attempt]:
        """What to send now."""
        rested = []
        while self._resting and self._resting[0][0] <= now_s:
            _, _, sequence = heapq.heappop(self._resting)
            sequence.is_busy = False
            rested.append(sequence)
        self._ready.extendleft(reversed(rested))
        if now_s < self._paused_until_s:
            return
        while self._ready and self.window.room:
            attempt = self._attempt()
            if attempt is not None:
                yield attempt

    def due_s(self) -> float | None:
        """When to ask again, though nothing has happened."""
        if self._ready and self.window.room:
            return self._paused_until_s
        return max(self._resting[0][0], self._paused_until_s) if self._resting and self.window.room else None

    def finished(self, attempt: Attempt, outcome: Outcome, now_s: float) -> Decided:
        """Records of the attempt that were dropped meanwhile are acknowledged all the same; whether that counts, the
        queue knows."""
        if outcome.answer is Answer.TAKEN:
            self.is_failing = False
            self.window.succeeded(attempt.round_number)
            for delivery, sequence in zip(attempt.deliveries, attempt.sequences, strict=True):
                self._held.pop(id(delivery), None)
                self._go_on(sequence)
            return Decided(accepted=attempt.deliveries)
        self.is_failing = True
        self.window.failed(attempt.round_number)
        if outcome.answer is Answer.GONE:  # not the record's fault: it is given back with all others
            return Decided()
        if outcome.retry_after_s is not None:
            rest_s = min(max(outcome.retry_after_s, 0.0), MAX_RETRY_AFTER_S)
            self._paused_until_s = max(self._paused_until_s, now_s + rest_s)
        return Decided(rejected=tuple(self._failed(attempt, now_s)))

    def drop(self, deliveries: Iterable[Delivery]) -> None:
        """They are not ours any more: not sent again, if that has not begun."""
        for delivery in deliveries:
            self._held.pop(id(delivery), None)

    def _attempt(self) -> Attempt | None:
        deliveries: list[Delivery] = []
        sequences: list[_Sequence] = []
        while self._ready and len(deliveries) < self.settings.batch_records:
            sequence = self._ready.popleft()
            before = len(deliveries)
            while sequence.waiting and len(deliveries) < self.settings.batch_records:
                delivery = sequence.waiting.popleft()
                if id(delivery) in self._held:
                    deliveries.append(delivery)
                    sequences.append(sequence)
            if len(deliveries) > before:
                sequence.is_busy = True
            else:
                self._sequences.pop(sequence.key, None)
        if not deliveries:
            return None
        return Attempt(tuple(deliveries), tuple(sequences), self.window.began())

    def _failed(self, attempt: Attempt, now_s: float) -> Iterator[Delivery]:
        again: dict[int, tuple[_Sequence, list[Delivery]]] = {}
        for delivery, sequence in zip(attempt.deliveries, attempt.sequences, strict=True):
            _, waiting = again.setdefault(id(sequence), (sequence, []))
            if id(delivery) not in self._held:
                continue
            delivery.failures += 1
            if self._is_given_up(delivery):
                del self._held[id(delivery)]
                yield delivery
            else:
                waiting.append(delivery)
        for sequence, waiting in again.values():
            sequence.waiting.extendleft(reversed(waiting))
            if waiting:
                self._count += 1
                due_s = now_s + self._rest_s(waiting[0].failures)
                heapq.heappush(self._resting, (due_s, self._count, sequence))
            else:
                self._go_on(sequence)

    def _is_given_up(self, delivery: Delivery) -> bool:
        limit = self.settings.attempts
        return limit is not None and attempts_made(delivery) >= limit

    def _go_on(self, sequence: _Sequence) -> None:
        if not sequence.is_busy:
            return
        sequence.is_busy = False
        if sequence.waiting:
            self._ready.append(sequence)
        else:
            self._sequences.pop(sequence.key, None)

    def _rest_s(self, failures: int) -> float:
        """Doubles with each failure; between half of it and all of it, so that records that failed together do not come
        together again."""
        longest_s = max(self.settings.max_backoff_ms, self.settings.backoff_ms) / 1000
        rest_s = self.settings.backoff_ms / 1000 * (1 << min(failures - 1, _MAX_DOUBLINGS))
        return min(rest_s, longest_s) * (0.5 + 0.5 * self._jitter())

    def _sequence_key(self, delivery: Delivery) -> SequenceKey:
        match self.settings.order:
            case "partition":
                return delivery.partition
            case "key" if delivery.key is not None:
                return (delivery.partition, delivery.key)
        return id(delivery)


def attempts_made(delivery: Delivery) -> int:
    """Failures here, and deliveries before this one that ended without a verdict, such as by a crash."""
    return delivery.failures + max(delivery.delivery_count - 1, 0)
