"""The block indexes that are in memory, bounded by their size, and the files they come from.

An index is loaded when its replica is first touched: from its file as far as that is right, and from the
segment itself beyond. Loading changes no file, so it may run in any thread; all else belongs to the event loop.
"""

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from headwater.logs.events import log_event
from headwater.model.ids import Offset
from headwater.model.replica import Buffer
from headwater.storage.block_index import BlockIndex, seed_of
from headwater.storage.descriptors import Descriptors
from headwater.storage.files import Files, is_no_space
from headwater.storage.replica import Replica
from headwater.storage.segment_file import Read, ReplicaPaths, checksum, rebuild

WRITE_AFTER_BLOCKS: Final = 16
"""Complete blocks that are known in memory only, before they are written to the index file."""


@dataclass(frozen=True, slots=True)
class Loaded:
    index: BlockIndex
    end: Offset
    size_bytes: int


class BlockIndexCache:
    def __init__(
        self, files: Files, paths: ReplicaPaths, descriptors: Descriptors, *, block_bytes: int, max_bytes: int
    ) -> None:
        self._files = files
        self._paths = paths
        self._descriptors = descriptors
        self._block_bytes = block_bytes
        self._max_bytes = max_bytes
        self._held: OrderedDict[Replica, int] = OrderedDict()
        self._held_bytes = 0

    def reader(self, replica: Replica) -> Read:
        path = self._paths.segment(replica.name)

        def read(length: int, position: int) -> Buffer:
            try:
                with self._descriptors.borrow(path) as fd:
                    return self._files.pread(fd, length, position)
            except FileNotFoundError:
                return b""

        return read

    def load(self, replica: Replica, end: Offset, size_bytes: int) -> Loaded:
        """The index of a replica that has this end and size, or as much of it as its file can prove."""
        index = self.empty(replica)
        if not size_bytes:
            return Loaded(index, end, 0)
        content: Buffer = b""
        try:
            with self._descriptors.borrow(self._paths.index(replica.name)) as fd:
                content = self._files.pread(fd, self._files.size_bytes(fd), 0)
        except FileNotFoundError:
            pass
        index.load(bytes(content), size_bytes)
        if index.stop == size_bytes:
            return Loaded(index, end, size_bytes)
        read = self.reader(replica)
        found = rebuild(index, read, replica.base, size_bytes, replica.lac)
        if replica.sealed_crc is not None and checksum(read, found.size_bytes) != replica.sealed_crc:
            # A batch's own checksum leaves out its offset and epoch: without the index it is unknown which are right.
            return Loaded(self.empty(replica), replica.base, 0)
        if found.size_bytes == size_bytes and found.end <= end:
            return Loaded(index, end, size_bytes)  # the end may be past the last batch: compaction leaves holes
        return Loaded(index, found.end, found.size_bytes)

    def empty(self, replica: Replica) -> BlockIndex:
        """The index of a replica without bytes."""
        return BlockIndex(seed_of(replica.segment, replica.instance), self._block_bytes)

    def hold(self, replica: Replica, index: BlockIndex) -> None:
        replica.index = index
        self.touch(replica, index)

    def touch(self, replica: Replica, index: BlockIndex) -> None:
        """The index was used, or has grown; others may have to go for it."""
        if replica.index is not index:
            return  # dropped or replaced meanwhile
        size = len(index.entries)
        self._held_bytes += size - self._held.get(replica, 0)
        self._held[replica] = size
        self._held.move_to_end(replica)
        if self._held_bytes > self._max_bytes:
            self._make_room(replica)

    def _make_room(self, keep: Replica) -> None:
        for victim in list(self._held):
            if victim is keep or victim.pending or victim.is_sealing:
                continue  # what is being written needs its index in memory
            self.write(victim)
            self.drop(victim)
            if self._held_bytes <= self._max_bytes:
                return

    def drop(self, replica: Replica) -> None:
        self._held_bytes -= self._held.pop(replica, 0)
        replica.index = None

    def write_if_due(self, replica: Replica) -> None:
        index = replica.index
        if index is not None and index.count - index.written_count >= WRITE_AFTER_BLOCKS:
            self.write(replica)

    def write(self, replica: Replica) -> None:
        """Put complete blocks into the index file, unflushed. An index that finds no room can be built again."""
        index = replica.index
        if index is None or index.count == index.written_count:
            return
        try:
            write_index(self._files, self._descriptors, self._paths, replica, index)
        except OSError as error:
            if not is_no_space(error):
                raise
            log_event("index_not_written", logging.WARNING, segment=replica.segment, error=error)
        else:
            replica.is_index_unsynced = True

    def held(self) -> list[Replica]:
        return list(self._held)


def write_index(
    files: Files, descriptors: Descriptors, paths: ReplicaPaths, replica: Replica, index: BlockIndex
) -> None:
    content, position = index.unwritten()
    with descriptors.borrow(paths.index(replica.name), create=True) as fd:
        if index.is_file_longer:
            files.truncate(fd, position)
            index.is_file_longer = False
        files.pwritev(fd, [content], position)
    index.written_count = index.count
