"""Members with slow handlers on one queue, in a time of their own: who is lent what, and when everything is done.

A member settles what it holds when its handler is through with all of it, and asks again at once. One that finds
nothing waits; those are woken one at a time, the longest waiting first, as the broker does it.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

from headwater.queues.fair_lending import FairLending
from headwater.queues.log_read import CandidateBatch, LogRead
from headwater.queues.outcomes import AcknowledgedBatch, AcknowledgeType, AcquiredRange, AcquireMode
from headwater.queues.settings import QueueSettings
from headwater.queues.share_partition import SharePartition

START_MS = 1_000_000
MAX_EVENTS = 100_000


class SharingWorld:
    def __init__(self, handler_ms: dict[str, int], *, max_records: int = 500, **settings: Any) -> None:
        """What a handler takes for one record, by member. All wait from the beginning."""
        self.now_ms = START_MS
        self.handled: Counter[str] = Counter()
        self.loans: list[tuple[str, int]] = []
        self._handler_ms = handler_ms
        self._max_records = max_records
        self._settings = QueueSettings(**settings)
        self._share = SharePartition(self._settings)
        self._lending = FairLending()
        self._held: dict[str, list[AcquiredRange]] = {}
        self._bases: list[int] = []
        self._log_end = 0
        self._events: list[tuple[int, int, str | int]] = []
        self._order = count()
        self._waiters: deque[str] = deque()
        for member in handler_ms:
            self._wait(member)

    def run(self, batches: Iterable[tuple[int, int]]) -> None:
        """Batches arrive, each at a time (ms from now) and with that many records; until all of them are settled."""
        for at_ms, records in batches:
            self._at(self.now_ms + at_ms, records)
        for _ in range(MAX_EVENTS):
            if not self._events:
                break
            self.now_ms, _, what = heappop(self._events)
            if isinstance(what, int):
                self._arrive(what)
            else:
                self._settle(what)
                self._ask(what)
            self._wake_next()
        assert not self._events, "it never ends"
        assert self._share.start_offset == self._log_end, "everything is settled"

    def _at(self, at_ms: int, what: str | int) -> None:
        heappush(self._events, (at_ms, next(self._order), what))

    def _arrive(self, records: int) -> None:
        self._bases.append(self._log_end)
        self._log_end += records

    def _settle(self, member: str) -> None:
        held = self._held.pop(member, [])
        batches = [AcknowledgedBatch(each.first, each.last, [AcknowledgeType.ACCEPT]) for each in held]
        result = self._share.acknowledge(member, batches, self.now_ms)
        assert not result.error, "leases last longer than handlers"
        number = sum(each.last - each.first + 1 for each in held)
        self._lending.resolved(member, number, self.now_ms)
        self.handled[member] += number

    def _ask(self, member: str) -> None:
        offset = self._share.next_fetch_offset(self.now_ms)
        if offset is None or offset >= self._log_end:
            self._wait(member)
            return
        part = None
        if self._settings.is_fair:
            lease_ms = self._settings.record_lock_duration_ms
            supply = self._share.supply(self._log_end)
            part = self._lending.part(member, supply, self._max_records, lease_ms, self.now_ms)
        mode = AcquireMode.BATCH_OPTIMIZED if part is None else AcquireMode.RECORD_LIMIT
        wanted = self._max_records if part is None else part
        looked_at = self._share.end_offset
        read = self._read(offset, wanted)
        ranges = self._share.acquire(member, read, wanted, self.now_ms, mode).ranges
        number = sum(each.last - each.first + 1 for each in ranges)
        assert number, "there was something to take"
        self._lending.took(member, number, self._share.end_offset - looked_at, self.now_ms)
        self._held[member] = list(ranges)
        self.loans.append((member, number))
        self._at(self.now_ms + number * self._handler_ms[member], member)

    def _read(self, offset: int, wanted: int) -> LogRead:
        batches = list(self._batches(offset, wanted))
        return LogRead(offset, batches[-1].last_offset + 1, batches)

    def _batches(self, offset: int, wanted: int) -> Iterator[CandidateBatch]:
        for index in range(bisect_right(self._bases, offset) - 1, len(self._bases)):
            end = self._bases[index + 1] if index + 1 < len(self._bases) else self._log_end
            yield CandidateBatch(self._bases[index], end - 1)
            wanted -= end - max(self._bases[index], offset)
            if wanted <= 0:
                return

    def _wait(self, member: str) -> None:
        self._lending.waits(member, self.now_ms)
        self._waiters.append(member)

    def _wake_next(self) -> None:
        offset = self._share.next_fetch_offset(self.now_ms)
        if self._waiters and offset is not None and offset < self._log_end:
            self._ask(self._waiters.popleft())
            self._wake_next()
