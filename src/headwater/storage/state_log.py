"""The checkpoints of a store: what is known of every replica, so that the journal may forget it.

A file of the same entries as the journal. Each checkpoint is a group: the replicas that changed since the one
before, and at the end an entry that makes them count and says where in the journal to go on. When most of the file
is out of date, it is written anew beside the old one and takes its place.

A checkpoint that was cut off does not count; the part of the journal that it would have freed is still
there. One that was whole and is damaged leads to an earlier one, and the journal then lacks the generation that
follows: that is how the loss is noticed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.model.ids import Offset, SegmentId
from headwater.model.replica import Buffer
from headwater.storage.entry import (
    EntryKind,
    EntryNumber,
    JournalEntry,
    Scan,
    encode,
    generation_of,
    newest_generation,
    scan,
)
from headwater.storage.files import Files, read_file
from headwater.storage.flush import flush, replace_file

REWRITE_ABOVE_BYTES: Final = 1024 * 1024
"""A smaller file is not worth the trouble."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    first_generation: int
    """Of the journal: earlier ones are of no use any more."""
    first_group: int
    next_instance: int
    boot_id: str
    """The run of the operating system in which segments are written without a flush; empty if all are flushed."""


@dataclass(frozen=True, slots=True)
class LoadedState:
    entries: dict[SegmentId, JournalEntry]
    checkpoint: Checkpoint | None
    is_cut_off: bool
    damage: str


class StateLog:
    """Used by one thread at a time."""

    def __init__(self, files: Files, path: Path, salt: int) -> None:
        self._files = files
        self._path = path
        self._salt = salt
        self._generation = 0
        self._group = 1
        self._stop = 0
        self._rewritten_bytes = 0
        self._must_rewrite = True

    @property
    def must_rewrite(self) -> bool:
        """The next checkpoint has to name all replicas, not only those that changed."""
        return self._must_rewrite or self._stop > max(REWRITE_ABOVE_BYTES, 2 * self._rewritten_bytes)

    def load(self) -> LoadedState:
        data = read_file(self._files, self._path)
        if data is None:
            return LoadedState({}, None, False, "")
        damage = ""
        start = 0
        if (started := generation_of(data, self._salt)) is not None:
            self._generation, start = started
        else:
            self._generation = newest_generation(data, self._salt) or 0
            damage = "the start of the checkpoints cannot be read"
        result = scan(data, start, self._generation, self._salt, EntryNumber(0, 0, 1))
        replicas: dict[SegmentId, JournalEntry] = {}
        checkpoint: Checkpoint | None = None
        groups = _by_group(result)
        for number, group in enumerate(groups, 1):
            if number != group.number or (not group.is_whole and number < len(groups)):
                damage = damage or f"checkpoints: {result.damage}"
            elif not group.is_whole:
                break  # it was not flushed when the power went, so nothing was freed on its account
            _apply(group.entries, replicas)
            if group.entries[-1].kind == EntryKind.CHECKPOINT:
                checkpoint = _from_entry(group.entries[-1])
        is_cut_off = bool(result.damage) or not all(group.is_whole for group in groups)
        self._group = result.last.group + 1
        self._stop = self._rewritten_bytes = result.stop
        self._must_rewrite = bool(damage) or is_cut_off or result.stop != len(data)
        return LoadedState(replicas, checkpoint, is_cut_off, damage)

    def append(self, changes: Sequence[JournalEntry], checkpoint: Checkpoint) -> None:
        """Flushed when this returns. On ENOSPC the file is as it was."""
        assert not self._must_rewrite, "what cannot be read to its end cannot be continued"
        fd = self._files.open(self._path)
        try:
            buffers = self._encode([*changes, _to_entry(checkpoint)], self._generation, self._group)
            try:
                self._files.pwritev(fd, buffers, self._stop)
            except OSError:
                self._files.truncate(fd, self._stop)
                raise
            flush(self._files, fd)
        finally:
            self._files.close(fd)
        self._stop += sum(map(len, buffers))
        self._group += 1

    def rewrite(self, replicas: Iterable[JournalEntry], checkpoint: Checkpoint) -> None:
        """Flushed when this returns. On an error the old file is as it was."""
        generation = self._generation + 1
        buffers = encode(JournalEntry(EntryKind.START), EntryNumber(0, 0, 1), generation, self._salt)
        buffers += self._encode([*replicas, _to_entry(checkpoint)], generation, 1)
        replace_file(self._files, self._path, buffers)
        self._generation = generation
        self._group = 2
        self._stop = self._rewritten_bytes = sum(map(len, buffers))
        self._must_rewrite = False

    def _encode(self, entries: Sequence[JournalEntry], generation: int, group: int) -> list[Buffer]:
        buffers: list[Buffer] = []
        for ordinal, entry in enumerate(entries):
            buffers += encode(entry, EntryNumber(group, ordinal, len(entries)), generation, self._salt)
        return buffers


@dataclass(frozen=True, slots=True)
class _Group:
    number: int
    entries: list[JournalEntry]
    is_whole: bool


def _by_group(result: Scan) -> list[_Group]:
    found: dict[int, list[tuple[EntryNumber, JournalEntry]]] = {}
    for number, entry in zip(result.numbers, result.entries, strict=True):
        found.setdefault(number.group, []).append((number, entry))
    groups = []
    for group, rows in found.items():
        is_whole = [number.ordinal for number, _ in rows] == list(range(rows[0][0].total))
        groups.append(_Group(group, [entry for _, entry in rows], is_whole))
    return groups


def deleted(segment: SegmentId, instance: int) -> JournalEntry:
    return JournalEntry(EntryKind.DELETE, segment, instance)


def _apply(entries: Iterable[JournalEntry], replicas: dict[SegmentId, JournalEntry]) -> None:
    for entry in entries:
        if entry.kind == EntryKind.STATE:
            replicas[entry.segment] = entry
        elif entry.kind == EntryKind.DELETE:
            replicas.pop(entry.segment, None)


def _to_entry(checkpoint: Checkpoint) -> JournalEntry:
    return JournalEntry(
        EntryKind.CHECKPOINT,
        instance=checkpoint.next_instance,
        # Where other entries have offsets, a checkpoint has where the journal begins.
        first=Offset(checkpoint.first_generation),
        end=Offset(checkpoint.first_group),
        payload=(checkpoint.boot_id.encode(),) if checkpoint.boot_id else (),
    )


def _from_entry(entry: JournalEntry) -> Checkpoint:
    boot_id = bytes(entry.payload[0]).decode() if entry.payload else ""
    return Checkpoint(entry.first, entry.end, entry.instance, boot_id)
