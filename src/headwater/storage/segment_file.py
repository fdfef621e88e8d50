"""The file of a segment: the producers' batches, back to back, and nothing else.

A read is one `pread` of whole blocks and one checksum per block, whatever the number of batches; batches are
walked only inside a block, to find where to start or to stop. What is planned here (on the event loop, from
the index) is done by `execute`, which touches nothing but the bytes and may run in any thread.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from headwater.model.ids import FIRST_OFFSET, Offset
from headwater.model.replica import Buffer, CorruptReplica, OutOfSequence, SealedReplica
from headwater.records.batch import CorruptBatch, parse_header
from headwater.storage.batches import Batch, skim, walk
from headwater.storage.block_index import Block, BlockIndex

MAX_READ_BYTES: Final = 64 * 1024 * 1024
"""Of one call, whatever is asked for, if it is more than one block."""
_CHUNK_BYTES: Final = 4 * 1024 * 1024

_STEP: Final = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta: what it takes to go from batch to batch in verified bytes."""
_LENGTH_END: Final = 12

Read = Callable[[int, int], Buffer]
"""(length, position) -> bytes of the segment file."""


class Plan(NamedTuple):
    blocks: list[Block]
    offset: Offset
    limit: Offset
    max_bytes: int
    start: int | None
    """Where in the file the batch with the offset starts, if that is known without walking."""
    stop: int | None
    """Where the last batch that may be returned ends, if known."""

    @property
    def position(self) -> int:
        return self.blocks[0].position

    @property
    def length(self) -> int:
        return self.blocks[-1].stop - self.blocks[0].position


def plan(index: BlockIndex, offset: Offset, limit: Offset, end: Offset, max_bytes: int) -> Plan | None:
    """Which blocks to read for [offset, limit), where offset < limit <= end; None if there is no block for it."""
    count = len(index)
    if not count:
        return None
    max_bytes = min(max_bytes, MAX_READ_BYTES)
    number = index.number_of(offset)
    first = index[number]
    if first.base >= limit:
        return None
    start = first.position if offset <= first.base else index.landmarks.get(offset)
    if start is not None and not first.position <= start <= first.stop:
        start = None
    blocks = [first]
    goal = (first.position if start is None else start) + max_bytes
    number += 1
    following: Block | None = None
    while number < count:
        following = index[number]
        if following.base >= limit or following.stop > goal:
            break
        blocks.append(following)
        following = None
        number += 1
    last = blocks[-1]
    if limit >= end or (following is not None and following.base <= limit):
        stop: int | None = last.stop
    else:
        stop = index.landmarks.get(limit)
        if stop is not None and not last.position <= stop <= last.stop:
            stop = None
    return Plan(blocks, offset, limit, max_bytes, start, stop)


class Batches(NamedTuple):
    data: memoryview
    next_offset: Offset | None
    """Where to read on, if that is inside a block: there `next_position` spares a walk."""
    next_position: int


def execute(plan: Plan, data: Buffer) -> Batches:
    """The batches asked for, out of the bytes of the planned blocks, which are verified."""
    view = memoryview(data)
    verify(plan.blocks, view)
    origin = plan.position
    first_stop = plan.blocks[0].stop - origin
    start = plan.start - origin if plan.start is not None else _seek(view, 0, first_stop, plan.offset)
    stop = plan.stop - origin if plan.stop is not None else None
    if stop is None:
        last_start = plan.blocks[-1].position - origin
        stop = _seek_past(view, max(last_start, start), len(view), plan.limit)
    next_offset = None
    if stop - start > plan.max_bytes:
        stop, next_offset = _cut(view, start, stop, plan.max_bytes)
    return Batches(view[start:stop], next_offset, origin + stop)


def verify(blocks: list[Block], view: memoryview) -> None:
    """Each block has the bytes it was written with."""
    origin = blocks[0].position
    if len(view) < blocks[-1].stop - origin:
        raise CorruptReplica(f"the file ends at {origin + len(view)}, inside a block")
    for block in blocks:
        start = block.position - origin
        if crc32c(view[start : start + block.length]) != block.crc:
            raise CorruptReplica(f"block at position {block.position}, offset {block.base}: wrong checksum")


def find_in_block(block: Block, data: Buffer, timestamp: int) -> Offset:
    view = memoryview(data)
    verify([block], view)
    for batch in skim(view, 0, block.length):
        if batch.max_timestamp >= timestamp:
            return batch.base
    raise CorruptReplica(f"block at position {block.position} has no batch with its largest timestamp")


class Rebuilt(NamedTuple):
    """How far the bytes of a segment file are sound."""

    end: Offset
    size_bytes: int


