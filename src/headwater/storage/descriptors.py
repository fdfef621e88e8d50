"""Open files, bounded: the least recently used one that nobody holds is closed to make room.

Thread-safe. A file that is in use is never closed, so more than the limit may be open for a moment."""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.storage.files import Files


class _Open:
    __slots__ = ("fd", "holders", "is_forgotten")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.holders = 0
        self.is_forgotten = False


class Descriptors:
    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, _Open] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def borrow(self, path: Path, *, create: bool = False) -> Iterator[int]:
        """A descriptor that stays open for the length of the block, even if the file is forgotten meanwhile."""
        with self._lock:
            entry = self._open.get(path)
            if entry is None:
                entry = self._open[path] = _Open(self._files.open(path, create=create))
                if len(self._open) > self._limit:
                    self._close_one()
            else:
                self._open.move_to_end(path)
            entry.holders += 1
        try:
            yield entry.fd
        finally:
            with self._lock:
                entry.holders -= 1
                if entry.is_forgotten and not entry.holders:
                    self._files.close(entry.fd)

    def forget(self, path: Path) -> None:
        """The file is about to go away."""
        with self._lock:
            entry = self._open.pop(path, None)
            if entry is None:
                return
            entry.is_forgotten = True
            if not entry.holders:
                self._files.close(entry.fd)

    def close(self) -> None:
        with self._lock:
            for entry in self._open.values():
                entry.is_forgotten = True
                if not entry.holders:
                    self._files.close(entry.fd)
            self._open.clear()

    def _close_one(self) -> None:
        for path, entry in self._open.items():
            if not entry.holders and path is not next(reversed(self._open)):
                del self._open[path]
                self._files.close(entry.fd)
                return
