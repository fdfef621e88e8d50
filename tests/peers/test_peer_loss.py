"""Stores that go away, hang, or are slow: whoever waits learns of it, and memory stays bounded."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from headwater.model.ids import StoreId
from headwater.model.replica import Durability, StoreUnreachable
from headwater.peers import channel
from headwater.peers.channel import ChannelOptions
from headwater.peers.messages import PeerAddress
from headwater.peers.remote_store import RemoteStore
from headwater.peers.store_server import MAX_READS
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.files import MemoryFiles
from tests.peers.peer_nodes import IDENTITY, MIB, QUICK, ROOMY, SECRET, THREADED, node
from tests.storage.storage_samples import batch, create, fill, read_all, run, segment
from tests.support.eventually import a_while, rests, tasks_run, until

PATIENT_S = 60.0
"""Longer than anything here takes: whoever waits so long has not been told."""


class Proxy:
    """Stands between a caller and a store, and lets through as much as a test wants."""

    def __init__(self, target: PeerAddress) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        self.answers_gate = asyncio.Event()
        """As the gate, of what the store sends."""
        self.answers_gate.set()
        self.upstream_limit: int | None = None
        """Bytes that still go to the store; then the connection is cut."""

    async def start(self) -> PeerAddress:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=64 * 1024)
        return PeerAddress(*self._server.sockets[0].getsockname())

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await tasks_run()  # connections are closed a moment after they are aborted

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back}
        for source, target, is_up in ((reader, back, True), (there, writer, False)):
            task = asyncio.ensure_future(self._pump(source, target, is_up))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_up: bool) -> None:
        try:
            while data := await source.read(64 * 1024):
                if is_up and self.upstream_limit is not None:
                    data = data[: self.upstream_limit]
                    self.upstream_limit -= len(data)
                    if not self.upstream_limit:
                        target.write(data)
                        await target.drain()
                        self.cut()
                        return
                await self.open_gate.wait()
                if not is_up:
                    await self.answers_gate.wait()
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.transport.abort()


@asynccontextmanager
async def proxied(target: PeerAddress) -> AsyncIterator[tuple[Proxy, PeerAddress]]:
    proxy = Proxy(target)
    address = await proxy.start()
    try:
        yield proxy, address
    finally:
        await proxy.close()


async def reconnected(remote: RemoteStore) -> None:
    """The cut hits the connection for reads, too: a call or two may meet it."""

    async def answers() -> bool:
        try:
            await remote.ping()
        except StoreUnreachable:
            return False
        return True

    await until(answers, "a connection is made")


def test_a_cut_fails_everything_that_waits_at_once_and_resending_completes_it() -> None:
    async def main() -> None:
        async with node(options=ROOMY) as served, proxied(served.address) as (proxy, address):
            lost: list[StoreId] = []
            remote = RemoteStore(served.store.store_id, address, IDENTITY, options=QUICK, on_lost=lost.append)
            name = await create(remote)
            rows = [batch(offset, size_bytes=10_000) for offset in range(100)]
            for cut_after in (5_000, 150_000, 77, 333_333):
                state = await remote.state(name)
                proxy.upstream_limit = cut_after
                calls = [
                    asyncio.ensure_future(remote.append(name, offset, offset + 1, 0, [rows[offset]]))
                    for offset in range(state.end, 100)
                ]
                async with asyncio.timeout(PATIENT_S):
                    outcomes = await asyncio.gather(*calls, return_exceptions=True)
                assert isinstance(outcomes[-1], StoreUnreachable)
                kinds = [isinstance(outcome, StoreUnreachable) for outcome in outcomes]
                assert kinds == sorted(kinds), "none is answered behind one that was lost"
                acked = max((outcome for outcome in outcomes if isinstance(outcome, int)), default=0)
                proxy.upstream_limit = None
                await reconnected(remote)
                assert (await remote.state(name)).end >= acked, "what was acknowledged is there"
            assert lost == [served.store.store_id] * 3, "77 bytes are not enough for a handshake: nothing was lost"
            assert await remote.append(name, 0, 100, 0, rows) == 100, "resending is harmless"
            assert await read_all(served.store, name) == b"".join(rows)
            remote.close()

    run(main())


def test_a_lost_connection_leaves_nothing_counted_on_the_side_of_the_store() -> None:
    async def main() -> None:
        async with node(options=ROOMY) as served, proxied(served.address) as (proxy, address):
            remote = RemoteStore(served.store.store_id, address, IDENTITY, options=QUICK)
            name = await create(remote)
            proxy.upstream_limit = 3 * MIB + 12_345
            with pytest.raises(StoreUnreachable):
                await remote.append(name, 0, 1, 0, [batch(0, size_bytes=8 * MIB)])
            proxy.upstream_limit = None
            await reconnected(remote)
            assert served.server.held_bytes == 0
            assert (await remote.state(name)).end == 0, "half a request is none"
            remote.close()

    run(main())


def test_nobody_at_the_address_is_told_at_once_and_later_calls_try_again() -> None:
    async def main() -> None:
        async with node() as served:
            free = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
            address = PeerAddress(*free.sockets[0].getsockname())
            free.close()
            await free.wait_closed()
            lost: list[StoreId] = []
            remote = RemoteStore(served.store.store_id, address, IDENTITY, options=QUICK, on_lost=lost.append)
            for _ in range(2):
                outcomes = await asyncio.gather(
                    create(remote), remote.ping(), remote.fence(segment(1)), return_exceptions=True
                )
                assert [type(outcome) for outcome in outcomes] == [StoreUnreachable] * 3
            server = await asyncio.start_server(lambda *_: None, *address)
            server.close()
            await server.wait_closed()
            async with proxied(served.address) as (_, working):
                remote.close()
                remote = RemoteStore(served.store.store_id, working, IDENTITY, options=QUICK)
                await remote.ping()
            assert lost == [], "what never was cannot be lost"
            with pytest.raises(StoreUnreachable):
                await RemoteStore(served.store.store_id, PeerAddress("no.such.host.invalid", 1), IDENTITY).ping()

    run(main())


def test_an_address_that_does_not_answer_costs_the_time_to_connect() -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            gone.set()

        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        address = PeerAddress(*silent.sockets[0].getsockname())
        remote = RemoteStore(StoreId("0" * 32), address, IDENTITY, options=ChannelOptions(connect_timeout_s=0.2))
        async with asyncio.timeout(PATIENT_S):
            with pytest.raises(StoreUnreachable, match=r"within 0\.2 s"):
                await remote.ping()
            await gone.wait()
        silent.close()

    run(main())


def test_a_store_that_hangs_is_lost_when_its_time_is_over() -> None:
    async def main() -> None:
        async with node() as served, proxied(served.address) as (proxy, address):
            lost: list[StoreId] = []
            options = dataclasses.replace(QUICK, call_timeout_s=0.3)
            remote = RemoteStore(served.store.store_id, address, IDENTITY, options=options, on_lost=lost.append)
            name = await create(remote)
            await a_while(longer_than_s=0.3)
            await fill(remote, name, 3)
            assert lost == [], "an idle connection has no time-out"
            proxy.open_gate.clear()
            async with asyncio.timeout(PATIENT_S):
                outcomes = await asyncio.gather(
                    *(remote.append(name, n, n + 1, 0, [batch(n)]) for n in range(3, 9)), return_exceptions=True
                )
            assert [type(outcome) for outcome in outcomes] == [StoreUnreachable] * 6
            assert lost == [served.store.store_id]
            proxy.open_gate.set()
            await remote.state(name)
            remote.close()

    run(main())


def test_a_slow_peer_keeps_no_more_on_its_way_than_it_may() -> None:
    async def main() -> None:
        async with node(options=ROOMY) as served, proxied(served.address) as (proxy, address):
            options = dataclasses.replace(QUICK, in_flight_bytes=2 * MIB)
            remote = RemoteStore(served.store.store_id, address, IDENTITY, options=options)
            name = await create(remote)
            proxy.open_gate.clear()
            data = [batch(offset, size_bytes=MIB // 2) for offset in range(40)]
            calls = [
                asyncio.ensure_future(remote.append(name, offset, offset + 1, 0, [row]))
                for offset, row in enumerate(data)
            ]
            await until(lambda: remote.in_flight_bytes > MIB)
            await tasks_run()
            assert MIB < remote.in_flight_bytes <= 2 * MIB
            assert not any(call.done() for call in calls)
            proxy.open_gate.set()
            assert (await asyncio.gather(*calls))[-1] == 40
            assert remote.in_flight_bytes == 0
            large = batch(40, size_bytes=3 * MIB)
            assert await remote.append(name, 40, 41, 0, [large]) == 41, "one call may be larger than the window"
            remote.close()

    run(main())


def test_calls_that_wait_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_WAITING_CALLS", 10)

    async def main() -> None:
        async with node() as served:
            remote = served.remote()
            outcomes = await asyncio.gather(*(remote.ping() for _ in range(15)), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [type(None)] * 10 + [StoreUnreachable] * 5

    run(main())


def test_a_peer_that_asks_and_does_not_listen_costs_a_few_reads() -> None:
    async def main() -> None:
        async with node(options=ROOMY) as served, proxied(served.address) as (proxy, address):
            remote = RemoteStore(served.store.store_id, address, IDENTITY, options=QUICK)
            name = await create(remote, durability=Durability.OS)
            for offset in range(20):
                await remote.append(name, offset, offset + 1, 0, [batch(offset, size_bytes=MIB)])
            await remote.ping()
            process = psutil.Process()
            before = served.traffic.written_bytes
            held = process.memory_info().rss
            proxy.answers_gate.clear()
            reads = [asyncio.ensure_future(remote.read(name, 0, 20, 8 * MIB)) for _ in range(100)]
            await until(lambda: served.traffic.written_bytes > before)
            assert await rests(lambda: served.traffic.written_bytes) - before <= (2 * MAX_READS + 1) * 8 * MIB
            assert process.memory_info().rss - held < 200 * MIB, "of 800 that were asked for"
            proxy.answers_gate.set()
            sizes = {len(data) for data in await asyncio.gather(*reads)}
            assert sizes == {8 * MIB}
            remote.close()

    run(main())


def test_large_reads_do_not_hold_up_appends() -> None:
    async def main() -> None:
        async with node(options=ROOMY) as served, proxied(served.address) as (proxy, address):
            remote = served.remote()
            slow = RemoteStore(served.store.store_id, address, IDENTITY, options=QUICK)
            name = await create(remote)
            for offset in range(8):
                await remote.append(name, offset, offset + 1, 0, [batch(offset, size_bytes=MIB)])
            await slow.ping()
            proxy.open_gate.clear()
            reading = asyncio.ensure_future(slow.read(name, 0, 8, 8 * MIB))
            stuck = asyncio.ensure_future(slow.ping())
            assert await remote.append(name, 8, 9, 0, [batch(8)]) == 9
            assert not reading.done() and not stuck.done()
            proxy.open_gate.set()
            assert len(await reading) == 8 * MIB
            await stuck
            slow.close()

    run(main())


def test_a_caller_that_goes_away_does_not_disturb_the_others() -> None:
    async def main() -> None:
        async with node() as served, proxied(served.address) as (proxy, address):
            remote = RemoteStore(served.store.store_id, address, IDENTITY, options=QUICK)
            name = await create(remote)
            proxy.open_gate.clear()
            calls = [asyncio.ensure_future(remote.append(name, n, n + 1, 0, [batch(n)])) for n in range(10)]
            await until(lambda: remote.in_flight_bytes > 10 * len(batch(0)))
            for call in calls[::2]:
                call.cancel()
            proxy.open_gate.set()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError, int] * 5
            assert (await remote.state(name)).end == 10, "what was sent was sent"
            remote.close()

    run(main())


def test_closing_fails_what_waits_and_what_comes() -> None:
    async def main() -> None:
        async with node() as served, proxied(served.address) as (proxy, address):
            lost: list[StoreId] = []
            remote = RemoteStore(served.store.store_id, address, IDENTITY, options=QUICK, on_lost=lost.append)
            name = await create(remote)
            proxy.open_gate.clear()
            waiting = asyncio.ensure_future(remote.append(name, 0, 1, 0, [batch(0)]))
            connecting = asyncio.ensure_future(remote.ping())
            await until(lambda: remote.in_flight_bytes)
            remote.close()
            for call in (waiting, connecting, remote.ping(), create(remote, 2)):
                with pytest.raises(StoreUnreachable):
                    await call
            assert lost == [], "who closes knows"

    run(main())


def test_a_store_that_answers_nonsense_is_left() -> None:
    async def main() -> None:
        async with node() as served:
            store_id = served.store.store_id

        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(answers.pop())
            await reader.read()
            writer.close()
            await gone.put(None)

        gone: asyncio.Queue[None] = asyncio.Queue()
        answers = [
            b"\xff" * 100,
            b"\0\0\0\1\0",
            b"\0\0\0\5\0\0\0\0\7",
            b"\0\0\0\5\1\0\0\0\0",
            b"HTTP/1.1 400 Bad\r\n\r\n",
        ]
        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        for _ in range(5):
            remote = RemoteStore(store_id, PeerAddress(*server.sockets[0].getsockname()), IDENTITY, options=QUICK)
            with pytest.raises(StoreUnreachable):
                await remote.ping()
            remote.close()
            await gone.get()
        server.close()

    run(main())


CHILD = """
import asyncio, sys
from pathlib import Path
from headwater.peers.identity import PeerIdentity
from headwater.peers.store_server import StoreServer
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore

