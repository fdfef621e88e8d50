"""The newest batches of all partitions, in memory, so that readers who keep up never touch a file.

One budget for the whole broker: the oldest batch of all goes first. A partition's tail is contiguous up to its log end
offset. A batch is kept as the slice of the request that brought it; a slice that is small beside its request is copied,
so that little data cannot hold much memory.
"""

from bisect import bisect_right
from collections import deque

from headwater.model.ids import NO_OFFSET, Offset
from headwater.model.replica import Buffer

MAX_BATCHES = 200_000
_COPY_BELOW_SHARE = 4
_COMPACT_AT = 64
_MAX_LEFT_BEHIND = 1_000
"""Turns of batches that are gone, beyond which those are removed that are more than half of all."""


class TailCache:
    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._order: deque[Tail] = deque()
        """Whose turn it is to let go, one entry for each batch added. Batches that were cleared leave theirs behind,
        for a while: with it goes the tail of a partition that is no more."""
        self._left_behind = 0
        self.size_bytes = 0

    def add(self, tail: "Tail", base: Offset, end: Offset, batch: Buffer) -> None:
        if len(batch) > self._budget_bytes:
            self.clear(tail)
            return
        if isinstance(batch, memoryview) and len(batch) * _COPY_BELOW_SHARE < len(batch.obj):  # type: ignore[arg-type]
            batch = bytes(batch)
        tail.push(base, end, batch)
        self._order.append(tail)
        self.size_bytes += len(batch)
        while self.size_bytes > self._budget_bytes or len(self._order) > MAX_BATCHES:
            self._let_go()

    def resize(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        while self.size_bytes > self._budget_bytes:
            self._let_go()

    def clear(self, tail: "Tail") -> None:
        while size := tail.pop_oldest():
            self._forgot(size)
        self._tidy()

    def drop_below(self, tail: "Tail", offset: Offset) -> None:
        """Forget batches that end at or below `offset`: the log has something else there now, or nothing."""
        while tail.oldest_end <= offset and (size := tail.pop_oldest()):
            self._forgot(size)
        self._tidy()

    def _let_go(self) -> None:
        """Of the batch whose turn it is, or of the turn of one that is gone."""
        size = self._order.popleft().pop_oldest()
        if size:
            self.size_bytes -= size
        else:
            self._left_behind -= 1

    def _forgot(self, size: int) -> None:
        self.size_bytes -= size
        self._left_behind += 1

    def _tidy(self) -> None:
        """Each tail has as many turns as batches, the newest of those that it had."""
        if self._left_behind <= _MAX_LEFT_BEHIND or 2 * self._left_behind <= len(self._order):
            return
        kept: deque[Tail] = deque()
        turns: dict[Tail, int] = {}
        for tail in reversed(self._order):
            taken = turns.get(tail, 0)
            if taken < len(tail):
                turns[tail] = taken + 1
                kept.appendleft(tail)
        self._order = kept
        self._left_behind = 0


class Tail:
    """One partition's part of the cache."""

    __slots__ = ("_bases", "_batches", "_end", "_first")

    def __init__(self) -> None:
        self._bases: list[Offset] = []
        self._batches: list[Buffer] = []
        self._first = 0
        self._end = NO_OFFSET

    def __len__(self) -> int:
        """Batches that it holds."""
        return len(self._bases) - self._first

    def push(self, base: Offset, end: Offset, batch: Buffer) -> None:
        assert self._first == len(self._bases) or base == self._end, "a tail has no gaps"
        self._bases.append(base)
        self._batches.append(batch)
        self._end = end

    @property
    def oldest_end(self) -> Offset:
        second = self._first + 1
        return self._bases[second] if second < len(self._bases) else self._end

    def pop_oldest(self) -> int:
        """Let go of the oldest batch; return its size, 0 if there is none."""
        if self._first == len(self._bases):
            return 0
        size = len(self._batches[self._first])
        self._batches[self._first] = b""
        self._first += 1
        if self._first == len(self._bases) or (self._first >= _COMPACT_AT and self._first * 2 > len(self._bases)):
            del self._bases[: self._first], self._batches[: self._first]
            self._first = 0
        return size

    def read(self, offset: Offset, limit: Offset, max_bytes: int) -> list[Buffer] | None:
        """Batches from the one that holds `offset` on, ending at or below `limit`, at least one if there is one.
        None if `offset` is not in the tail."""
        first = bisect_right(self._bases, offset, self._first) - 1
        if first < self._first or offset >= self._end:
            return None
        found: list[Buffer] = []
        size = 0
        for index in range(first, len(self._bases)):
            end = self._bases[index + 1] if index + 1 < len(self._bases) else self._end
            batch = self._batches[index]
            if end > limit or (found and size + len(batch) > max_bytes):
                break
            found.append(batch)
            size += len(batch)
        return found
