"""A file system in memory that fails on command, counts, and remembers every effect, so that a test can cut the power.

After a cut at any point, the disk may be in many states. All effects that a sync covers are there. Of the
others, each 512-byte sector of a file has the content of any moment since the last sync of that file, each
file has the length of any such moment, and each name that was given, changed or removed since the last sync
of its directory has taken effect or not. `CrashPoint` draws such states; each is a file system to boot on.
"""

import errno
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from headwater.model.replica import Buffer
from headwater.storage.files import DirectoryInUse, Room

SECTOR_BYTES: Final = 512
PLENTY_BYTES: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class Wrote:
    inode: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resized:
    inode: int
    length: int


@dataclass(frozen=True, slots=True)
class Synced:
    inode: int


@dataclass(frozen=True, slots=True)
class Named:
    path: Path
    inode: int


@dataclass(frozen=True, slots=True)
class Renamed:
    source: Path
    target: Path


@dataclass(frozen=True, slots=True)
class Unlinked:
    path: Path


@dataclass(frozen=True, slots=True)
class SyncedDirectory:
    path: Path


Effect: TypeAlias = Wrote | Resized | Synced | Named | Renamed | Unlinked | SyncedDirectory


@dataclass(slots=True)
class _Failure:
    operation: str
    error: int
    name_contains: str
    passes: int
    is_lasting: bool


