"""What a remote store costs: `python -m bench.peers [--seconds S] [--only SUBSTRING]`.

Appends to a store in this process, and to the same store in another process over loopback, one at a time and pipelined;
reads over loopback. CPU is per call: of the caller, and of the store's process. Batches have the sizes of small
and large produce requests. `os` mode unless said otherwise, so that the disk does not hide the rest."""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from bench.storage import batch

from headwater.cli.runtime import tune_interpreter
from headwater.model.ids import SegmentId, StoreId
from headwater.model.replica import Durability, Store
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import PeerAddress
from headwater.peers.remote_store import RemoteStore
from headwater.peers.store_server import StoreServer
from headwater.storage.options import MIB, StoreOptions
from headwater.storage.segment_store import SegmentStore

KIB = 1024
SIZES = (KIB, 16 * KIB, MIB)
PIPELINED = (1, 16, 128)
SECRET = b"only for measuring, 16 and more"
SEGMENT_BYTES = 256 * MIB


class NoTraffic:
    def connection_opened(self) -> None: ...

    def connection_closed(self) -> None: ...

    def bytes_in(self, count: int) -> None: ...

    def bytes_out(self, count: int) -> None: ...


async def serve(directory: Path) -> None:
    """The other process: says where it is, and serves until its input closes."""
    store = await SegmentStore.open(directory, options=StoreOptions())
    server = StoreServer(store, PeerIdentity.of(SECRET), NoTraffic())
    _, port = await server.listen("127.0.0.1", 0)
    print(store.store_id, port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.close()
    await store.close()


class Measured:
    """One store to append to: where it is, and whose CPU counts."""

    def __init__(self, store: Store, process: psutil.Process | None) -> None:
        self.store = store
        self.process = process
        self._segments = 0

    async def new_segment(self, durability: Durability) -> SegmentId:
        self._segments += 1
        segment = SegmentId(f"{os.getpid():016x}{self._segments:016x}")
        await self.store.create(segment, "p", 0, 1, b"", durability)
        return segment

    def cpu_s(self) -> float:
        if self.process is None:
            return 0.0
        times = self.process.cpu_times()
        return float(times.user + times.system)


@asynccontextmanager
async def local() -> AsyncIterator[Measured]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as directory:
        store = await SegmentStore.open(Path(directory), options=StoreOptions())
        yield Measured(store, None)
        await store.close()


@asynccontextmanager
async def remote() -> AsyncIterator[Measured]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as directory:
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-m", "bench.peers", "--serve", directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None and process.stdout is not None
        store_id, port = (await asyncio.to_thread(process.stdout.readline)).split()
        store = RemoteStore(StoreId(store_id.decode()), PeerAddress("127.0.0.1", int(port)), PeerIdentity.of(SECRET))
        try:
            await store.ping()
            yield Measured(store, psutil.Process(process.pid))
        finally:
            store.close()
            process.stdin.close()
            await asyncio.to_thread(process.wait)
            process.stdout.close()


async def measure_appends(
    measured: Measured, durability: Durability, size: int, depth: int, seconds: float
) -> tuple[int, float, float, float, list[float]]:
    """Calls, seconds, CPU of this process and of the other, latencies."""
    store = measured.store
    data = batch(0, size)
    latencies: list[float] = []
    segment = await measured.new_segment(durability)
    calls = 0
    offset = 0
    room = asyncio.Semaphore(depth)
    failed: list[BaseException] = []

    async def append(first: int, payload: bytes) -> None:
        start = time.perf_counter()
        try:
            await store.append(segment, first, first + 1, first, [payload])
        except Exception as error:
            failed.append(error)
        latencies.append(time.perf_counter() - start)
        room.release()

    start, cpu, other_cpu = time.perf_counter(), time.process_time(), measured.cpu_s()
    async with asyncio.TaskGroup() as tasks:
        while time.perf_counter() - start < seconds and offset * size < SEGMENT_BYTES and not failed:
            data[:8] = offset.to_bytes(8, "big")
            if depth == 1:
                began = time.perf_counter()
                await store.append(segment, offset, offset + 1, offset, [data])
                latencies.append(time.perf_counter() - began)
            else:
                await room.acquire()
                tasks.create_task(append(offset, bytes(data)))
            offset += 1
            calls += 1
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    if failed:
        raise failed[0]
    return calls, took, cpu, measured.cpu_s() - other_cpu, sorted(latencies)


async def report_appends(
    where: str, measured: Measured, durability: Durability, size: int, depth: int, s: float
) -> None:
    await measure_appends(measured, durability, size, depth, s / 4)
    calls, took, cpu, other, latencies = await measure_appends(measured, durability, size, depth, s)
    p50, p99 = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    print(
        f"{where:7} {durability.value:5} {size:>8} {depth:>5} {calls / took:>10.0f} {calls * size / took / 1e6:>9.1f} "
        f"{p50 * 1e6:>9.0f} {p99 * 1e6:>9.0f} {cpu / calls * 1e6:>8.1f} {other / calls * 1e6:>8.1f}",
        flush=True,
    )


async def report_reads(measured: Measured, read_bytes: int) -> None:
    segment = await measured.new_segment(Durability.OS)
    size, count = 16 * KIB, 8192
    for offset in range(count):
        await measured.store.append(segment, offset, offset + 1, offset, [batch(offset, size)])
    start, cpu, other = time.perf_counter(), time.process_time(), measured.cpu_s()
    offset = reads = 0
    while offset < count:
        offset += len(await measured.store.read(segment, offset, count, read_bytes)) // size
        reads += 1
    took, cpu, other = time.perf_counter() - start, time.process_time() - cpu, measured.cpu_s() - other
    print(
        f"{read_bytes:>8} {count * size / took / 1e6:>9.0f} {took / reads * 1e6:>9.0f} "
        f"{cpu / reads * 1e6:>8.1f} {other / reads * 1e6:>8.1f}"
    )


async def main(arguments: argparse.Namespace) -> None:
    stores: dict[str, Callable[[], Any]] = {"local": local, "remote": remote}
    print("where   mode     batch depth   append/s      MB/s    p50 us    p99 us  cpu us  store us")
    for durability in (Durability.OS, Durability.SYNC):
        for size in SIZES:
            for depth in PIPELINED:
                for where, open_store in stores.items():
                    if arguments.only in f"{where} {durability.value} {size} {depth}":
                        async with open_store() as measured:
                            await report_appends(where, measured, durability, size, depth, arguments.seconds)
    if arguments.only in "reads":
        print("\n    read      MB/s   us/read  cpu us  store us")
        for read_bytes in (16 * KIB, MIB, 4 * MIB):
            async with remote() as measured:
                await report_reads(measured, read_bytes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--only", default="", help="measure only what has this in its name, e.g. 'remote os 1024'")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    tune_interpreter()
    work: Coroutine[Any, Any, None] = serve(chosen.serve) if chosen.serve else main(chosen)
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)
