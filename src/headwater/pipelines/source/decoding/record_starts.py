"""Where each record begins: the chain of record lengths, which is the one thing that cannot be read all at once.

Within a batch each record's place depends on the one before. Many batches are followed together: the first record of
each in one step over arrays, then the second, and so on. Where only a few batches are left, they are followed one by
one, which is then faster.

Hostile bytes may lead the walk astray, but not out of the buffer (an IndexError), and for no more steps than there are
bytes. Whether the records found fill their batches is for the caller to check.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headwater.model.replica import Buffer
from headwater.records.batch import SMALLEST_RECORD_BYTES, BatchHeader, CorruptBatch
from headwater.records.record import read_varint

Integers: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

FEW_BATCHES: Final = 32
"""A step over arrays takes about as long as this many steps in Python."""
_LENGTH_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class Payload:
    """The records of one batch, unpacked: `data[start:end]` of a buffer that may hold several."""

    header: BatchHeader
    start: int
    end: int


def record_starts(data: Buffer, payloads: Sequence[Payload]) -> tuple[Integers, Integers]:
    """Where each record begins, and the number of its batch in `payloads`."""
    for payload in payloads:
        if payload.header.record_count * SMALLEST_RECORD_BYTES > payload.end - payload.start:
            size, count = payload.end - payload.start, payload.header.record_count
            raise CorruptBatch(f"{count} records do not fit into {size} bytes")
    counts = np.array([payload.header.record_count for payload in payloads], np.int64)
    starts = np.empty(int(counts.sum()), np.int64)
    longest_first = np.argsort(-counts, kind="stable")
    positions = np.array([payload.start for payload in payloads], np.int64)[longest_first]
    slots = (np.cumsum(counts) - counts)[longest_first]
    steps = _walk_together(data, counts[longest_first], positions, slots, starts)
    for batch, count in enumerate(counts[longest_first].tolist()):
        if count <= steps:
            break
        slot = int(slots[batch])
        starts[slot + steps : slot + count] = _walk_alone(data, int(positions[batch]), count - steps)
    return starts, np.repeat(np.arange(len(payloads)), counts)


def _walk_together(data: Buffer, counts: Integers, positions: Integers, slots: Integers, starts: Integers) -> int:
    """Follow all batches, the longest of which come first, while there are enough of them. Moves the positions, and
    returns how many records of each were found."""
    view = np.frombuffer(data, np.uint8)
    steps = 0
    for count in np.unique(counts).tolist():  # up to there, the same batches have records
        active = int(np.searchsorted(-counts, -count, side="right"))
        if active < FEW_BATCHES:
            break
        here, slot = positions[:active].copy(), slots[:active] + steps
        for _ in range(count - steps):
            starts[slot] = here
            slot += 1
            size = _SIZES[view[here + 1], view[here]]
            if not size.all():
                _measure_wide(data, here, size)
            here += size
        positions[:active] = here
        steps = count
    return steps


def _sizes() -> Integers:
    """Of a record with its length, by the second and the first byte of the length; 0 if that has more than two."""
    first, second = np.arange(256), np.arange(256)[:, np.newaxis]
    of_two = 2 + (first >> 1 & 0x3F) + (second << 6)
    return np.where(first < 0x80, 1 + (first >> 1) + 0 * second, np.where(second < 0x80, of_two, 0)).astype(np.int64)


_SIZES: Final = _sizes()


def _measure_wide(data: Buffer, positions: Integers, sizes: Integers) -> None:
    """Fill in the sizes of records whose length has three bytes or more."""
    for batch in np.flatnonzero(sizes == 0).tolist():
        position = int(positions[batch])
        sizes[batch] = _after(data, position) - position


def _walk_alone(data: Buffer, position: int, count: int) -> list[int]:
    """Nearly all lengths have one or two bytes and are read in place."""
    starts: list[int] = []
    append = starts.append
    for _ in range(count):
        append(position)
        low = data[position]
        if low < 0x80:
            position += 1 + (low >> 1)
            continue
        high = data[position + 1]
        if high < 0x80:
            position += 2 + (low >> 1 & 0x3F | high << 6)
        else:
            position = _after(data, position)
    return starts


def _after(data: Buffer, position: int) -> int:
    """Where the record after this one begins."""
    length, body = read_varint(data, position, _LENGTH_BYTES)
    if length < 0:
        raise CorruptBatch(f"record of {length} bytes")
    return body + length
