"""How fast the store appends and reads: `python -m bench.storage [--directory DIR] [--seconds S]`.

Each figure is one store, warmed up until the journal is recycled where `sync` mode is measured, so that flushes go to
blocks that were written before, as in a broker that has run for a while."""

import argparse
import asyncio
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crc32c import crc32c

from headwater.model.ids import SegmentId
from headwater.model.replica import Durability
from headwater.storage.options import MIB, StoreOptions
from headwater.storage.segment_store import SegmentStore

SIZES = (200, 16 * 1024, MIB)
APPENDERS = (1, 16, 64)
JOURNAL_FILE_BYTES = {200: MIB, 16 * 1024: 16 * MIB, MIB: 64 * MIB}
"""A small journal is recycled within the warm-up even by small appends."""
DATA_BYTES = 256 * MIB
"""Of all segments together. Older ones are deleted, so that a virtual machine does not touch new memory all along."""


def batch(base: int, size_bytes: int) -> bytearray:
    body = struct.pack(">hiqqqhii", 0, 0, 1, 1, -1, -1, -1, 1) + bytes(size_bytes - 61)
    return bytearray(struct.pack(">qiibI", base, len(body) + 9, 1, 2, crc32c(body)) + body)


class Appender:
    """Appends one batch after the other, to a new segment when one is full."""

    def __init__(
        self, store: SegmentStore, number: int, size_bytes: int, durability: Durability, segment_bytes: int = 1 << 40
    ) -> None:
        self.store = store
        self.segment_bytes = segment_bytes
        self.number = number
        self.durability = durability
        self.batch = batch(0, size_bytes)
        self.segments = 0
        self.end = self.base = 0
        self.segment = SegmentId("")
        self.latencies: list[float] = []

    async def run(self, until: float) -> None:
        while time.perf_counter() < until:
            if not self.segment or (self.end - self.base) * len(self.batch) > self.segment_bytes:
                await self.roll()
            struct.pack_into(">q", self.batch, 0, self.end)
            start = time.perf_counter()
            await self.store.append(self.segment, self.end, self.end + 1, self.end, [self.batch])
            self.latencies.append(time.perf_counter() - start)
            self.end += 1

    async def roll(self) -> None:
        if self.segment:
            state = self.store.replica(self.segment)
            assert state is not None
            await self.store.delete(self.segment, state.instance)
        self.segments += 1
        self.base = self.end
        self.segment = SegmentId(f"{self.number:08x}{self.segments:024x}")
        await self.store.create(self.segment, "p", self.base, 1, b"", self.durability)


@contextmanager
def directory(parent: str | None) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="headwater-bench-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path)


async def measure_appends(parent: str | None, durability: Durability, size: int, count: int, seconds: float) -> str:
    with directory(parent) as path:
        options = StoreOptions(journal_file_bytes=JOURNAL_FILE_BYTES[size])
        store = await SegmentStore.open(path, options=options)
        appenders = [Appender(store, number, size, durability, DATA_BYTES // count) for number in range(count)]
        warm_up = 1.0 if durability is Durability.SYNC else 0.2
        await asyncio.gather(*(appender.run(time.perf_counter() + warm_up) for appender in appenders))
        for appender in appenders:
            appender.latencies.clear()
        start, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(appender.run(start + seconds) for appender in appenders))
        took, cpu = time.perf_counter() - start, time.process_time() - cpu
        latencies = sorted(latency for appender in appenders for latency in appender.latencies)
        await store.close()
    total = len(latencies)
    p50, p99 = latencies[total // 2], latencies[min(total * 99 // 100, total - 1)]
    return (
        f"{durability.value:5} {size:>8} {count:>4} {total / took:>10.0f} {total * size / took / 1e6:>9.1f} "
        f"{p50 * 1e6:>9.0f} {p99 * 1e6:>9.0f} {cpu / total * 1e6:>8.1f}"
    )


async def measure_reads(parent: str | None, batch_bytes: int, read_bytes: int, total_bytes: int) -> str:
    with directory(parent) as path:
        store = await SegmentStore.open(path)
        appender = Appender(store, 0, batch_bytes, Durability.OS)
        await appender.roll()
        count = total_bytes // batch_bytes
        for offset in range(count):
            struct.pack_into(">q", appender.batch, 0, offset)
            await store.append(appender.segment, offset, offset + 1, offset, [appender.batch])
        start, cpu = time.perf_counter(), time.process_time()
        offset = done = reads = 0
        while offset < count:
            data = await store.read(appender.segment, offset, count, read_bytes)
            offset += len(data) // batch_bytes
            done += len(data)
            reads += 1
        took, cpu = time.perf_counter() - start, time.process_time() - cpu
        await store.close()
    speed, each = done / took / 1e6, took / reads * 1e6
    return f"{batch_bytes:>8} {read_bytes:>8} {speed:>9.0f} {each:>9.0f} {cpu / done * 1e9:>9.3f}"


async def main(arguments: argparse.Namespace) -> None:
    print("mode    batch  par   append/s      MB/s    p50 us    p99 us  cpu us")
    for durability in Durability:
        for size in SIZES:
            for count in APPENDERS:
                print(await measure_appends(arguments.directory, durability, size, count, arguments.seconds))
    print("\n   batch     read      MB/s  us/read  cpu s/GB")
    for batch_bytes in (200, 16 * 1024, MIB):
        for read_bytes in (16 * 1024, MIB):
            total_bytes = 20 * MIB if batch_bytes == 200 else 200 * MIB
            print(await measure_reads(arguments.directory, batch_bytes, read_bytes, total_bytes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", help="where to put the data: the disk that is measured")
    parser.add_argument("--seconds", type=float, default=1.5)
    sys.setswitchinterval(0.0005)
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(parser.parse_args()))
    else:
        uvloop.run(main(parser.parse_args()))
