"""Open files, bounded: the least recently used file that is not in use is closed to make room.

Thread-safe. A file that is in use is never closed, so more than the limit may be open for a moment."""

import threading
from collections import OrderedDict

from headwater.storage.files import Files


class Borrowed:
    """A descriptor that stays open for the length of a `with` block, even if the file is forgotten meanwhile."""

    __slots__ = ("_owner", "fd", "holders", "is_forgotten")

    def __init__(self, owner: "Descriptors", fd: int) -> None:
        self._owner = owner
        self.fd = fd
        self.holders = 0
        self.is_forgotten = False

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        self._owner.give_back(self)


class Descriptors:
    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Borrowed] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def borrow(self, path: str, *, create: bool = False) -> Borrowed:
        """To be used in a `with` statement, at once."""
        with self._lock:
            entry = self._open.get(path)
            if entry is None:
                entry = self._open[path] = Borrowed(self, self._files.open(path, create=create))
                entry.holders = 1
                if len(self._open) > self._limit:
                    self._close_one()
            else:
                self._open.move_to_end(path)
                entry.holders += 1
            return entry

    def give_back(self, entry: Borrowed) -> None:
        with self._lock:
            entry.holders -= 1
            if entry.is_forgotten and not entry.holders:
                self._files.close(entry.fd)

    def forget(self, path: str) -> None:
        """The file is about to go away."""
        with self._lock:
            entry = self._open.pop(path, None)
            if entry is not None:
                self._let_go(entry)

    def close(self) -> None:
        with self._lock:
            for entry in self._open.values():
                self._let_go(entry)
            self._open.clear()

    def _let_go(self, entry: Borrowed) -> None:
        entry.is_forgotten = True
        if not entry.holders:
            self._files.close(entry.fd)

    def _close_one(self) -> None:
        for path, entry in self._open.items():
            if not entry.holders:
                del self._open[path]
                self._files.close(entry.fd)
                return
