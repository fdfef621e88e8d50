"""Room on the disk: a reserve for what must always be possible, and a line below which nothing new is begun."""

from pathlib import Path

from headwater.model.replica import NoSpace
from headwater.storage.files import Files, Room, is_no_space


class Reserve:
    """A file that is only there to be given up, so that fences and checkpoints fit on a full disk."""

    def __init__(self, files: Files, path: Path, size_bytes: int) -> None:
        self._files = files
        self._path = path
        self._size_bytes = size_bytes
        self._is_held = False

    def take(self, low_water_bytes: int) -> None:
        """Take the reserve, or take it back, if there is room for it and some more."""
        if self._is_held or not self._size_bytes:
            return
        try:
            fd = self._files.open(self._path, create=True)
        except OSError as error:
            if is_no_space(error):
                return
            raise
        try:
            if self._files.size_bytes(fd) != self._size_bytes:
                if self._files.room(self._path.parent).free_bytes < self._size_bytes + low_water_bytes:
                    return
                self._files.allocate(fd, self._size_bytes)
            self._is_held = True
        except OSError as error:
            if not is_no_space(error):
                raise
            self._files.truncate(fd, 0)
        finally:
            self._files.close(fd)

    def release(self) -> bool:
        """Give it up; say whether there was something to give."""
        was_there = self._path.name in self._files.list(self._path.parent)
        self._files.unlink(self._path)
        self._is_held = False
        return was_there


class LowWater:
    def __init__(self, files: Files, directory: Path, fraction: float, size_bytes: int) -> None:
        self._files = files
        self._directory = directory
        self._fraction = fraction
        self._size_bytes = size_bytes

    def room(self) -> Room:
        return self._files.room(self._directory)

    def line_bytes(self) -> int:
        total_bytes = self.room().total_bytes
        return min(int(total_bytes * self._fraction), self._size_bytes)

    def check(self, size_bytes: int = 0) -> None:
        """Raises NoSpace if less is free, or would be with so many bytes more, than must be for something new."""
        room = self.room()
        line_bytes = min(int(room.total_bytes * self._fraction), self._size_bytes)
        if room.free_bytes - size_bytes < line_bytes:
            raise NoSpace(f"{room.free_bytes} bytes are free, and {line_bytes} must be beside a new replica")
