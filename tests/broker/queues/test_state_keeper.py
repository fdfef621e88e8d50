"""The log of share groups: full disks, compaction, and what a replay brings back."""

import asyncio
import errno
from pathlib import Path

from headwater.broker.housekeeping.cleaner import Cleaner
from headwater.broker.queues.state_keepers import STATE_TOPIC
from headwater.broker.queues.state_keys import MAX_CHANGES
from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.queue_brokers import numbered, produced, queue_broker, ranges, waits
from tests.broker.queues.share_members import ACCEPT, RELEASE, Member, on_loop
from tests.support.eventually import FOREVER_MS, PATIENCE_S, until
from tests.support.local_broker import running


@on_loop
async def test_a_full_disk_is_told_and_nothing_counts_that_was_not_logged(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files, durability="os") as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(4))
        await member.fetch(wait_ms=1000)
        assert await member.acknowledge((0, 0, ACCEPT)) == 0
        files.fail("pwritev", errno.ENOSPC, is_lasting=True)
        assert await member.acknowledge((1, 1, ACCEPT)) == ErrorCode.KAFKA_STORAGE_ERROR
        files.heal()
        await until(lambda: broker.shares.of_group("g"))
        assert (await member.fetch(wait_ms=1000)).offsets == [1, 2, 3]
        assert await member.acknowledge((1, 3, ACCEPT)) == 0


@on_loop
async def test_a_fetch_that_waits_survives_a_full_disk(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files, durability="os") as (broker, client):
        first, second = [await Member.joined(broker, "t") for _ in range(2)]
        await produced(client, *numbered(2))
        await first.fetch(wait_ms=1000)
        waiting = asyncio.create_task(second.fetch(wait_ms=FOREVER_MS))
        await waits(broker)
        files.fail("pwritev", errno.ENOSPC, is_lasting=True)
        assert await first.acknowledge((0, 0, ACCEPT)) == ErrorCode.KAFKA_STORAGE_ERROR
        files.heal()
        assert (await asyncio.wait_for(waiting, PATIENCE_S)).offsets == [0, 1], "nobody holds anything after a replay"


@on_loop
async def test_a_compacted_log_brings_back_the_same_queue(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files, share_state_topic_partitions=1) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(1800))
        await member.fetch(wait_ms=1000, max_records=1800)
        for offset in range(0, 3 * MAX_CHANGES, 2):
            kind = RELEASE if offset % 3 == 0 else ACCEPT
            assert await member.acknowledge((offset, offset, kind)) == 0
        log = broker.catalog.topic(STATE_TOPIC).partition(0)
        before_bytes = log.size_bytes
        log.ask_roll()
        await until(lambda: log.open_bytes == 0)
        assert await member.acknowledge((1799, 1799, ACCEPT)) == 0
        await until(lambda: log.register.chain.sealed[0].crc32c is not None)
        await Cleaner(broker.catalog._ports, broker.catalog, broker.config).compact()
        assert log.size_bytes < before_bytes
        member.vanish()
        await until(lambda: not broker.shares.of_group("g")[0].share.acquired_count)
        before = ranges(broker)
    async with queue_broker(tmp_path, files) as (broker, client):
        await until(lambda: broker.shares.of_group("g"))
        assert ranges(broker) == before


@on_loop
async def test_a_stop_takes_leases_back_without_counting_them(tmp_path: Path) -> None:
    files = MemoryFiles()
    for _ in range(3):
        async with queue_broker(tmp_path, files) as (broker, client):
            if not broker.catalog.topic("t").partition(0).log_end:
                await produced(client, b"x")
            member = await Member.joined(broker, "t", opens=False)
            assert (await member.fetch(wait_ms=1000)).ranges == {0: [(0, 0, 1)]}


@on_loop
async def test_a_forgotten_queue_stays_forgotten(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(2))
        await member.fetch(wait_ms=1000)
        assert await member.acknowledge((0, 0, ACCEPT)) == 0
        await broker.shares.delete_group("g")
    async with queue_broker(tmp_path, files) as (broker, client):
        assert await broker.shares.loaded("g") == []


@on_loop
async def test_the_queue_of_a_topic_that_went_during_a_crash_is_forgotten(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, _):
        await Member.joined(broker, "t")
        await broker.catalog.changes.delete(broker.catalog.topic("t"))
    async with running(tmp_path, files) as (broker, _):
        assert await broker.shares.loaded("g") == []


@on_loop
async def test_many_acknowledgements_at_once_share_few_appends(tmp_path: Path) -> None:
    async with queue_broker(tmp_path, share_state_topic_partitions=1) as (broker, client):
        members = [await Member.joined(broker, "t") for _ in range(10)]
        await produced(client, *numbered(100))
        for member in members:
            await member.fetch(wait_ms=1000, max_records=10)
        log = broker.catalog.topic(STATE_TOPIC).partition(0)
        appends = 0
        append = log.append

        def counted(*args: object) -> object:
            nonlocal appends
            appends += 1
            return append(*args)  # type: ignore[arg-type]

        log.append = counted  # type: ignore[method-assign, assignment]
        results = await asyncio.gather(
            *(member.acknowledge((10 * n, 10 * n + 9, ACCEPT)) for n, member in enumerate(members))
        )
        assert results == [0] * 10
        assert appends <= 4
