"""Many deadlines that mostly move later, at the price of one dictionary write per move.

A heartbeat postpones its member's deadline long before it falls due. The heap therefore holds at most one live
entry per key, usually an early one; when that entry comes up, the key goes back at its present deadline.
`next_ms` may thus be early, never late.
"""

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")

_MAX_SPARE_ORPHANS = 64


class _Deadline(Generic[K]):
    __slots__ = ("at_ms", "key", "queued_ms")

    def __init__(self, key: K, at_ms: int) -> None:
        self.key: K | None = key
        """None: an orphan. What is left of it in the heap must not keep the key alive."""
        self.at_ms = at_ms
        self.queued_ms = at_ms


class Deadlines(Generic[K]):
    """The deadlines of keys; None is not a key."""

    def __init__(self) -> None:
        self._deadlines: dict[K, _Deadline[K]] = {}
        self._heap: list[tuple[int, int, _Deadline[K]]] = []
        self._entries = 0

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, at_ms: int) -> None:
        deadline = self._deadlines.get(key)
        if deadline is None:
            deadline = self._deadlines[key] = _Deadline(key, at_ms)
            self._push(deadline)
            return
        deadline.at_ms = at_ms
        if at_ms < deadline.queued_ms:
            # The entry in the heap is now too late: leave it there, orphaned, and queue a new one.
            deadline.key = None
            deadline = self._deadlines[key] = _Deadline(key, at_ms)
            self._push(deadline)
            self._bound_orphans()

    def clear(self, key: K) -> None:
        deadline = self._deadlines.pop(key, None)
        if deadline is not None:
            deadline.key = None
            self._bound_orphans()

    def next_ms(self) -> int | None:
        """The earliest deadline or an earlier moment; None if there is no deadline."""
        while self._heap and self._heap[0][2].key is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> K | None:
        """Remove and return the key with the earliest deadline that has passed; None if none has."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, deadline = heapq.heappop(self._heap)
            key = deadline.key
            if key is None:
                continue
            if deadline.at_ms > now_ms:
                self._push(deadline)
                continue
            del self._deadlines[key]
            return key
        return None

    def _push(self, deadline: _Deadline[K]) -> None:
        deadline.queued_ms = deadline.at_ms
        self._entries += 1
        heapq.heappush(self._heap, (deadline.at_ms, self._entries, deadline))

    def _bound_orphans(self) -> None:
        if len(self._heap) <= 2 * len(self._deadlines) + _MAX_SPARE_ORPHANS:
            return
        self._heap = [entry for entry in self._heap if entry[2].key is not None]
        heapq.heapify(self._heap)
