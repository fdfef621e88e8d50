"""Several processes on one file: they see each other's changes, and none of them can die in a way that loses one."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import Put
from tests.support.eventually import a_while

KILLS = 8
ACKED_PER_ROUND = 25

WRITER = """
import asyncio, sys
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import Put

async def main():
    store = await SqliteMetaStore.open(sys.argv[1])
    number = int(sys.argv[2])
    while True:
        pairs = [[Put(f"a/{n}", b"x"), Put(f"b/{n}", b"x")] for n in range(number, number + 3)]
        assert all(answer.ok for answer in await asyncio.gather(*(store.txn([], pair) for pair in pairs)))
        print(*range(number, number + 3), flush=True)
        number += 3

asyncio.run(main())
"""

COUNTER = """
import asyncio, sys
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import Is, Put

async def main():
    store = await SqliteMetaStore.open(sys.argv[1])
    done = 0
    while done < int(sys.argv[2]):
        found = await store.get("n")
        done += (await store.txn([Is("n", found.version)], [Put("n", b"%d" % (int(found.value) + 1))])).ok
    await store.close()

asyncio.run(main())
"""

SESSION_TTL_S = 0.4
SESSION_OWNER = """
import asyncio, sys
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import Put

async def main():
    store = await SqliteMetaStore.open(sys.argv[1])
    session = await store.session(float(sys.argv[2]))
    await store.txn([], [Put("nodes/child", b"", session)])
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""

FAILING_DISK = """
import asyncio, resource, sys
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import Put, Unavailable, Unknown

async def refused(call):
    try:
        await call
    except (Unavailable, Unknown) as error:
        return type(error).__name__
    return "done"

async def main():
    store = await SqliteMetaStore.open(sys.argv[1])
    await store.txn([], [Put("a", b"1")])
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, hard))
    print(await refused(store.txn([], [Put("a", bytes(100_000))])))
    print(await refused(store.get("a")))
    print(await refused(store.txn([], [Put("b", b"1")])))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print((await store.get("a")).value.decode(), await store.get("b"))
    print((await store.txn([], [Put("b", b"2")])).ok)
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@contextlib.contextmanager
def running(program: str, *arguments: object) -> Iterator[tuple["subprocess.Popen[str]", IO[str]]]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


def test_two_processes_count_on_one_key_without_losing_an_increment(path: Path) -> None:
    async def start() -> None:
        store = await SqliteMetaStore.open(path)
        await store.txn([], [Put("n", b"0")])
        await store.close()

    async def total() -> bytes:
        store = await SqliteMetaStore.open(path)
        found = await store.get("n")
        await store.close()
        assert found is not None
        return found.value

    asyncio.run(start())
    with running(COUNTER, path, 100) as (first, _), running(COUNTER, path, 100) as (second, _):
        assert (first.wait(60), second.wait(60)) == (0, 0)
    assert asyncio.run(total()) == b"200"


def test_a_watcher_soon_hears_of_another_processs_writes(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        hints = store.watch("a/")
        await anext(hints)
        with running(WRITER, path, 0):
            heard: set[str] = set()
            deadline = time.monotonic() + 60
            while len(heard) < 30:
                hint = await asyncio.wait_for(anext(hints), deadline - time.monotonic())
                assert isinstance(hint, set)
                heard |= hint
        await store.close()

    asyncio.run(scenario())


def test_killing_a_writer_loses_nothing_that_it_acknowledged(path: Path) -> None:
    acknowledged: set[int] = set()
    next_number = 0
    for _ in range(KILLS):
        with running(WRITER, path, next_number) as (process, output):
            told = 0
            while told < ACKED_PER_ROUND:
                told += len(output.readline().split())
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            # What it acknowledged between the last look and its death counts, too.
            told += len(output.read().split())
        next_number = asyncio.run(check_pairs(path, next_number, told, acknowledged))
    assert len(acknowledged) >= KILLS * ACKED_PER_ROUND


async def check_pairs(path: Path, first: int, told: int, acknowledged: set[int]) -> int:
    """Every acknowledged number is there, and every number under both its keys or neither; the next free number."""
    acknowledged.update(range(first, first + told))
    store = await SqliteMetaStore.open(path)
    left = {int(kv.key.removeprefix("a/")) for kv in await store.list("a/")}
    right = {int(kv.key.removeprefix("b/")) for kv in await store.list("b/")}
    await store.close()
    assert left == right
    assert acknowledged <= left
    return max(left) + 1


def test_a_killed_owners_session_key_vanishes(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteMetaStore.open(path)
        hints = store.watch("nodes/")
        await anext(hints)
        with running(SESSION_OWNER, path, SESSION_TTL_S) as (process, output):
            assert (await asyncio.to_thread(output.readline)).strip() == "ready"
            assert await store.get("nodes/child") is not None
            await a_while(longer_than_s=SESSION_TTL_S)
            assert await store.get("nodes/child") is not None
            process.kill()
            deadline = time.monotonic() + 60
            while await store.get("nodes/child") is not None:
                assert time.monotonic() < deadline
                await asyncio.wait_for(anext(hints), deadline - time.monotonic())
        await store.close()

    asyncio.run(scenario())


def test_a_disk_that_fails_in_a_commit_leaves_the_outcome_unknown_until_it_is_settled(path: Path) -> None:
    with running(FAILING_DISK, path) as (process, output):
        lines = output.read().splitlines()
        assert process.wait(60) == 0
    assert lines == ["Unknown", "Unavailable", "Unavailable", "1 None", "True"]