def rebuild(index: BlockIndex, read: Read, base: Offset, size_bytes: int, lac: Offset) -> Rebuilt:
    """Extend the index, by walking the batches, from the last block it knows to `size_bytes` or as far as the
    batches are sound. `base` is where the offsets of the segment start."""
    position, expected = index.stop, base
    if len(index):
        block = index[len(index) - 1]
        for batch in walk(read(block.length, block.position), 0, block.length, block.base):
            expected = batch.stop
    chunk_bytes = _CHUNK_BYTES
    while position < size_bytes:
        want = min(chunk_bytes, size_bytes - position)
        data = memoryview(read(want, position))
        used = 0
        for batch in walk(data, 0, len(data), expected):
            used = batch.position + batch.size_bytes
            expected = batch.stop
            index.add(batch.base, batch.size_bytes, data[batch.position : used], batch.max_timestamp, lac)
        position += used
        if used:
            chunk_bytes = _CHUNK_BYTES
        elif (needed := _size_of_batch(data)) > want and needed <= size_bytes - position:
            chunk_bytes = needed
        else:
            break
    return Rebuilt(expected, position)


def checksum(read: Read, size_bytes: int) -> int:
    """Of the first bytes of the file."""
    crc = 0
    for position in range(0, size_bytes, _CHUNK_BYTES):
        crc = crc32c(read(min(_CHUNK_BYTES, size_bytes - position), position), crc)
    return crc


def drop_unsound_blocks(index: BlockIndex, read: Read, from_position: int) -> None:
    """Keep the blocks up to the first whose bytes are not what they were, looking from a position on."""
    for number in range(index.count):
        block = index[number]
        if block.stop > from_position and crc32c(read(block.length, block.position)) != block.crc:
            index.truncate(number)
            return


@dataclass(frozen=True, slots=True)
class Measured:
    sealed: SealedReplica
    index: BlockIndex


def measure(index: BlockIndex, read: Read, end: Offset) -> Measured:
    """Verify everything below `end`, and describe it; the index returned has it all in complete blocks. The one
    given is not changed."""
    crc = 0
    size = 0
    max_timestamp = -1
    whole = 0
    remainder: list[tuple[Batch, memoryview]] = []
    for number in range(len(index)):
        block = index[number]
        if block.base >= end:
            break
        view = memoryview(read(block.length, block.position))
        verify([block], view)
        following = index[number + 1] if number + 1 < len(index) else None
        if number < index.count and following is not None and following.base <= end:
            crc = crc32c(view, crc)
            size = block.stop
            max_timestamp = max(max_timestamp, block.max_timestamp)
            whole = number + 1
            continue
        for batch in skim(view, 0, block.length):
            if batch.base >= end:
                break
            if batch.stop > end:
                raise OutOfSequence(f"offset {end} is inside the batch [{batch.base}, {batch.stop})")
            data = view[batch.position : batch.position + batch.size_bytes]
            remainder.append((batch, data))
            crc = crc32c(data, crc)
            size = block.position + batch.position + batch.size_bytes
            max_timestamp = max(max_timestamp, batch.max_timestamp)
    exact = index.first_of(whole)
    for batch, data in remainder:
        exact.add(batch.base, batch.size_bytes, data, batch.max_timestamp, end)
    exact.close_tail()
    return Measured(SealedReplica(end, size, crc, max_timestamp), exact)


def locate(index: BlockIndex, read: Read, offset: Offset) -> int:
    """The position of the first batch that ends past the offset, or of the end of the file if there is none."""
    if not len(index):
        return 0
    block = index[index.number_of(offset)]
    view = memoryview(read(block.length, block.position))
    verify([block], view)
    return block.position + _seek(view, 0, block.length, offset)


class ReplicaPaths:
    """Names of the files of replicas. Plain strings: they are made for every append."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._prefix = f"{directory}/"

    def segment(self, name: str) -> str:
        return f"{self._prefix}{name}.log"

    def index(self, name: str) -> str:
        return f"{self._prefix}{name}.index"


def _seek(view: memoryview, position: int, stop: int, offset: Offset) -> int:
    """Where the first batch that ends past the offset starts."""
    while position < stop:
        base, length, last_delta = _STEP.unpack_from(view, position)
        if base + last_delta >= offset:
            return position
        position += _LENGTH_END + length
    return stop


def _seek_past(view: memoryview, position: int, stop: int, limit: Offset) -> int:
    """Where the first batch that ends past the limit starts."""
    while position < stop:
        base, length, last_delta = _STEP.unpack_from(view, position)
        if base + last_delta >= limit:
            return position
        position += _LENGTH_END + length
    return stop


def _cut(view: memoryview, start: int, stop: int, max_bytes: int) -> tuple[int, Offset]:
    """Where the last batch ends that ends within max_bytes, or the first batch if none does; and the offset there."""
    position = start
    next_offset = FIRST_OFFSET
    while position < stop:
        base, length, last_delta = _STEP.unpack_from(view, position)
        after = position + _LENGTH_END + length
        if position > start and after - start > max_bytes:
            break
        position = after
        next_offset = base + last_delta + 1
    return position, next_offset


def _size_of_batch(data: memoryview) -> int:
    try:
        return parse_header(data).size_bytes
    except CorruptBatch:
        return 0
