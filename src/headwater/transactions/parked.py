"""Requests that wait until the transaction before theirs is complete: for each transactional id in the order in which
they came, for a limited time, and not more than a limited number."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.model.deadlines import Deadlines
from headwater.transactions.effects import ReplyTo
from headwater.transactions.requests import Request


@dataclass(frozen=True, slots=True)
class Parked:
    request: Request
    to: ReplyTo
    until_ms: int


class ParkedRequests:
    def __init__(self, max_per_id: int, wait_ms: int) -> None:
        self._max_per_id = max_per_id
        self._wait_ms = wait_ms
        self._queues: dict[str, deque[Parked]] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        """Of the first in each queue: it came first, so its deadline is the first."""

    def add(self, request: Request, to: ReplyTo, now_ms: int) -> bool:
        """Whether there was room."""
        queue = self._queues.get(request.transactional_id, deque())
        if len(queue) >= self._max_per_id:
            return False
        queue.append(Parked(request, to, now_ms + self._wait_ms))
        if len(queue) == 1:
            self._queues[request.transactional_id] = queue
            self._deadlines.set(request.transactional_id, queue[0].until_ms)
        return True

    def first(self, transactional_id: str) -> Parked | None:
        queue = self._queues.get(transactional_id)
        return queue[0] if queue else None

    def take_first(self, transactional_id: str) -> Parked:
        queue = self._queues[transactional_id]
        taken = queue.popleft()
        if queue:
            self._deadlines.set(transactional_id, queue[0].until_ms)
        else:
            del self._queues[transactional_id]
            self._deadlines.clear(transactional_id)
        return taken

    def take_due(self, now_ms: int) -> Iterator[Parked]:
        """Take out the requests whose deadline has passed."""
        while (transactional_id := self._deadlines.take_due(now_ms)) is not None:
            yield self.take_first(transactional_id)

    def take_all(self) -> Iterator[Parked]:
        while self._queues:
            yield self.take_first(next(iter(self._queues)))

    def next_ms(self) -> int | None:
        return self._deadlines.next_ms()
