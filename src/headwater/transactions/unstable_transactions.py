"""Transactions whose end is not committed: nothing from the first of them on is stable.

A transaction is unstable from its first batch until its marker is committed. The oldest bounds the last stable offset.
Transactions begin in the order of their first offsets, so the oldest is the first in line, whichever ends first.

With each goes the number of bytes that were appended before it: the difference between two such positions is how much
became stable, which is what a reader who waits for it wants to know.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from headwater.model.ids import Offset

NOTHING_UNSTABLE: Final = Offset(2**63 - 1)
UNKNOWN_BYTES: Final = 2**40
"""What lies between two transactions that were found at a start: too much to go on waiting."""


class UnstableTransactions:
    __slots__ = ("_ending", "_positions", "first_offset")

    def __init__(self, firsts: Iterable[Offset] = ()) -> None:
        """`firsts` are where transactions began that were found at a start."""
        found = sorted(firsts)
        self._positions = OrderedDict((first, (rank - len(found)) * UNKNOWN_BYTES) for rank, first in enumerate(found))
        self._ending: list[tuple[Offset, Offset]] = []
        """(marker, first offset) of transactions that have ended, but whose marker is not committed yet; by marker."""
        self.first_offset = NOTHING_UNSTABLE
        """Of the oldest."""
        self._look()

    def begin(self, first_offset: Offset, position_bytes: int) -> None:
        assert not self._positions or first_offset > next(reversed(self._positions)), "transactions begin in order"
        self._positions[first_offset] = position_bytes
        self._look()

    def end(self, first_offset: Offset, marker_offset: Offset) -> None:
        self._ending.append((marker_offset, first_offset))

    def commit(self, high_watermark: Offset) -> None:
        """Markers below are certain: their transactions are through."""
        ending = self._ending
        if ending and ending[0][0] < high_watermark:
            count = bisect_left(ending, (high_watermark,))
            for _, first_offset in ending[:count]:
                del self._positions[first_offset]
            del ending[:count]
            self._look()

    def truncate(self, offset: Offset) -> None:
        """Take back what began, and what ended, at or past `offset`."""
        while self._ending and self._ending[-1][0] >= offset:
            self._ending.pop()
        while self._positions and next(reversed(self._positions)) >= offset:
            self._positions.popitem()
        self._look()

    def stable_bytes(self, high_watermark: Offset, committed_bytes: int) -> int:
        """The position up to which everything is stable."""
        if self.first_offset >= high_watermark:
            return committed_bytes
        return self._positions[self.first_offset]

    def oldest_beside(self, first_offset: Offset) -> Offset | None:
        """The first offset of the oldest transaction, leaving out the one that begins at `first_offset`."""
        return next((first for first in self._positions if first != first_offset), None)

    def _look(self) -> None:
        self.first_offset = next(iter(self._positions), NOTHING_UNSTABLE)