class MemoryFiles:
    """Implements `Files`."""

    def __init__(self, *, boot_id: str = "boot-0", capacity_bytes: int = PLENTY_BYTES) -> None:
        self.effects: list[Effect] = []
        self.counts: Counter[str] = Counter()
        self.capacity_bytes = capacity_bytes
        self._boot_id = boot_id
        self._mutex = threading.RLock()
        self._contents: dict[int, bytearray] = {}
        self._names: dict[Path, int] = {}
        self._descriptors: dict[int, tuple[int, Path]] = {}
        self._locks: dict[int, Path] = {}
        self._next_number = 100
        self._failures: list[_Failure] = []

    # What tests do with it

    def fail(
        self, operation: str, error: int, *, name_contains: str = "", passes: int = 0, is_lasting: bool = False
    ) -> None:
        """Let an operation fail once (or from then on), after so many of its kind have passed."""
        self._failures.append(_Failure(operation, error, name_contains, passes, is_lasting))

    def heal(self) -> None:
        self._failures.clear()

    def used_bytes(self) -> int:
        live = set(self._names.values()) | {inode for inode, _ in self._descriptors.values()}
        return sum(len(content) for inode, content in self._contents.items() if inode in live)

    def flip_bit(self, path: Path, bit: int) -> None:
        self._contents[self._names[path]][bit // 8] ^= 1 << bit % 8

    def content(self, path: Path) -> bytes:
        return bytes(self._contents[self._names[path]])

    def set_content(self, path: Path, content: bytes) -> None:
        """Damage a file, unnoticed by the effects."""
        self._contents[self._names[path]][:] = content

    def paths(self) -> list[Path]:
        return sorted(self._names)

    def killed(self) -> "MemoryFiles":
        """The files as another process finds them after this one was killed: all that was written is there, and what
        was not synced can still be lost."""
        with self._mutex:
            files = MemoryFiles(boot_id=self._boot_id, capacity_bytes=self.capacity_bytes)
            files.effects = list(self.effects)
            files._contents = {inode: bytearray(content) for inode, content in self._contents.items()}
            files._names = dict(self._names)
            files._next_number = self._next_number
            return files

    def crash_point(self, effect_count: int | None = None) -> "CrashPoint":
        """The moment after so many effects, or now."""
        return CrashPoint(self.effects[:effect_count], self._boot_id)

    @classmethod
    def holding(cls, contents: dict[Path, bytes], boot_id: str) -> "MemoryFiles":
        """A disk that has these files, all of them synced."""
        files = cls(boot_id=boot_id)
        for path, content in contents.items():
            inode = files._new_number()
            files._contents[inode] = bytearray(content)
            files._names[path] = inode
            files.effects += [
                Named(path, inode),
                Wrote(inode, 0, content),
                Synced(inode),
                SyncedDirectory(path.parent),
            ]
        return files

    # The port

    def open(self, path: Path | str, *, create: bool = False) -> int:
        path = Path(path)
        with self._mutex:
            self._begin("open", path)
            inode = self._names.get(path)
            if inode is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
                inode = self._new_number()
                self._contents[inode] = bytearray()
                self._names[path] = inode
                self.effects.append(Named(path, inode))
            fd = self._new_number()
            self._descriptors[fd] = (inode, path)
            return fd

    def close(self, fd: int) -> None:
        with self._mutex:
            del self._descriptors[fd]
            self._locks.pop(fd, None)

    def size_bytes(self, fd: int) -> int:
        return len(self._contents[self._descriptors[fd][0]])

    def written_bytes(self, fd: int) -> int:
        return self.size_bytes(fd)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        with self._mutex:
            inode, path = self._descriptors[fd]
            self._begin("pread", path)
            return bytes(self._contents[inode][position : position + length])

    def pread_cached(self, fd: int, length: int, position: int) -> Buffer | None:
        return self.pread(fd, length, position)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        with self._mutex:
            inode, path = self._descriptors[fd]
            self._begin("pwritev", path)
            data = b"".join(buffers)
            growth = position + len(data) - len(self._contents[inode])
            room = self.room(path).free_bytes
            if growth > room:
                self._write(inode, position, data[: len(data) - growth + room])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            self._write(inode, position, data)

    def allocate(self, fd: int, length: int) -> None:
        with self._mutex:
            inode, path = self._descriptors[fd]
            self._begin("allocate", path)
            content = self._contents[inode]
            if length - len(content) > self.room(path).free_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            if length > len(content):
                content.extend(bytes(length - len(content)))
                self.effects.append(Resized(inode, length))

    def truncate(self, fd: int, length: int) -> None:
        with self._mutex:
            inode, path = self._descriptors[fd]
            self._begin("truncate", path)
            content = self._contents[inode]
            if length < len(content):
                del content[length:]
            else:
                content.extend(bytes(length - len(content)))
            self.effects.append(Resized(inode, length))

    def sync_data(self, fd: int) -> None:
        with self._mutex:
            inode, path = self._descriptors[fd]
            self._begin("sync_data", path)
            self.effects.append(Synced(inode))

    def sync_directory(self, path: Path) -> None:
        with self._mutex:
            self._begin("sync_directory", path)
            self.effects.append(SyncedDirectory(path))

    def rename(self, source: Path, target: Path) -> None:
        with self._mutex:
            self._begin("rename", source)
            self._names[target] = self._names.pop(source)
            self.effects.append(Renamed(source, target))

    def unlink(self, path: Path | str) -> None:
        path = Path(path)
        with self._mutex:
            self._begin("unlink", path)
            if self._names.pop(path, None) is not None:
                self.effects.append(Unlinked(path))

    def make_directory(self, path: Path) -> None:
        return

    def list(self, path: Path) -> list[str]:
        with self._mutex:
            return [name.name for name in self._names if name.parent == path]

    def room(self, path: Path) -> Room:
        return Room(max(self.capacity_bytes - self.used_bytes(), 0), self.capacity_bytes)

    def lock(self, path: Path) -> int:
        with self._mutex:
            if path in self._locks.values():
                raise DirectoryInUse(f"the data directory {path.parent} is in use by another process")
            fd = self.open(path, create=True)
            self._locks[fd] = path
            return fd

    def boot_id(self) -> str:
        return self._boot_id

    def _write(self, inode: int, position: int, data: bytes) -> None:
        content = self._contents[inode]
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        self.effects.append(Wrote(inode, position, data))

    def _begin(self, operation: str, path: Path) -> None:
        self.counts[operation] += 1
        for failure in self._failures:
            if failure.operation != operation or failure.name_contains not in str(path):
                continue
            if failure.passes:
                failure.passes -= 1
                continue
            if not failure.is_lasting:
                self._failures.remove(failure)
            raise OSError(failure.error, os.strerror(failure.error), str(path))

    def _new_number(self) -> int:
        self._next_number += 1
        return self._next_number


Choose: TypeAlias = Callable[[int], int]
"""Given the number of later moments, which one the disk has: 0 is what was synced, the highest the newest."""


class CrashPoint:
    """One moment at which the power goes."""

    def __init__(self, effects: Sequence[Effect], boot_id: str) -> None:
        self._effects = effects
        self._boot_id = boot_id

    def nothing_more(self) -> MemoryFiles:
        """Only what was synced is there."""
        return self._disk(lambda count: 0)

    def everything(self) -> MemoryFiles:
        """All that was written happens to be there."""
        return self._disk(lambda count: count)

    def draws(self, seed: int, count: int) -> Iterator[MemoryFiles]:
        """Some of the states in between."""
        for number in range(count):
            rng = random.Random(f"{seed}-{number}")
            # One draw in three leans to the old, one to the new, so that single lost and single kept sectors occur.
            lean = (0.1, 0.5, 0.9)[number % 3]
            yield self._disk(lambda moments, rng=rng, lean=lean: _lean(rng, lean, moments))  # type: ignore[misc]

    def _disk(self, choose: Choose) -> MemoryFiles:
        last_sync: dict[int, int] = {}
        last_directory_sync: dict[Path, int] = {}
        for at, effect in enumerate(self._effects):
            if isinstance(effect, Synced):
                last_sync[effect.inode] = at
            elif isinstance(effect, SyncedDirectory):
                last_directory_sync[effect.path] = at
        names: dict[Path, int] = {}
        data: dict[int, list[Wrote | Resized]] = {}
        synced: dict[int, int] = {}
        for at, effect in enumerate(self._effects):
            if isinstance(effect, Wrote | Resized):
                history = data.setdefault(effect.inode, [])
                history.append(effect)
                if at < last_sync.get(effect.inode, -1):
                    synced[effect.inode] = len(history)
            elif isinstance(effect, Named | Renamed | Unlinked):
                path = effect.target if isinstance(effect, Renamed) else effect.path
                if at < last_directory_sync.get(path.parent, -1) or choose(1):
                    _rename(names, effect)
        contents = {path: _content(data.get(inode, []), synced.get(inode, 0), choose) for path, inode in names.items()}
        return MemoryFiles.holding(contents, self._boot_id + "+")


def _lean(rng: random.Random, lean: float, moments: int) -> int:
    if rng.random() < 0.7:
        return moments if rng.random() < lean else 0
    return rng.randint(0, moments)


def _rename(names: dict[Path, int], effect: Named | Renamed | Unlinked) -> None:
    if isinstance(effect, Named):
        names[effect.path] = effect.inode
    elif isinstance(effect, Unlinked):
        names.pop(effect.path, None)
    elif effect.source in names:
        names[effect.target] = names.pop(effect.source)


def _content(history: Sequence[Wrote | Resized], synced: int, choose: Choose) -> bytes:
    content = bytearray()
    for effect in history[:synced]:
        _apply(content, effect)
    unsynced = history[synced:]
    if not unsynced:
        return bytes(content)
    lengths = [len(content)]
    sectors: dict[int, list[bytes]] = {}
    current = bytearray(content)
    for effect in unsynced:
        before = len(current)
        _apply(current, effect)
        if len(current) != lengths[-1]:
            lengths.append(len(current))
        if isinstance(effect, Wrote):
            touched = range(effect.position, effect.position + len(effect.data))
        else:
            touched = range(min(before, effect.length), before)
        for sector in range(touched.start // SECTOR_BYTES, -(-touched.stop // SECTOR_BYTES)):
            sectors.setdefault(sector, [_sector(content, sector)]).append(_sector(current, sector))
    result = bytearray(lengths[choose(len(lengths) - 1)])
    result[: len(content)] = content[: len(result)]
    for sector, moments in sectors.items():
        start = sector * SECTOR_BYTES
        stop = min(start + SECTOR_BYTES, len(result))
        if start < stop:
            result[start:stop] = moments[choose(len(moments) - 1)][: stop - start]
    return bytes(result)


def _sector(content: bytearray, sector: int) -> bytes:
    start = sector * SECTOR_BYTES
    return bytes(content[start : start + SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0")


def _apply(content: bytearray, effect: Wrote | Resized) -> None:
    if isinstance(effect, Resized):
        if effect.length < len(content):
            del content[effect.length :]
        else:
            content.extend(bytes(effect.length - len(content)))
        return
    if effect.position > len(content):
        content.extend(bytes(effect.position - len(content)))
    content[effect.position : effect.position + len(effect.data)] = effect.data
