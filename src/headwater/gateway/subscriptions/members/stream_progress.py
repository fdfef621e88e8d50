"""How far a stream has been worked off, when its records end in any order: no I/O, no clock.

Committed is what lies before the first record that is open, and nothing behind it.
"""

from collections.abc import Iterable


class StreamProgress:
    def __init__(self) -> None:
        self._open: dict[int, dict[int, None]] = {}
        """By partition, offsets in the order in which they began, which is theirs."""
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def began(self, partition: int, offset: int) -> None:
        if offset < self._next.get(partition, 0):  # it went back: what is behind comes again
            self._open.pop(partition, None)
            self._committed.pop(partition, None)
        self._open.setdefault(partition, {})[offset] = None
        self._next[partition] = offset + 1

    def ended(self, partition: int, offset: int) -> None:
        self._open.get(partition, {}).pop(offset, None)

    def drop(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            for known in (self._open, self._next, self._committed):
                known.pop(partition, None)

    def to_commit(self) -> dict[int, int]:
        """By partition, where a reader would go on; only what has not been committed."""
        found = {}
        for partition, following in self._next.items():
            is_open = self._open.get(partition)
            offset = next(iter(is_open)) if is_open else following
            if offset != self._committed.get(partition):
                found[partition] = offset
        return found

    def committed(self, offsets: dict[int, int]) -> None:
        self._committed.update(offsets)
