"""Three members of etcd: what a client sees when they are killed, paused and compacted under it."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.metadata.connect import open_metadata
from headwater.metadata.store import KV, RESYNC, Is, MetaStore, Put, Unavailable, Unknown
from headwater.testing.oracles.linearizability import (
    RegisterCall,
    RegisterCompareAndSet,
    RegisterRead,
    Timed,
    is_linearizable,
    register,
)
from headwater.testing.processes.etcd_process import EtcdProcess, find_etcd
from tests.support.effort import in_long
from tests.support.eventually import a_while, until

pytestmark = [
    pytest.mark.skipif(find_etcd() is None, reason="etcd is not installed (Debian: etcd-server)"),
    pytest.mark.crash,
]

PATIENCE_S = 60.0
WORKERS = 6
DONE_BEFORE, DONE_AFTER = 40, 40
"""Compare-and-set calls that succeed before the fault, and again after it."""
MAX_TURNS = 300


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    with EtcdProcess.start(tmp_path, members=3) as etcd:
        yield etcd


class Load:
    """Workers that compare and set one register through clients of their own, and note what they saw.

    A worker compares with what it saw last, and reads again only when that failed: so transactions, not only reads, are
    under way when a member is lost."""

    def __init__(self, etcd: EtcdProcess) -> None:
        self._etcd = etcd
        self.history: list[Timed[RegisterCall]] = []
        self.done = 0
        self.unknown = 0
        self._under_way = 0
        self._is_over = False
        self._progress = asyncio.Event()

    async def until(self, count: int, under_way: int = 0) -> None:
        """Until so many transactions have succeeded, and so many wait for their answers."""
        async with asyncio.timeout(PATIENCE_S):
            while self.done < count or self._under_way < under_way:
                self._progress.clear()
                await self._progress.wait()

    def end(self) -> None:
        self._is_over = True

    async def work(self, number: int) -> None:
        chance = random.Random(number)
        first = number % len(self._etcd.members)
        order = [*self._etcd.members][first:] + [*self._etcd.members][:first]
        store = await open_metadata(self._etcd.url("load", order))
        seen: KV | None = None
        try:
            for turn in range(MAX_TURNS):
                if self._is_over:
                    break
                if seen is None:
                    seen = await self._read(store)
                else:
                    seen = await self._compare_and_set(store, seen, value=(turn + 1) * WORKERS + number)
                await asyncio.sleep(chance.uniform(0, 0.05))
        finally:
            await store.close()

    async def _read(self, store: MetaStore) -> KV | None:
        began = time.monotonic()
        try:
            found = await store.get("register")
        except Unavailable:
            return None
        assert found is not None
        self.history.append(Timed(RegisterRead(int(found.value)), began, time.monotonic()))
        return found

    async def _compare_and_set(self, store: MetaStore, seen: KV, value: int) -> KV | None:
        began = time.monotonic()
        expected, written = int(seen.value), str(value).encode()
        self._under_way += 1
        self._progress.set()
        try:
            answer = await store.txn([Is("register", seen.version)], [Put("register", written)])
        except Unavailable:
            return None  # It certainly did not happen, so it is no part of the history.
        except Unknown:
            self.unknown += 1
            self.history.append(Timed(RegisterCompareAndSet(expected, value, None), began))
            return None
        finally:
            self._under_way -= 1
        self.history.append(Timed(RegisterCompareAndSet(expected, value, answer.ok), began, time.monotonic()))
        self.done += answer.ok
        self._progress.set()
        return KV("register", written, answer.versions["register"]) if answer.ok else None


async def under_load(etcd: EtcdProcess, fault: str) -> Load:
    """A fault of the leader in the middle of it; the load goes on with the two that are left."""
    store = await open_metadata(etcd.url("load"))
    await store.txn([], [Put("register", b"0")])
    await store.close()
    load = Load(etcd)
    async with asyncio.TaskGroup() as tasks:
        for number in range(WORKERS):
            tasks.create_task(load.work(number))
        leader = await asyncio.to_thread(etcd.leader)
        await load.until(DONE_BEFORE, under_way=2)
        getattr(etcd, fault)(leader)
        await load.until(load.done + DONE_AFTER)
        load.end()
    return load


@pytest.mark.parametrize("fault", ["kill", in_long("pause")])
def test_a_register_stays_linearizable_when_the_leader_is_lost_under_load(etcd: EtcdProcess, fault: str) -> None:
    load = asyncio.run(under_load(etcd, fault))
    assert load.done >= DONE_BEFORE + DONE_AFTER
    assert is_linearizable(load.history, 0, register), load.history


def test_a_paused_member_delays_its_clients_and_loses_them_nothing(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        leader = await asyncio.to_thread(etcd.leader)
        follower = next(member for member in etcd.members if member != leader)
        store = await open_metadata(etcd.url("paused", [follower, leader]))
        other = await open_metadata(etcd.url("paused", [leader]))
        session = await store.session(6)
        await store.txn([], [Put("nodes/me", b"", session)])
        hints = store.watch("a/")
        assert await anext(hints) is RESYNC
        etcd.pause(follower)
        await other.txn([], [Put("a/1", b"")])
        found = await store.get("a/1")
        assert found is not None
        assert await asyncio.wait_for(anext(hints), PATIENCE_S) == {"a/1"}
        await a_while(longer_than_s=max(0.0, session.valid_until() - time.monotonic()))
        assert not session.lost.is_set()
        assert session.valid_until() > time.monotonic()
        assert await other.get("nodes/me") is not None
        etcd.resume(follower)
        await hints.aclose()  # type: ignore[attr-defined]
        await session.close()
        await store.close()
        await other.close()

    asyncio.run(scenario())


def test_a_session_and_a_watch_outlive_the_leader(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        store, other = await open_metadata(etcd.url("outlive")), await open_metadata(etcd.url("outlive"))
        session = await store.session(6)
        await store.txn([], [Put("nodes/me", b"", session)])
        hints = other.watch("a/")
        assert await anext(hints) is RESYNC
        etcd.kill(await asyncio.to_thread(etcd.leader))
        await asyncio.to_thread(etcd.leader)
        await written(store, "a/1")
        heard: set[str] = set()
        while "a/1" not in heard:
            hint = await asyncio.wait_for(anext(hints), PATIENCE_S)
            assert isinstance(hint, set), "nothing was missed, so nothing is to be read again"
            heard |= hint
        await a_while(longer_than_s=max(0.0, session.valid_until() - time.monotonic()))
        assert not session.lost.is_set()
        assert await other.get("nodes/me") is not None
        await hints.aclose()  # type: ignore[attr-defined]
        await session.close()
        await store.close()
        await other.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_watch_whose_member_was_away_is_resynced_only_after_a_compaction(
    etcd: EtcdProcess, is_compacted: bool
) -> None:
    async def scenario() -> None:
        away, near = 0, 1
        watcher = await open_metadata(etcd.url("away", [away]))
        store = await open_metadata(etcd.url("away", [near]))
        await store.txn([], [Put("a/before", b"")])
        hints = watcher.watch("a/")
        assert await anext(hints) is RESYNC
        etcd.kill(away)
        for number in range(5):
            await written(store, f"a/{number}")
        if is_compacted:
            found = await store.get("a/4")
            assert found is not None
            compaction = {"revision": str(found.version), "physical": True}
            await asyncio.to_thread(etcd.call, "/v3/kv/compaction", compaction, near)
        etcd.restart(away)
        hint = await asyncio.wait_for(anext(hints), PATIENCE_S)
        if is_compacted:
            assert hint is RESYNC
            assert len(await watcher.list("a/")) == 6
        else:
            heard: set[str] = set()
            while isinstance(hint, set):
                heard |= hint
                if len(heard) == 5:
                    break
                hint = await asyncio.wait_for(anext(hints), PATIENCE_S)
            assert heard == {f"a/{number}" for number in range(5)}
        await store.txn([], [Put("a/after", b"")])
        assert await asyncio.wait_for(anext(hints), PATIENCE_S) == {"a/after"}
        await hints.aclose()  # type: ignore[attr-defined]
        await watcher.close()
        await store.close()

    asyncio.run(scenario())


def test_without_a_majority_nothing_is_read_or_written_and_afterwards_all_is_there(etcd: EtcdProcess) -> None:
    async def scenario() -> None:
        store = await open_metadata(etcd.url("majority"))
        await store.txn([], [Put("a", b"1")])
        for member in (0, 1):
            etcd.kill(member)
        with pytest.raises(Unavailable, match="cannot be reached"):
            await store.get("a")
        with pytest.raises((Unavailable, Unknown)):
            await store.txn([], [Put("a", b"2")])
        for member in (0, 1):
            etcd.restart(member, wait=False)
        await asyncio.to_thread(etcd.wait_until_ready)
        found = await store.get("a")
        assert found is not None
        assert found.value in (b"1", b"2")
        await written(store, "a")
        await store.close()

    asyncio.run(scenario())


async def written(store: MetaStore, key: str) -> None:
    """Put until it is certain; that it may happen twice is known here, and harmless."""

    async def is_written() -> bool:
        try:
            return (await store.txn([], [Put(key, b"")])).ok
        except (Unavailable, Unknown):
            return False

    await until(is_written)
