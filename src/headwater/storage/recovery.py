"""What a store does when it opens: from checkpoint and journal back to the replicas as they were acknowledged.

1. The checkpoint gives the replicas; the journal, from where the checkpoint says, what happened since.
2. Bytes of appends in the journal that are not in their segment file are written there again.
3. If journal or checkpoint are damaged, anything may be missing, a fence included. All open replicas are
   then fenced and in doubt: they neither grow nor vote on what was committed, until their leaders have replaced them.
4. Segments in `os` mode were never in the journal: their files are scanned. The same run of the operating system:
   only the process died, and all that was written is there. Another one: every block is verified, and the
   replica is in doubt whatever was found.
5. Everything is flushed and goes into a checkpoint before the journal is used again.

Opening twice does the same as opening once, wherever the first time was interrupted.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headwater.logs.events import log_event
from headwater.model.ids import SegmentId
from headwater.model.replica import Buffer, Durability, SealedReplica
from headwater.storage import journal
from headwater.storage.block_index import BlockIndex, seed_of
from headwater.storage.entry import EntryKind, JournalEntry
from headwater.storage.files import Files, read_file
from headwater.storage.flush import flush, flush_directory, for_each
from headwater.storage.replica import Replica
from headwater.storage.segment_file import Rebuilt, ReplicaPaths, drop_unsound_blocks, rebuild
from headwater.storage.state_log import Checkpoint, LoadedState, StateLog

FIRST_GENERATION: Final = 1
FIRST_GROUP: Final = 1


@dataclass(slots=True)
class RecoveredReplicas:
    replicas: dict[SegmentId, Replica]
    next_generation: int
    next_group: int
    next_instance: int


@dataclass(slots=True)
class Recovery:
    files: Files
    directory: Path
    paths: ReplicaPaths
    state_log: StateLog
    salt: int
    block_bytes: int
    boot_id: str
    flush_threads: int
    _replicas: dict[SegmentId, Replica] = field(default_factory=dict)
    _missing_bytes: dict[Replica, list[tuple[int, Buffer]]] = field(default_factory=dict)
    _next_instance: int = 1
    _is_changed: bool = False

    def run(self) -> RecoveredReplicas:
        state = self.state_log.load()
        self._replicas = {segment: Replica.from_entry(entry) for segment, entry in state.entries.items()}
        first_generation, first_group = FIRST_GENERATION, FIRST_GROUP
        if state.checkpoint is not None:
            first_generation = state.checkpoint.first_generation
            first_group = state.checkpoint.first_group
            self._next_instance = state.checkpoint.next_instance
        replay = journal.replay(
            self.files,
            self.directory,
            salt=self.salt,
            first_generation=first_generation,
            first_group=first_group,
        )
        for entry in replay.entries:
            self._apply(entry)
        damage = state.damage or replay.damage
        if damage:
            self._distrust(damage)
        for_each(list(self._missing_bytes), self._restore, self.flush_threads)
        self._scan_unjournaled(state)
        self._remove_orphans(keeps_files=bool(damage))
        checkpoint = Checkpoint(replay.next_generation, replay.next_group, self._next_instance, self.boot_id)
        if self._is_changed or replay.entries or self.state_log.must_rewrite:
            flush_directory(self.files, self.paths.directory)
            self.state_log.rewrite((replica.to_entry() for replica in self._replicas.values()), checkpoint)
        else:
            self.state_log.append([], checkpoint)
        return RecoveredReplicas(self._replicas, replay.next_generation, replay.next_group, self._next_instance)

    def _apply(self, entry: JournalEntry) -> None:
        self._next_instance = max(self._next_instance, entry.instance + 1)
        replica = self._replicas.get(entry.segment)
        if entry.kind == EntryKind.STATE:
            if replica is None or replica.instance < entry.instance:
                self._replicas[entry.segment] = Replica.from_entry(entry)
                if replica is not None:
                    self._missing_bytes.pop(replica, None)  # a copy took its place
            return
        if replica is None or replica.instance != entry.instance:
            return  # deleted later on, as the checkpoint knows
        if entry.kind == EntryKind.APPEND:
            self._apply_append(replica, entry)
        elif entry.kind == EntryKind.FENCE:
            replica.is_fenced = replica.is_fence_durable = True
        elif entry.kind == EntryKind.DOUBT:
            replica.in_doubt = True
        elif entry.kind == EntryKind.SEAL:
            crc = int.from_bytes(entry.payload[0], "big")
            replica.seal(SealedReplica(entry.end, entry.position, crc, entry.max_timestamp))
        elif entry.kind == EntryKind.DELETE:
            del self._replicas[entry.segment]
            self._missing_bytes.pop(replica, None)

    def _apply_append(self, replica: Replica, entry: JournalEntry) -> None:
        if replica.is_sealed or entry.end <= replica.end:
            return  # the checkpoint has it
        if entry.first != replica.end or entry.position != replica.size_bytes:
            log_event("append_out_of_place", logging.ERROR, segment=entry.segment, first=entry.first, end=replica.end)
            replica.in_doubt = replica.is_fenced = True
            return
        if entry.payload:
            self._missing_bytes.setdefault(replica, []).append((entry.position, entry.payload[0]))
        replica.grow(entry.end, entry.position + entry.payload_bytes, entry.max_timestamp, entry.lac)

    def _distrust(self, damage: str) -> None:
        open_replicas = [replica for replica in self._replicas.values() if not replica.is_sealed]
        log_event("journal_damaged", logging.ERROR, detail=repr(damage), doubtful_replicas=len(open_replicas))
        for replica in open_replicas:
            replica.is_fenced = replica.is_fence_durable = True
            replica.in_doubt = True
        self._is_changed = True

    def _restore(self, replica: Replica) -> None:
        """Bring the segment file to what the journal says. After a crash of the process alone, it is."""
        parts = self._missing_bytes[replica]
        fd = self.files.open(self.paths.segment(replica.name), create=True)
        try:
            start = parts[0][0]
            content = b"".join(part for _, part in parts)
            if self.files.pread(fd, len(content), start) != content:
                self.files.pwritev(fd, [content], start)
            if self.files.size_bytes(fd) > replica.size_bytes:
                self.files.truncate(fd, replica.size_bytes)
            flush(self.files, fd)
        finally:
            self.files.close(fd)

    def _scan_unjournaled(self, state: LoadedState) -> None:
        was_clean = state.checkpoint is not None and not state.checkpoint.boot_id
        if was_clean and not state.is_cut_off and not state.damage:
            return
        is_same_boot = state.checkpoint is not None and state.checkpoint.boot_id == self.boot_id
        replicas = [
            replica
            for replica in self._replicas.values()
            if replica.durability is Durability.OS and not replica.is_sealed
        ]
        for_each(replicas, lambda replica: self._scan(replica, is_same_boot), self.flush_threads)
        self._is_changed = self._is_changed or bool(replicas)

    def _scan(self, replica: Replica, is_same_boot: bool) -> None:
        path = self.paths.segment(replica.name)
        try:
            fd = self.files.open(path)
        except FileNotFoundError:
            found, size_bytes = Rebuilt(replica.base, 0), 0
            index = BlockIndex(seed_of(replica.segment, replica.instance), self.block_bytes)
        else:
            try:
                size_bytes = self.files.size_bytes(fd)
                index, found = self._rebuild(replica, fd, size_bytes, is_same_boot)
                if found.size_bytes < size_bytes:
                    self.files.truncate(fd, found.size_bytes)
                flush(self.files, fd)
            finally:
                self.files.close(fd)
        self._cut_index(replica, index)
        if found.size_bytes < size_bytes or found.size_bytes < replica.synced_bytes or not is_same_boot:
            replica.in_doubt = True
            log_event(
                "replica_in_doubt",
                logging.WARNING,
                segment=replica.segment,
                end=found.end,
                dropped_bytes=size_bytes - found.size_bytes,
                same_boot=is_same_boot,
            )
        blocks = list(index.blocks())
        lac = max((block.lac for block in blocks), default=replica.lac)
        replica.shrink(found.end, found.size_bytes)
        replica.grow(found.end, found.size_bytes, max((block.max_timestamp for block in blocks), default=-1), lac)
        replica.synced_end, replica.synced_bytes = found.end, found.size_bytes

    def _rebuild(self, replica: Replica, fd: int, size_bytes: int, is_same_boot: bool) -> tuple[BlockIndex, Rebuilt]:
        def read(length: int, position: int) -> Buffer:
            return self.files.pread(fd, length, position)

        index = BlockIndex(seed_of(replica.segment, replica.instance), self.block_bytes)
        index.load(read_file(self.files, self.paths.index(replica.name)) or b"", size_bytes)
        if not is_same_boot:
            drop_unsound_blocks(index, read, replica.synced_bytes)
        return index, rebuild(index, read, replica.base, size_bytes, replica.lac)

    def _cut_index(self, replica: Replica, index: BlockIndex) -> None:
        if not index.is_file_longer:
            return
        fd = self.files.open(self.paths.index(replica.name), create=True)
        try:
            self.files.truncate(fd, index.written_bytes)
        finally:
            self.files.close(fd)

    def _remove_orphans(self, keeps_files: bool) -> None:
        """Files of replicas that were deleted, and of copies that were not finished. After damage they stay: they may
        be all that is left of a replica. A new one must not meet them, so their instances are not given out again."""
        names = {replica.name for replica in self._replicas.values()}
        for file_name in self.files.list(self.paths.directory):
            name = file_name.rpartition(".")[0]
            if keeps_files:
                self._next_instance = max(self._next_instance, _instance_in(name) + 1)
            elif name not in names:
                log_event("orphan_removed", file=file_name)
                self.files.unlink(self.paths.directory / file_name)


def _instance_in(name: str) -> int:
    try:
        return int(name.rpartition("-")[2], 16)
    except ValueError:
        return 0
