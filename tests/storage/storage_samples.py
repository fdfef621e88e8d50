"""What the tests of the store share: batches, segments, and a store to try them on."""

import asyncio
import random
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from crc32c import crc32c

from headwater.model.ids import SegmentId
from headwater.model.replica import Durability, Store
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.files import MemoryFiles

DIRECTORY = Path("/data")
SEGMENTS = DIRECTORY / "segments"
KIB = 1024

SMALL = StoreOptions(
    journal_file_bytes=64 * KIB,
    journal_files=3,
    block_bytes=2 * KIB,
    open_files=8,
    reserve_bytes=0,
    low_water_bytes=0,
    runs_inline=True,
)

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def segment(number: int) -> SegmentId:
    return SegmentId(f"{number:032x}")


def batch(base: int, count: int = 1, size_bytes: int = 120, timestamp: int = 1_000, seed: int = 0) -> bytes:
    """A record batch as far as a store looks at it: the records are noise."""
    noise = random.Random(f"{base}-{seed}").randbytes(size_bytes - 61)
    body = struct.pack(">hiqqqhii", 0, count - 1, timestamp, timestamp, -1, -1, -1, count) + noise
    return struct.pack(">qiibI", base, len(body) + 9, 3, 2, crc32c(body)) + body


def spans(data: bytes | bytearray | memoryview) -> list[tuple[int, int]]:
    """First offset of each batch, and the one behind its last."""
    found = []
    position = 0
    while position < len(data):
        base, length = struct.unpack_from(">qi", data, position)
        found.append((base, base + struct.unpack_from(">i", data, position + 23)[0] + 1))
        position += 12 + length
    assert position == len(data), "whole batches only"
    return found


def bases(data: bytes | bytearray | memoryview) -> list[int]:
    """The base offsets of batches that lie back to back."""
    return [base for base, _ in spans(data)]


async def open_store(files: MemoryFiles, options: StoreOptions = SMALL) -> SegmentStore:
    return await SegmentStore.open(DIRECTORY, files=files, options=options)


async def create(store: Store, number: int = 1, durability: Durability = Durability.SYNC) -> SegmentId:
    await store.create(segment(number), f"topic.{number}", 0, 3, b"header", durability)
    return segment(number)


async def fill(store: Store, name: SegmentId, count: int, size_bytes: int = 120, first: int = 0) -> bytes:
    """Append so many batches of one record; return their bytes."""
    written = b""
    for offset in range(first, first + count):
        data = batch(offset, size_bytes=size_bytes, timestamp=1_000 + offset)
        assert await store.append(name, offset, offset + 1, offset, [data]) == offset + 1
        written += data
    return written


async def read_all(store: SegmentStore, name: SegmentId, max_bytes: int = 1 << 20) -> bytes:
    """All of a replica, by reading on from where the last read ended."""
    state = store.replica(name)
    assert state is not None
    result = b""
    offset = state.base
    while data := await store.read(name, offset, state.end, max_bytes):
        result += data
        offset = spans(data)[-1][1]
    return result
