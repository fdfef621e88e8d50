"""The window between a share partition's start and end offset: the state of each offset, kept as runs of equal state.

- Every offset of the window has exactly one status; neighbours of equal status are one run. Work and memory go with
  the number of runs, never with the number of offsets.
- Acknowledged and archived are both RESOLVED here: nothing treats them differently any more, and if it did, a window
  behind one record that waits for long could not stay small. So there are never more resolved runs than others plus
  one.
- The window begins with a record that is not resolved, or is empty.
"""

import enum
from bisect import bisect_right
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from headwater.model.ids import Offset
from headwater.queues.events import DeadLetterReason

_SPARE_READY: Final = 64


class RecordState(enum.IntEnum):
    """By how near a record is to being delivered: up to READY every member may have it, up to BLOCKED at most the
    member that holds the records before it, and up to WAITING it is available in the sense of Kafka. The numbers are
    not stored anywhere."""

    UNREAD = 0
    """Available, known from the log of events only: what the record says about its delivery is still to be read."""
    READY = 1
    """Available, and deliverable to every member."""
    BLOCKED = 2
    """Available, but behind another record of its key: only the member that holds that record may have it, if any
    does."""
    WAITING = 3
    """Available, but not due."""
    ACQUIRED = 4
    ARCHIVING = 5
    RESOLVED = 6


class RecordStatus(NamedTuple):
    state: RecordState
    delivery_count: int = 0
    """Deliveries that ended; of ARCHIVING, all."""
    backoff_until_ms: int = 0
    """The durable end of the last rest, which may be long past. 0: none."""
    until_ms: int = 0
    """WAITING: when it is due. ACQUIRED: when the lease ends."""
    holder: str = ""
    reason: DeadLetterReason | None = None


Run: TypeAlias = tuple[Offset, Offset, RecordStatus]
"""First and last offset, both included, and their status."""

NEVER_DELIVERED: Final = RecordStatus(RecordState.UNREAD)
RESOLVED: Final = RecordStatus(RecordState.RESOLVED)


class InFlight:
    __slots__ = ("_firsts", "_ready", "_statuses", "counts", "end", "start")

    def __init__(self, start: Offset) -> None:
        self.start = start
        self.end = start
        """Behind the last offset of the window."""
        self.counts = [0] * len(RecordState)
        """How many records are in each state."""
        self._firsts: list[Offset] = []
        self._statuses: list[RecordStatus] = []
        self._ready: list[Offset] = []
        """A heap in which the first offset of each READY or UNREAD run occurs, among others."""

    @property
    def run_count(self) -> int:
        return len(self._firsts)

    def runs(self, first: Offset, last: Offset, most: RecordState = RecordState.RESOLVED) -> list[Run]:
        """The runs of a range whose state is no later than `most`, cut to the range and to the window."""
        if first < self.start:
            first = self.start
        if last >= self.end:
            last = self.end - 1
        if first > last:
            return []
        firsts, statuses = self._firsts, self._statuses
        low = bisect_right(firsts, first) - 1
        high = low if low + 1 == len(firsts) or last < firsts[low + 1] else bisect_right(firsts, last) - 1
        if low == high:
            return [(first, last, statuses[low])] if statuses[low].state <= most else []
        found = [(first, firsts[low + 1] - 1, statuses[low])] if statuses[low].state <= most else []
        for index in range(low + 1, high):
            if statuses[index].state <= most:
                found.append((firsts[index], firsts[index + 1] - 1, statuses[index]))  # noqa: PERF401
        if statuses[high].state <= most:
            found.append((firsts[high], last, statuses[high]))
        return found

    def all_runs(self) -> list[Run]:
        return self.runs(self.start, self.end - 1)

    def at(self, offset: Offset) -> RecordStatus | None:
        if not self.start <= offset < self.end:
            return None
        return self._statuses[bisect_right(self._firsts, offset) - 1]

    def lowest_ready(self) -> Offset | None:
        """The lowest offset that is READY or UNREAD."""
        while self._ready:
            status = self.at(self._ready[0])
            if status is not None and status.state <= RecordState.READY:
                return self._ready[0]
            heappop(self._ready)
        return None

    def put(self, first: Offset, last: Offset, status: RecordStatus) -> None:
        """Give a range a status. It may reach behind the end; what it jumps over is then available and unread."""
        assert self.start <= first <= last, "a range lies in or behind the window"
        if last >= self.end:
            if first > self.end:
                self.put(self.end, first - 1, NEVER_DELIVERED)
            if first == self.end:
                self._grow(last, status)
                return
            self._grow(last, NEVER_DELIVERED)
        self._replace(first, last, status)

    def advance(self) -> None:
        """Let the start move over what is resolved."""
        if self._statuses and self._statuses[0].state is RecordState.RESOLVED:
            self.drop_below(self._firsts[1] if len(self._firsts) > 1 else self.end)

    def drop_below(self, offset: Offset) -> None:
        """Forget all below, and let the window begin there."""
        for first, last, status in self.runs(self.start, offset - 1):
            self.counts[status.state] -= last - first + 1
        if offset >= self.end:
            self._firsts, self._statuses, self._ready = [], [], []
            self.start = self.end = max(offset, self.end)
        elif offset > self.start:
            index = bisect_right(self._firsts, offset) - 1
            del self._firsts[:index], self._statuses[:index]
            self._firsts[0] = self.start = offset
            self._note_ready(offset, self._statuses[0])
        if self._statuses and self._statuses[0].state is RecordState.RESOLVED:
            self.advance()

    def _grow(self, last: Offset, status: RecordStatus) -> None:
        self.counts[status.state] += last - self.end + 1
        if not self._statuses or self._statuses[-1] != status:
            self._firsts.append(self.end)
            self._statuses.append(status)
            self._note_ready(self.end, status)
        self.end = last + 1

    def _replace(self, first: Offset, last: Offset, status: RecordStatus) -> None:
        firsts, statuses, counts = self._firsts, self._statuses, self.counts
        low = bisect_right(firsts, first) - 1
        high = low
        while True:
            run_last = firsts[high + 1] - 1 if high + 1 < len(firsts) else self.end - 1
            counts[statuses[high].state] -= min(run_last, last) - max(firsts[high], first) + 1
            if run_last >= last:
                break
            high += 1
        counts[status.state] += last - first + 1
        new_firsts, new_statuses = [first], [status]
        if run_last > last:
            if statuses[high] != status:
                new_firsts.append(last + 1)
                new_statuses.append(statuses[high])
                self._note_ready(last + 1, statuses[high])
        elif high + 1 < len(firsts) and statuses[high + 1] == status:
            high += 1
        if firsts[low] < first:
            if statuses[low] == status:
                new_firsts[0] = firsts[low]
            else:
                low += 1
        elif low > 0 and statuses[low - 1] == status:
            low -= 1
            new_firsts[0] = firsts[low]
        firsts[low : high + 1] = new_firsts
        statuses[low : high + 1] = new_statuses
        self._note_ready(new_firsts[0], status)

    def _note_ready(self, first: Offset, status: RecordStatus) -> None:
        if status.state > RecordState.READY:
            return
        heappush(self._ready, first)
        if len(self._ready) > 2 * len(self._firsts) + _SPARE_READY:
            self._ready = [
                first
                for first, status in zip(self._firsts, self._statuses, strict=True)
                if status.state <= RecordState.READY
            ]
            heapify(self._ready)
