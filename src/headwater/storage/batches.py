"""Record batches as the store sees them: runs of bytes with offsets, a timestamp and a checksum of their own."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.model.ids import Offset
from headwater.model.replica import Buffer, UnsoundBatch
from headwater.records.batch import CorruptBatch, check_crc, parse_header


class Run(NamedTuple):
    """Whole batches that lie back to back in one buffer. Offsets cover [base, stop)."""

    data: memoryview
    base: Offset
    stop: Offset
    max_timestamp: int


class Batch(NamedTuple):
    position: int
    size_bytes: int
    base: Offset
    stop: Offset
    max_timestamp: int


def check(buffers: Sequence[Buffer], first: Offset, end: Offset, run_bytes: int) -> list[Run]:
    """The buffers as runs of about `run_bytes`; refused unless they are sound batches within [first, end)."""
    runs: list[Run] = []
    expected = first
    try:
        for buffer in buffers:
            view = memoryview(buffer)
            size = len(view)
            position = start = 0
            base: Offset | None = None
            max_timestamp = -1
            while position < size:
                header = parse_header(view, position)
                check_crc(view, header, position)
                if header.base_offset < expected:
                    raise UnsoundBatch(f"batch at offset {header.base_offset}, after {expected} was reached")
                expected = header.last_offset + 1
                position += header.size_bytes
                if base is None:
                    base = header.base_offset
                if header.max_timestamp > max_timestamp:
                    max_timestamp = header.max_timestamp
                if position - start >= run_bytes or position == size:
                    runs.append(Run(view[start:position], base, expected, max_timestamp))
                    start, base, max_timestamp = position, None, -1
    except CorruptBatch as error:
        raise UnsoundBatch(str(error)) from error
    if expected > end:
        raise UnsoundBatch(f"batches reach offset {expected}, beyond the end {end} that was announced")
    return runs


def walk(data: Buffer, start: int, stop: int, expected: Offset) -> Iterator[Batch]:
    """The batches from `start` on, as far as they are sound: whole, with the right checksum and rising offsets."""
    view = memoryview(data)[:stop]
    position = start
    while position < stop:
        try:
            header = parse_header(view, position)
            check_crc(view, header, position)
        except CorruptBatch:
            return
        if header.base_offset < expected:
            return
        expected = header.last_offset + 1
        yield Batch(position, header.size_bytes, header.base_offset, expected, header.max_timestamp)
        position += header.size_bytes


def skim(data: Buffer, start: int, stop: int) -> Iterator[Batch]:
    """The batches of bytes whose checksum was verified as a whole."""
    position = start
    while position < stop:
        header = parse_header(data, position)
        yield Batch(position, header.size_bytes, header.base_offset, header.last_offset + 1, header.max_timestamp)
        position += header.size_bytes
