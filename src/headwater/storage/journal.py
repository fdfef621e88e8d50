"""The journal: a few files of fixed size to which everything that must survive a power cut goes first.

The files are made once and then used over and over, because flushing bytes into blocks that were written before
costs a fraction of flushing into fresh ones. Each use is a new generation, and every entry names the one it
belongs to. A file is prepared (its generation written) before the first group goes into it.

Life of a file: prepared, active (one at a time), retired (full; a checkpoint is needed), prepared again.

`write` belongs to the writer's thread, `recycle` to that of the checkpoint; the rest is behind a lock.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.model.replica import Buffer
from headwater.storage.entry import (
    END_MARK,
    PREFIX_BYTES,
    EntryKind,
    EntryNumber,
    JournalEntry,
    Scan,
    encode,
    generation_of,
    newest_generation,
    scan,
)
from headwater.storage.files import Files, is_no_space
from headwater.storage.flush import flush, flush_directory

OVERHEAD_BYTES: Final = 2 * PREFIX_BYTES + len(END_MARK)
"""Of a file that holds one entry: its start, the entry's prefix, and the end mark."""

_FILE_SUFFIX: Final = ".journal"


@dataclass(slots=True)
class JournalFile:
    slot: int
    fd: int
    generation: int
    position: int


class Journal:
    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        file_bytes: int,
        max_files: int,
        salt: int,
        generation: int,
        group: int,
        on_full: Callable[[int, int], None],
    ) -> None:
        """Start with a fresh file of this generation, its first group being `group`. `on_full` is called, in the
        writer's thread, with the first generation and the first group that a checkpoint must leave alone."""
        self._files = files
        self._directory = directory
        self._file_bytes = file_bytes
        self._max_files = max_files
        self._salt = salt
        self._next_generation = generation
        self._group = group
        self._on_full = on_full
        self._changed = threading.Condition()
        self._preparing = threading.Lock()  # generations are queued in the order they are given
        self._prepared: deque[JournalFile] = deque()
        self._retired: deque[JournalFile] = deque()
        self._slots = 0
        self._refusal: Exception | None = None
        self._active = self._prepare_new()

    @property
    def generation(self) -> int:
        return self._active.generation

    @property
    def next_group(self) -> int:
        return self._group

    @property
    def capacity_bytes(self) -> int:
        """The largest payload that an entry can have."""
        return self._file_bytes - OVERHEAD_BYTES

    def write(self, entries: Sequence[JournalEntry]) -> None:
        """Write the entries as one group and flush. On ENOSPC (NoSpace, or OSError) nothing was promised, and the
        next group takes the place of this one."""
        buffers: list[Buffer] = []
        size = sum(PREFIX_BYTES + entry.payload_bytes for entry in entries)
        file = self._file_for(size + len(END_MARK))
        for ordinal, entry in enumerate(entries):
            buffers += encode(entry, EntryNumber(self._group, ordinal, len(entries)), file.generation, self._salt)
        buffers.append(END_MARK)
        self._files.pwritev(file.fd, buffers, file.position)
        flush(self._files, file.fd)
        file.position += size
        self._group += 1

    def recycle(self, first_live_generation: int) -> None:
        """All entries of earlier generations are in a checkpoint: their files may be used again."""
        while True:
            with self._preparing:
                with self._changed:
                    if not self._retired or self._retired[0].generation >= first_live_generation:
                        return
                    file = self._retired.popleft()
                self._start(file)
                with self._changed:
                    self._prepared.append(file)
                    self._changed.notify()

    def refuse(self, error: Exception) -> None:
        """A checkpoint failed: callers that wait for a file get its error, instead of waiting on."""
        with self._changed:
            self._refusal = error
            self._changed.notify()

    def close(self) -> None:
        for file in (self._active, *self._prepared, *self._retired):
            self._files.close(file.fd)

    def _file_for(self, size: int) -> JournalFile:
        if self._active.position + size > self._file_bytes:
            self._active = self._next_file()
        return self._active

    def _next_file(self) -> JournalFile:
        """Retire the active file, unless an earlier try did, and take a prepared one; wait for the checkpoint if
        there is none and no more may be made."""
        with self._preparing:
            if not self._prepared and self._slots < self._max_files:
                self._prepare_one_more()
            with self._changed:
                if not self._retired or self._retired[-1] is not self._active:
                    self._retired.append(self._active)
                    self._active.position = self._file_bytes  # a smaller group must not go into it after all
                self._refusal = None
                upcoming = self._prepared[0].generation if self._prepared else self._next_generation
        self._on_full(upcoming, self._group)
        with self._changed:
            while not self._prepared:
                if self._refusal is not None:
                    raise self._refusal
                self._changed.wait()
            return self._prepared.popleft()

    def _prepare_one_more(self) -> None:
        try:
            file = self._prepare_new()
        except OSError as error:
            if not is_no_space(error):
                raise
            return  # the files there are will be enough, if slower
        self._prepared.append(file)

    def _prepare_new(self) -> JournalFile:
        path = self._directory / f"{self._slots}{_FILE_SUFFIX}"
        fd = self._files.open(path, create=True)
        try:
            if self._files.size_bytes(fd) != self._file_bytes:
                self._files.truncate(fd, 0)
                self._files.allocate(fd, self._file_bytes)
            file = JournalFile(self._slots, fd, 0, 0)
            self._start(file)
            flush_directory(self._files, self._directory)
        except BaseException:
            self._files.close(fd)
            raise
        self._slots += 1
        return file

    def _start(self, file: JournalFile) -> None:
        generation = self._next_generation
        self._next_generation += 1
        start = encode(JournalEntry(EntryKind.START), EntryNumber(0, 0, 1), generation, self._salt)
        # Not flushed: the first group in the file is, and until then nothing in it counts.
        self._files.pwritev(file.fd, [*start, END_MARK], 0)
        file.generation = generation
        file.position = PREFIX_BYTES


@dataclass(frozen=True, slots=True)
class JournalReplay:
    entries: list[JournalEntry]
    next_generation: int
    next_group: int
    damage: str


def replay(files: Files, directory: Path, *, salt: int, first_generation: int, first_group: int) -> JournalReplay:
    """What the journal holds beyond the last checkpoint, which named the generation and group to start with."""
    live: list[tuple[int, int, bytes]] = []
    damage = ""
    for name in sorted(files.list(directory)):
        if not name.endswith(_FILE_SUFFIX):
            continue
        fd = files.open(directory / name)
        try:
            started = generation_of(files.pread(fd, PREFIX_BYTES, 0), salt)
            if started is not None and started[0] < first_generation:
                continue
            data = files.pread(fd, files.written_bytes(fd), 0)
        finally:
            files.close(fd)
        if started is not None:
            live.append((*started, data))
        elif (generation := newest_generation(data, salt)) is not None and generation >= first_generation:
            damage = damage or f"the start of generation {generation} cannot be read"
            live.append((generation, 0, data))
    live.sort(key=lambda item: item[0])

    entries: list[JournalEntry] = []
    last = EntryNumber(first_group - 1, 0, 1)
    for index, (generation, start, data) in enumerate(live):
        if generation != first_generation + index:
            damage = damage or f"generation {first_generation + index} is missing"
        result: Scan = scan(data, start, generation, salt, last)
        entries += result.entries
        damage = damage or result.damage
        last = result.last
    next_generation = live[-1][0] + 1 if live else first_generation
    return JournalReplay(entries, next_generation, last.group + 1, damage)
