"""A start that fails, or is cancelled, at any of its steps leaves nothing behind: no task, no socket, no open store."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from headwater.broker import parts
from headwater.broker.server import Broker
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import KV, Condition, MetaSession, MetaStore, Operation, Resync, Txn, Unavailable
from headwater.model.replica import StoreError
from headwater.storage.flush import FlushFailed
from headwater.testing.fakes.files import MemoryFiles
from tests.support.eventually import until
from tests.support.local_broker import Client, batch_of, running, start

START_LIMIT_S = 60
"""A start that never ends is a failure, too."""
CLUSTERED = {"peer_listen": "127.0.0.1:0", "session_timeout_s": 1.0}
VALUES = [b"a", b"b", b"c"]


class CountingMetadata:
    """A metadata store that does something at its n-th call."""

    def __init__(self, metadata: MetaStore, number: int, at_call: Callable[[], None]) -> None:
        self._metadata = metadata
        self._number = number
        self._at_call = at_call
        self.calls = 0
        self.is_closed = False

    async def get(self, key: str) -> KV | None:
        self._count()
        return await self._metadata.get(key)

    async def get_many(self, keys: Sequence[str]) -> list[KV | None]:
        self._count()
        return await self._metadata.get_many(keys)

    async def list(self, prefix: str) -> list[KV]:
        self._count()
        return await self._metadata.list(prefix)

    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        self._count()
        return await self._metadata.txn(conditions, operations)

    def watch(self, prefix: str) -> AsyncIterator[set[str] | Resync]:
        return self._metadata.watch(prefix)

    async def session(self, ttl_s: float) -> MetaSession:
        self._count()
        return await self._metadata.session(ttl_s)

    async def close(self) -> None:
        self.is_closed = True
        await self._metadata.close()

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._number:
            self._at_call()


def fail() -> None:
    raise Unavailable("no metadata today")


def cancel() -> None:
    """The start: it waits for a call, or for something that has called."""
    (starting,) = (task for task in asyncio.all_tasks() if task.get_name() == "start")
    starting.cancel()


class OpenFiles(MemoryFiles):
    """Files that know which of them are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: set[int] = set()

    def open(self, path: Path | str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        self.opened.add(fd)
        return fd

    def close(self, fd: int) -> None:
        super().close(fd)
        self.opened.discard(fd)


def sockets() -> set[str]:
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself
            found.add(str(fd.readlink()))
    return {target for target in found if target.startswith("socket:")}


class Watched:
    """What must be as before when a broker is gone."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files
        self._tasks = asyncio.all_tasks()
        self._sockets = sockets()

    async def check(self) -> None:
        assert asyncio.all_tasks() - self._tasks == set()
        assert self._files.opened == set()
        opened = sockets() - self._sockets  # clients of other tests in this process go on opening theirs
        await until(lambda: not opened & sockets(), "the event loop has closed all sockets")


@contextmanager
def counted(number: int, at_call: Callable[[], None]) -> Iterator[list[CountingMetadata]]:
    opened: list[CountingMetadata] = []

    async def open_counted(url: str) -> MetaStore:
        opened.append(CountingMetadata(await open_metadata(url), number, at_call))
        return opened[-1]

    with patch.object(parts, "open_metadata", open_counted):
        yield opened


async def fill(directory: Path, files: MemoryFiles, **config: Any) -> None:
    async with running(directory, files, **config) as (_, client):
        await client.create("t", 2)
        assert (await client.produce("t", batch_of(VALUES))).error_code == 0


async def check_content(directory: Path, files: MemoryFiles, **config: Any) -> None:
    async with running(directory, files, **config) as (_, client):
        assert [record.value for record in await client.read_all("t")] == VALUES


@pytest.mark.parametrize("config", [{}, CLUSTERED], ids=["standalone", "clustered"])
@pytest.mark.parametrize("at_call", [fail, cancel])
def test_a_start_that_ends_at_any_call_of_the_metadata_leaves_nothing_behind(
    tmp_path: Path, at_call: Callable[[], None], config: dict[str, Any]
) -> None:
    async def main() -> None:
        files = OpenFiles()
        settings = {"metadata": f"sqlite:{tmp_path / 'metadata.db'}", **config}
        await fill(tmp_path, files, **settings)
        watched = Watched(files)
        number, ended = 0, 0
        while True:
            number += 1
            with counted(number, at_call) as opened:
                starting = asyncio.create_task(start(tmp_path, files, **settings), name="start")
                try:
                    broker: Broker = await starting
                except (Unavailable, asyncio.CancelledError):
                    ended += 1
                else:
                    await broker.stop()  # the call was tried again, or there are no more
                assert opened[0].is_closed
                await watched.check()
            if opened[0].calls < number:
                break
        assert ended >= 5, "a start reads the metadata in several steps"
        await check_content(tmp_path, files, **settings)

    asyncio.run(main())


@pytest.mark.parametrize(("setting", "config"), [("listen", {}), ("listen", CLUSTERED), ("peer_listen", CLUSTERED)])
def test_a_start_whose_port_is_taken_leaves_nothing_behind(
    tmp_path: Path, setting: str, config: dict[str, Any]
) -> None:
    async def main() -> None:
        files = OpenFiles()
        settings = {"metadata": f"sqlite:{tmp_path / 'metadata.db'}", **config}
        await fill(tmp_path, files, **settings)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "{}:{}".format(*taken.getsockname())
            watched = Watched(files)
            with counted(0, fail) as opened, pytest.raises(OSError, match="in use"):
                await start(tmp_path, files, **{**settings, setting: address})
            assert all(each.is_closed for each in opened)
            await watched.check()
        await check_content(tmp_path, files, **settings)

    asyncio.run(main())


@pytest.mark.parametrize("operation", ["open", "pread", "pwritev", "sync_data", "sync_directory"])
def test_a_start_whose_disk_fails_leaves_nothing_behind(tmp_path: Path, operation: str) -> None:
    async def main() -> None:
        files = OpenFiles()
        await fill(tmp_path, files)
        watched = Watched(files)
        files.fail(operation, errno.EIO, is_lasting=True)
        with pytest.raises((OSError, StoreError, FlushFailed)):
            await start(tmp_path, files)
        files.heal()
        await watched.check()
        await check_content(tmp_path, files)

    asyncio.run(main())


@pytest.mark.parametrize("operation", ["open", "pread", "pwritev", "sync_data", "sync_directory"])
def test_a_disk_that_fails_once_at_any_time_of_a_start_costs_no_records(tmp_path: Path, operation: str) -> None:
    """A partition whose takeover failed is not led, and its segments are no orphans for that."""

    async def main() -> None:
        files = OpenFiles()
        await fill(tmp_path, files)
        watched = Watched(files)
        passes, failed = -1, 0
        while True:
            passes += 1
            before = files.counts[operation]
            files.fail(operation, errno.EIO, passes=passes)
            try:
                async with asyncio.timeout(START_LIMIT_S):
                    broker: Broker = await start(tmp_path, files)
                await broker.stop()  # the disk fails behind its back, or not at all
            except (OSError, StoreError, FlushFailed):
                failed += 1
            files.heal()
            await watched.check()
            if files.counts[operation] - before <= passes:
                break
        assert failed
        await check_content(tmp_path, files)

    asyncio.run(main())


def test_a_broker_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        files = OpenFiles()
        watched = Watched(files)
        broker: Broker = await start(tmp_path, files)
        client = await Client.connect(broker)
        await client.create("t")
        await asyncio.gather(broker.stop(), broker.stop())
        await broker.wait_stopped()
        client.close()
        await watched.check()

    asyncio.run(main())
