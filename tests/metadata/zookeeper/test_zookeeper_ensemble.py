"""Three servers of ZooKeeper: what a client sees when they are killed and paused under it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.metadata.connect import open_metadata
from headwater.metadata.store import RESYNC, MetaStore, Put, Unavailable, Unknown
from headwater.testing.oracles.linearizability import is_linearizable, register
from headwater.testing.oracles.register_load import RegisterLoad
from headwater.testing.processes.zookeeper_process import ZookeeperProcess, why_missing
from tests.support.effort import in_long, only_long
from tests.support.eventually import a_while, until

pytestmark = [pytest.mark.skipif(bool(why_missing()), reason=why_missing()), pytest.mark.crash]

PATIENCE_S = 60.0
WORKERS = 4
WRITES = 40
"""Acknowledged before a fault, and again after it."""


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZookeeperProcess]:
    with ZookeeperProcess.start(tmp_path, members=3) as running:
        yield running


async def under_load(zookeeper: ZookeeperProcess, fault: str, remedy: str) -> RegisterLoad:
    """The leader fails in the middle of it, the load goes on with the two that are left, and then with all."""
    load = RegisterLoad([zookeeper.url("load")] * WORKERS)
    await load.prepare()
    async with asyncio.TaskGroup() as tasks:
        for number in range(WORKERS):
            tasks.create_task(load.work(number))
        await load.until_done(WRITES)
        leader = await asyncio.to_thread(zookeeper.leader)
        getattr(zookeeper, fault)(leader)
        await load.until_done(WRITES)
        await asyncio.to_thread(getattr(zookeeper, remedy), leader)
        await load.until_done(WRITES)
        load.end()
    return load


@pytest.mark.parametrize(("fault", "remedy"), [("kill", "restart"), in_long("pause", "resume")])
def test_a_register_stays_linearizable_when_the_leader_fails_and_comes_back(
    zookeeper: ZookeeperProcess, fault: str, remedy: str
) -> None:
    load = asyncio.run(under_load(zookeeper, fault, remedy))
    assert load.done >= 3 * WRITES
    assert is_linearizable(load.history, 0, register), load.history


async def read_across_a_pause(zookeeper: ZookeeperProcess, member: int, rounds: int, is_leader: bool) -> list[bytes]:
    """What a client of one server reads when it asks after a write that this server slept through."""
    others = [each for each in zookeeper.members if each != member]
    read: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S * rounds):
        reader = await open_metadata(zookeeper.url("stale", [member]))
        writer = await open_metadata(zookeeper.url("stale", others))
        await reader.txn([], [Put("a", b"-")])
        for number in range(rounds):
            await reader.get("a")
            zookeeper.pause(member)
            if is_leader:
                await asyncio.to_thread(zookeeper.leader, [*others])
            value = str(number).encode()
            while not await is_written(writer, value):
                pass
            reading = asyncio.create_task(reader.get("a"))
            await a_while()  # the question lies in the socket of the server that sleeps
            zookeeper.resume(member)
            found = await reading
            assert found is not None
            read.append(found.value)
        await reader.close()
        await writer.close()
    return read


async def is_written(writer: MetaStore, value: bytes) -> bool:
    """Over a change of leaders: the value is the same however often it is written."""
    try:
        return (await writer.txn([], [Put("a", value)])).ok
    except (Unavailable, Unknown):
        return False


def test_a_server_that_slept_through_a_write_does_not_answer_with_what_was_before(zookeeper: ZookeeperProcess) -> None:
    follower = next(member for member in zookeeper.members if member != zookeeper.leader())
    assert asyncio.run(read_across_a_pause(zookeeper, follower, 20, is_leader=False)) == [
        str(number).encode() for number in range(20)
    ]


@only_long
def test_a_leader_that_slept_through_an_election_does_not_answer_with_what_was_before(
    zookeeper: ZookeeperProcess,
) -> None:
    assert asyncio.run(read_across_a_pause(zookeeper, zookeeper.leader(), 1, is_leader=True)) == [b"0"]


def test_a_session_and_a_watch_outlive_the_server_they_were_with(zookeeper: ZookeeperProcess) -> None:
    async def scenario() -> None:
        leader = await asyncio.to_thread(zookeeper.leader)
        first, second = (member for member in zookeeper.members if member != leader)
        other = await open_metadata(zookeeper.url("moving", [leader]))
        # kazoo chooses a server by chance. Here only one of the two answers at first.
        zookeeper.kill(second)
        store = await open_metadata(zookeeper.url("moving", [first, second]))
        session = await store.session(12)
        await store.txn([], [Put("nodes/me", b"", session)])
        hints = store.watch("nodes/")
        assert await anext(hints) is RESYNC
        await asyncio.to_thread(zookeeper.restart, second)
        zookeeper.kill(first)
        assert await asyncio.wait_for(anext(hints), PATIENCE_S) is RESYNC
        assert not session.lost.is_set()
        promised = session.valid_until()
        await until(lambda: session.valid_until() > promised, "the session is renewed")
        await other.txn([], [Put("nodes/you", b"")])
        heard: set[str] = set()
        while "nodes/you" not in heard:
            hint = await asyncio.wait_for(anext(hints), PATIENCE_S)
            if hint is RESYNC:
                break
            assert isinstance(hint, set)
            heard |= hint
        assert [kv.key for kv in await store.list("nodes/")] == ["nodes/me", "nodes/you"]
        await session.close()
        assert [kv.key for kv in await other.list("nodes/")] == ["nodes/you"]
        await hints.aclose()  # type: ignore[attr-defined]
        await store.close()
        await other.close()

    asyncio.run(scenario())


@only_long
def test_a_paused_follower_delays_its_client_and_loses_it_nothing(zookeeper: ZookeeperProcess) -> None:
    async def scenario() -> None:
        leader = await asyncio.to_thread(zookeeper.leader)
        follower, another = (member for member in zookeeper.members if member != leader)
        other = await open_metadata(zookeeper.url("paused", [leader]))
        zookeeper.kill(another)
        store = await open_metadata(zookeeper.url("paused", [follower, another]))
        await asyncio.to_thread(zookeeper.restart, another)
        await store.txn([], [Put("a", b"1")])
        zookeeper.pause(follower)
        await other.txn([], [Put("a", b"2")])
        found = await asyncio.wait_for(store.get("a"), PATIENCE_S)
        assert found is not None
        assert found.value == b"2"
        zookeeper.resume(follower)
        await store.close()
        await other.close()

    asyncio.run(scenario())
