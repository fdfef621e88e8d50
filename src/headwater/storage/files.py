"""The few things a store asks of a file system, so that a test can take its place and fail, record or lose them.

What the callers rely on, and no more: a write is kept by a crash of the machine only after `sync_data` of
its file returned; a name given, changed or removed only after `sync_directory` of its directory
did. Before that, any 512-byte sector and any name may be there or not, in any combination.

Descriptors are plain integers; all calls may be made from any thread.
"""

import contextlib
import errno
import fcntl
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from headwater.model.replica import Buffer

NO_SPACE_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that mean "not now": what was asked for did not fit, and nothing that was there is lost."""

_MAX_BUFFERS: Final = min(os.sysconf("SC_IOV_MAX"), 1024)
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"


class Room(NamedTuple):
    free_bytes: int
    total_bytes: int


class DirectoryInUse(Exception):
    """Another process has this data directory open."""


class Files(Protocol):
    def open(self, path: Path | str, *, create: bool = False) -> int:
        """A descriptor for reading and writing. FileNotFoundError if it is not there and not to be created."""

    def close(self, fd: int) -> None: ...

    def size_bytes(self, fd: int) -> int: ...

    def written_bytes(self, fd: int) -> int:
        """The length of the file without the room at its end that was allocated and never written."""

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def pread_cached(self, fd: int, length: int, position: int) -> Buffer | None:
        """The same, if that needs no waiting for the device."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write all of them, one after the other. After an error any part may have been written."""

    def allocate(self, fd: int, length: int) -> None:
        """Make the file `length` bytes long and give it that room on the disk, or raise ENOSPC."""

    def truncate(self, fd: int, length: int) -> None: ...

    def sync_data(self, fd: int) -> None:
        """Return when all bytes written to the file, and its length, are on the device."""

    def sync_directory(self, path: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path | str) -> None:
        """Nothing happens if it is not there."""

    def make_directory(self, path: Path) -> None:
        """With its parents, and there to stay; nothing happens if it is there."""

    def list(self, path: Path) -> list[str]: ...

    def room(self, path: Path) -> Room: ...

    def lock(self, path: Path) -> int:
        """A descriptor that keeps others out until it is closed. Raises DirectoryInUse."""

    def boot_id(self) -> str:
        """Names the run of the operating system: a new one means that what was not synced may be gone."""


class SystemFiles:
    """The file system of the machine."""

    def open(self, path: Path | str, *, create: bool = False) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o640)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size_bytes(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def written_bytes(self, fd: int) -> int:
        size = os.fstat(fd).st_size
        stop = 0
        try:
            while stop < size:
                stop = os.lseek(fd, os.lseek(fd, stop, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no more data behind the last hole
                return size
        return stop

    def pread(self, fd: int, length: int, position: int) -> bytes:
        data = os.pread(fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        have = len(data)
        while have < length and (data := os.pread(fd, length - have, position + have)):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def pread_cached(self, fd: int, length: int, position: int) -> Buffer | None:
        data = bytearray(length)
        try:
            count = os.preadv(fd, [data], position, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.pread(fd, length, position)  # a file system that cannot say
        return data if count == length else None

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        for start in range(0, len(buffers), _MAX_BUFFERS):
            chunk = buffers[start : start + _MAX_BUFFERS] if len(buffers) > _MAX_BUFFERS else buffers
            size = sum(map(len, chunk))
            written = os.pwritev(fd, chunk, position)
            if written < size:
                self._write_rest(fd, chunk, position, written)
            position += size

    def _write_rest(self, fd: int, buffers: Sequence[Buffer], position: int, written: int) -> None:
        """The kernel may write less than asked: at a full disk, or beyond 2 GiB. The next call says why."""
        rest = memoryview(b"".join(buffers))[written:]
        position += written
        while rest:
            count = os.pwrite(fd, rest, position)
            rest = rest[count:]
            position += count

    def allocate(self, fd: int, length: int) -> None:
        os.posix_fallocate(fd, 0, length)

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def sync_data(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)  # noqa: PTH105 - the port speaks of names, not of Path objects

    def unlink(self, path: Path | str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108

    def make_directory(self, path: Path) -> None:
        if path.is_dir():
            return
        self.make_directory(path.parent)
        path.mkdir(mode=0o750, exist_ok=True)  # as the files in it: nothing is for everybody on the machine
        self.sync_directory(path.parent)

    def list(self, path: Path) -> list[str]:
        try:
            return os.listdir(path)  # noqa: PTH208
        except FileNotFoundError:
            return []

    def room(self, path: Path) -> Room:
        stat = os.statvfs(path)
        return Room(stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize)

    def lock(self, path: Path) -> int:
        fd = self.open(path, create=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise DirectoryInUse(f"the data directory {path.parent} is in use by another process") from None
        return fd

    def boot_id(self) -> str:
        try:
            with open(_BOOT_ID_PATH, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return uuid.uuid4().hex  # unknown, so every run counts as a new one


def is_no_space(error: OSError) -> bool:
    return error.errno in NO_SPACE_ERRNOS


def read_file(files: Files, path: Path | str) -> bytes | None:
    """All of a file, or None if it is not there."""
    try:
        fd = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return files.pread(fd, files.size_bytes(fd), 0)
    finally:
        files.close(fd)
