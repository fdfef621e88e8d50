"""Ranges of offsets by the time at which something about them is due.

Nothing is taken out when a range changes: the caller that pops a timer checks whether its range is still what it was.
The heap is made anew from what is true when too much of it is stale, so it stays as small as the window.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from headwater.model.ids import Offset

Timer: TypeAlias = tuple[int, Offset, Offset]
"""When, in ms; first and last offset."""

_SPARE_TIMERS: Final = 64


class RangeTimers:
    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Timer] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, at_ms: int, first: Offset, last: Offset) -> None:
        heappush(self._heap, (at_ms, first, last))

    def pop_due(self, now_ms: int) -> list[Timer]:
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heappop(self._heap))
        return due

    def next_ms(self, is_true: Callable[[Timer], bool]) -> int | None:
        """The earliest time of a range that still is what it was."""
        while self._heap:
            if is_true(self._heap[0]):
                return self._heap[0][0]
            heappop(self._heap)
        return None

    def prune(self, most: int, true_timers: Callable[[], Iterable[Timer]]) -> None:
        """Keep no more than about twice `most`, which is how many there can truly be."""
        if len(self._heap) > 2 * most + _SPARE_TIMERS:
            self._heap = list(true_timers())
            heapify(self._heap)
