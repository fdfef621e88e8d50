"""What a remote store costs: `python -m bench.peers [--seconds S] [--only SUBSTRING]`, and what TLS between nodes adds:
`python -m bench.peers --tls-rounds 7`, which measures with and without in turn.

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
from statistics import median
from typing import Any

import psutil
from bench.storage import batch

from headwater.cli.runtime import tune_interpreter
from headwater.cli.security.authority import Authority
from headwater.model.ids import SegmentId, StoreId
from headwater.model.replica import Durability, Store
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.peers.identity import PeerIdentity, PeerTls
from headwater.peers.messages import PeerAddress
from headwater.peers.remote_store import RemoteStore
from headwater.peers.store_server import StoreServer
from headwater.storage.options import MIB, StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.transport.tls import ClientCertificates, ServerTlsFiles
from headwater.transport.tls_reload import ReloadedTls

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


async def identity(tls: Path | None) -> PeerIdentity:
    """With the certificate in a directory, if there is one: both processes show the same."""
    if tls is None:
        return PeerIdentity.of(SECRET)
    files = ServerTlsFiles(
        certificate=tls / "node.pem",
        key=tls / "node.key",
        client_ca=tls / "ca.pem",
        client_certificates=ClientCertificates.REQUIRE,
        is_of_node=True,
    )
    return PeerIdentity(ClusterSecrets(SECRET), PeerTls(await ReloadedTls.open("peers", files)))


async def serve(directory: Path, tls: Path | None) -> None:
    """The other process: says where it is, and serves until its input closes."""
    store = await SegmentStore.open(directory, options=StoreOptions())
    server = StoreServer(store, await identity(tls), NoTraffic())
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
async def remote(*, has_tls: bool = False) -> AsyncIterator[Measured]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as directory:
        command = [sys.executable, "-m", "bench.peers", "--serve", directory]
        tls = Path(directory) / "tls" if has_tls else None
        if tls is not None:
            Authority.create(tls, "only for measuring").issue("node", ["127.0.0.1"])
            command += ["--tls", str(tls)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: ASYNC220
        assert process.stdin is not None and process.stdout is not None
        store_id, port = (await asyncio.to_thread(process.stdout.readline)).split()
        store = RemoteStore(StoreId(store_id.decode()), PeerAddress("127.0.0.1", int(port)), await identity(tls))
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


async def compare_tls(rounds: int, seconds: float) -> None:
    """Without and with TLS in turn, so that what else the machine does meets both. Ratios are with over without."""
    print("   batch depth   plain MB/s     tls MB/s   ratio (lowest to highest)   cpu us plain   tls    ratio")
    for size, depth in ((KIB, 16), (16 * KIB, 16), (MIB, 16), (KIB, 1)):
        rates: list[tuple[float, float]] = []
        costs: list[tuple[float, float]] = []
        for _ in range(rounds):
            pair = [await _rate(has_tls, size, depth, seconds) for has_tls in (False, True)]
            rates.append((pair[0][0], pair[1][0]))
            costs.append((pair[0][1], pair[1][1]))
        ratios = sorted(with_tls / plain for plain, with_tls in rates)
        plain, tls = (median(each[side] for each in rates) for side in (0, 1))
        plain_us, tls_us = (median(each[side] for each in costs) for side in (0, 1))
        print(
            f"{size:>8} {depth:>5} {plain / 1e6:>12.1f} {tls / 1e6:>12.1f}   {median(ratios):.2f} ({ratios[0]:.2f} to "
            f"{ratios[-1]:.2f}) {plain_us:>20.1f} {tls_us:>8.1f} {tls_us / plain_us:>6.2f}",
            flush=True,
        )


async def _rate(has_tls: bool, size: int, depth: int, seconds: float) -> tuple[float, float]:
    """Bytes a second, and the CPU of both processes for a call in microseconds."""
    async with remote(has_tls=has_tls) as measured:
        await measure_appends(measured, Durability.OS, size, depth, seconds / 4)
        calls, took, cpu, other, _ = await measure_appends(measured, Durability.OS, size, depth, seconds)
    return calls * size / took, (cpu + other) / calls * 1e6


async def main(arguments: argparse.Namespace) -> None:
    if arguments.tls_rounds:
        await compare_tls(arguments.tls_rounds, arguments.seconds)
        return
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
    parser.add_argument("--tls-rounds", type=int, default=0, help="with and without TLS in turn, so many times")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--tls", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    tune_interpreter()
    work: Coroutine[Any, Any, None] = serve(chosen.serve, chosen.tls) if chosen.serve else main(chosen)
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)
