"""The block index of a segment: where offsets and timestamps are, and what checksum the bytes have.

A block is a run of whole batches of at least a certain size. The file beside the segment has one entry per
complete block; the last, growing block is known in memory only.

    offset size
       0    8  base offset of the first batch      8    8  position in the segment file
      16    8  max timestamp                      24    8  lac when the block was complete
      32    4  length                             36    4  crc32c of the block's bytes
      40    4  crc32c of this entry, seeded with the segment's id and instance

Blocks lie back to back and their base offsets rise, so an entry that is wrong, missing or of another segment is
noticed, and it and all behind it are built anew from the segment. The file is therefore never flushed
for safety, only to spare that work.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from headwater.model.ids import Offset
from headwater.storage.batches import Run

_ENTRY: Final = struct.Struct(">qQqqIII")
_COVERED_BYTES: Final = _ENTRY.size - 4
ENTRY_BYTES: Final = _ENTRY.size
assert ENTRY_BYTES == 44, "an entry has the size that is drawn"

MAX_LANDMARKS: Final = 32
"""Positions inside blocks where recent appends or reads ended, so that a read that goes on from there need not walk."""


class Block(NamedTuple):
    base: Offset
    position: int
    length: int
    crc: int
    max_timestamp: int
    lac: Offset

    @property
    def stop(self) -> int:
        return self.position + self.length


class BlockIndex:
    def __init__(self, seed: int, block_bytes: int) -> None:
        self._seed = seed
        self._block_bytes = block_bytes
        self.entries = bytearray()
        self.count = 0
        self.written_count = 0
        """How many entries, from the first, are in the file."""
        self.is_file_longer = False
        """The file has entries that do not count, and must be cut before more are written."""
        self.tail: Block | None = None
        self.landmarks: dict[Offset, int] = {}

    @property
    def stop(self) -> int:
        """The position in the segment file up to which blocks are known."""
        if self.tail is not None:
            return self.tail.stop
        return self[self.count - 1].stop if self.count else 0

    @property
    def written_bytes(self) -> int:
        return self.written_count * ENTRY_BYTES

    def __len__(self) -> int:
        """Blocks, the growing one included."""
        return self.count + (self.tail is not None)

    def __getitem__(self, number: int) -> Block:
        if number == self.count and self.tail is not None:
            return self.tail
        base, position, max_timestamp, lac, length, crc, _ = _ENTRY.unpack_from(self.entries, number * ENTRY_BYTES)
        return Block(base, position, length, crc, max_timestamp, lac)

    def blocks(self) -> Iterator[Block]:
        return (self[number] for number in range(len(self)))

    def number_of(self, offset: Offset) -> int:
        """The block that holds the offset, if any does: the last one that starts at or before it, or the first."""
        if self.tail is not None and offset >= self.tail.base:
            return self.count
        entries = self.entries
        found = bisect_right(range(self.count), offset, key=lambda n: _BASE.unpack_from(entries, n * ENTRY_BYTES)[0])
        return max(found - 1, 0)

    def extend(self, run: Run, lac: Offset) -> None:
        """The run was written behind everything else."""
        self.add(run.base, len(run.data), run.data, run.max_timestamp, lac)
        if self.tail is not None:
            self.remember(run.stop, self.tail.stop)

    def add(self, base: Offset, length: int, data: memoryview, max_timestamp: int, lac: Offset) -> None:
        tail = self.tail
        if tail is None:
            tail = Block(base, self.stop, length, crc32c(data), max_timestamp, lac)
        else:
            tail = Block(
                tail.base,
                tail.position,
                tail.length + length,
                crc32c(data, tail.crc),
                max(tail.max_timestamp, max_timestamp),
                lac,
            )
        self.tail = tail
        if tail.length >= self._block_bytes:
            self.close_tail()

    def close_tail(self) -> None:
        """The growing block is complete: because it is large enough, or because the segment is."""
        tail = self.tail
        if tail is None:
            return
        body = _ENTRY.pack(tail.base, tail.position, tail.max_timestamp, tail.lac, tail.length, tail.crc, 0)
        self.entries += body[:_COVERED_BYTES]
        self.entries += crc32c(body[:_COVERED_BYTES], self._seed).to_bytes(4, "big")
        self.count += 1
        self.tail = None

    def load(self, content: bytes, size_bytes: int) -> None:
        """Take over the entries of a file, as far as they are right and within the segment."""
        stop = 0
        base = -1
        good = 0
        view = memoryview(content)
        for entry in _ENTRY.iter_unpack(view[: len(content) - len(content) % ENTRY_BYTES]):
            at = good * ENTRY_BYTES
            if entry[1] != stop or entry[0] <= base or not entry[4] or stop + entry[4] > size_bytes:
                break
            if crc32c(view[at : at + _COVERED_BYTES], self._seed) != entry[6]:
                break
            base = entry[0]
            stop += entry[4]
            good += 1
        self.entries = bytearray(view[: good * ENTRY_BYTES])
        self.count = self.written_count = good
        self.is_file_longer = len(content) > good * ENTRY_BYTES
        self.tail = None

    def truncate(self, count: int) -> None:
        """Keep the first blocks only."""
        del self.entries[count * ENTRY_BYTES :]
        self.count = count
        self.is_file_longer = self.is_file_longer or self.written_count > count
        self.written_count = min(self.written_count, count)
        self.tail = None
        self.landmarks.clear()

    def first_of(self, count: int) -> "BlockIndex":
        """A new index of the first blocks."""
        index = BlockIndex(self._seed, self._block_bytes)
        index.entries = self.entries[: count * ENTRY_BYTES]
        index.count = count
        index.written_count = min(self.written_count, count)
        index.is_file_longer = self.is_file_longer or self.written_count > count
        return index

    def first_since(self, timestamp: int) -> Block | None:
        """The first block that has a batch whose largest timestamp is not before this one."""
        for number, entry in enumerate(_ENTRY.iter_unpack(bytes(self.entries))):
            if entry[2] >= timestamp:
                return self[number]
        return self.tail if self.tail is not None and self.tail.max_timestamp >= timestamp else None

    def unwritten(self) -> tuple[bytes, int]:
        """Entries that are not in the file yet, and where in it they belong."""
        at = self.written_count * ENTRY_BYTES
        return bytes(self.entries[at:]), at

    def remember(self, offset: Offset, position: int) -> None:
        """Batches that end past the offset start at the position."""
        landmarks = self.landmarks
        landmarks[offset] = position
        if len(landmarks) > MAX_LANDMARKS:
            del landmarks[next(iter(landmarks))]


_BASE: Final = struct.Struct(">q")


def seed_of(segment: str, instance: int) -> int:
    seed: int = crc32c(bytes.fromhex(segment) + instance.to_bytes(8, "big"))
    return seed