class Traffic:
    connection_opened = connection_closed = lambda self: None
    bytes_in = bytes_out = bad_request = lambda self, count: None

async def main():
    options = StoreOptions(journal_file_bytes=1 << 20, reserve_bytes=0, low_water_bytes=0)
    store = await SegmentStore.open(Path(sys.argv[1]), options=options)
    server = StoreServer(store, PeerIdentity.of(sys.argv[2].encode()), Traffic())
    print(store.store_id, *await server.listen("127.0.0.1", 0), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


@pytest.mark.crash
def test_a_killed_store_is_noticed_at_once_and_has_what_it_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        for round_number in range(3):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD, str(tmp_path / "store"), SECRET.decode(),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            assert process.stdout is not None
            store_id, host, port = (await process.stdout.readline()).decode().split()
            lost: asyncio.Queue[StoreId] = asyncio.Queue()
            address = PeerAddress(host, int(port))
            remote = RemoteStore(StoreId(store_id), address, IDENTITY, options=QUICK, on_lost=lost.put_nowait)
            name = await create(remote, round_number + 1)
            acked = 0

            async def write(remote: RemoteStore = remote, name: str = name) -> None:
                nonlocal acked
                offset = 0
                while True:
                    ends = await asyncio.gather(
                        *(
                            remote.append(segment(int(name, 16)), n, n + 1, 0, [batch(n, size_bytes=2_000)])
                            for n in range(offset, offset + 20)
                        )
                    )
                    offset = acked = ends[-1]

            writing = asyncio.ensure_future(write())
            await until(lambda writing=writing: acked >= 200 or writing.done())  # type: ignore[misc]  # noqa: B023
            assert not writing.done(), writing
            os.kill(process.pid, signal.SIGKILL)
            async with asyncio.timeout(PATIENT_S):
                with pytest.raises(StoreUnreachable):
                    await writing
                assert await lost.get() == store_id
            await process.wait()
            remote.close()
            store = await SegmentStore.open(tmp_path / "store", options=THREADED)
            state = store.replica(name)
            assert state is not None
            assert (state.end >= acked, state.in_doubt) == (True, False)
            expected = b"".join(batch(n, size_bytes=2_000) for n in range(state.end))
            assert await read_all(store, name) == expected
            await store.close()

    run(main())


def test_a_server_that_stops_lets_go_of_its_peers() -> None:
    async def main() -> None:
        lost: list[StoreId] = []
        async with node(MemoryFiles()) as served:
            remote = served.remote(on_lost=lost.append)
            name = await create(remote)
            await served.server.close()
            with pytest.raises(StoreUnreachable):
                await remote.append(name, 0, 1, 0, [batch(0)])
            assert len(lost) == 1

    run(main())
