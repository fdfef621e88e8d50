"""Share groups on topics with transactions: who is given what, and when."""

import asyncio
from pathlib import Path

import pytest

from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.share_members import ACCEPT, RELEASE, Member, configure, on_loop
from tests.broker.transactions.transactors import Transactor, partition_of
from tests.support.eventually import FOREVER_MS, PATIENCE_S, until
from tests.support.local_broker import batch_of, running

READ_COMMITTED = {"share_auto_offset_reset": "earliest", "share_isolation_level": "read_committed"}


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
@on_loop
async def test_a_group_that_reads_committed_records_is_never_given_aborted_ones(
    tmp_path: Path, cache_bytes: int
) -> None:
    async with running(tmp_path, MemoryFiles(), tail_cache_bytes=cache_bytes) as (broker, client):
        await client.create("t")
        await configure(client, **READ_COMMITTED)
        member = await Member.joined(broker, "t")
        kept, gone = Transactor(partition_of(broker), 1), Transactor(partition_of(broker), 2)
        for number in range(3):
            await kept.write(b"kept %d" % number)
            await gone.write(b"gone %d" % number)
        await client.produce("t", batch_of([b"plain"]))
        assert (await member.fetch()).values == []
        await gone.abort()
        assert (await member.fetch()).values == []
        await kept.commit()
        fetched = await member.fetch(wait_ms=1_000)
        assert fetched.values == [b"kept 0", b"kept 1", b"kept 2", b"plain"]
        assert fetched.ranges == {0: [(0, 0, 1), (2, 2, 1), (4, 4, 1), (6, 6, 1)]}
        assert await member.acknowledge((0, 0, ACCEPT), (2, 2, RELEASE), (4, 4, ACCEPT), (6, 6, ACCEPT)) == 0
        again = await member.fetch(wait_ms=1_000)
        assert again.values == [b"kept 1"]
        assert await member.acknowledge((2, 2, ACCEPT)) == 0
        assert broker.shares.of_group("g")[0].share.start_offset == 9, "aborted records and markers are settled"


@on_loop
async def test_a_group_that_reads_everything_is_given_everything_but_markers(tmp_path: Path) -> None:
    async with running(tmp_path, MemoryFiles()) as (broker, client):
        await client.create("t")
        await configure(client, share_auto_offset_reset="earliest")
        member = await Member.joined(broker, "t")
        gone, goes_on = Transactor(partition_of(broker), 1), Transactor(partition_of(broker), 2)
        await gone.write(b"gone")
        await gone.abort()
        await goes_on.write(b"open")
        fetched = await member.fetch(wait_ms=1_000)
        assert fetched.values == [b"gone", b"open"]
        assert fetched.ranges == {0: [(0, 0, 1), (2, 2, 1)]}


@on_loop
async def test_a_member_that_waits_is_woken_by_the_marker(tmp_path: Path) -> None:
    async with running(tmp_path, MemoryFiles()) as (broker, client):
        await client.create("t")
        await configure(client, **READ_COMMITTED)
        member = await Member.joined(broker, "t")
        transactor = Transactor(partition_of(broker))
        waiting = asyncio.create_task(member.fetch(wait_ms=FOREVER_MS))
        await until(lambda: len(partition_of(broker).stable_watchers) == 1)
        assert not partition_of(broker).watchers
        await transactor.write(b"a")
        await client.round_trips()
        assert not waiting.done()
        await transactor.commit()
        assert (await asyncio.wait_for(waiting, PATIENCE_S)).values == [b"a"]
        assert not partition_of(broker).stable_watchers


@pytest.mark.parametrize("ends", [True, False])
@on_loop
async def test_a_group_may_change_its_mind_while_a_member_waits(tmp_path: Path, ends: bool) -> None:
    async with running(tmp_path, MemoryFiles()) as (broker, client):
        await client.create("t")
        await configure(client, **READ_COMMITTED)
        member = await Member.joined(broker, "t")
        transactor = Transactor(partition_of(broker))
        waiting = asyncio.create_task(member.fetch(wait_ms=FOREVER_MS))
        await until(lambda: len(partition_of(broker).stable_watchers) == 1)
        if ends:
            await configure(client, share_isolation_level="read_uncommitted")
            await transactor.write(b"a")
        else:
            await transactor.write(b"a")
            await client.round_trips()
            assert not waiting.done()
            await configure(client, share_isolation_level="read_uncommitted")
        assert (await asyncio.wait_for(waiting, PATIENCE_S)).values == [b"a"]
        assert not partition_of(broker).stable_watchers and not partition_of(broker).watchers
