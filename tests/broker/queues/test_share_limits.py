"""How much one share fetch brings: the limit in bytes, and what may exceed it (KIP-74); its part, while others wait."""

import asyncio
from pathlib import Path

import pytest

from headwater.broker.server import Broker
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.queue_brokers import numbered, produced, queue_broker
from tests.broker.queues.share_members import Fetched, Member, configure, on_loop
from tests.support.eventually import until
from tests.support.local_broker import Client

SMALL, BIG = b"s" * 1_000, b"b" * 200_000
LIMIT_BYTES = 100_000


async def fetched_in_turn(member: Member, count: int, max_bytes: int = LIMIT_BYTES) -> list[list[int]]:
    """The offsets of each fetch until that many records came; all are accepted."""
    found: list[list[int]] = []
    while sum(len(each) for each in found) < count:
        fetched = await member.fetch(max_bytes=max_bytes, mode=0)
        assert fetched.offsets, f"nothing came after {found}"
        found.append(fetched.offsets)
        await member.accept_all(fetched)
    return found


async def written(client: Client, *values: bytes, partition: int = 0) -> None:
    """A batch for each value."""
    for value in values:
        await produced(client, value, partition=partition)


@on_loop
async def test_a_big_record_behind_a_small_one_comes_with_a_fetch_of_its_own(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await written(client, SMALL, BIG, SMALL, SMALL)
        assert await fetched_in_turn(member, 4) == [[0], [1], [2, 3]]


@on_loop
async def test_what_is_read_from_disk_keeps_to_the_limit_as_well(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (_, client):
        await written(client, SMALL, SMALL, BIG, *[SMALL] * 5, BIG)
    async with queue_broker(tmp_path, files) as (broker, _):
        member = await Member.joined(broker, "t", opens=False)
        assert broker.catalog.topic("t").partition(0).read_tail(0, 1) is None
        assert await fetched_in_turn(member, 9) == [[0, 1], [2], [3, 4, 5, 6, 7], [8]]


@on_loop
async def test_the_first_batch_of_all_partitions_alone_may_exceed_the_limit(tmp_path: Path) -> None:
    async with queue_broker(tmp_path, partitions=3) as (broker, client):
        member = await Member.joined(broker, "t", partitions=(0, 1, 2))
        await written(client, SMALL, partition=0)
        await written(client, BIG, SMALL, partition=1)
        await written(client, BIG, partition=2)
        first = await member.fetch(max_bytes=LIMIT_BYTES)
        assert {partition: len(found) for partition, found in first.records.items()} == {0: 1}
        rest = [await member.fetch(max_bytes=LIMIT_BYTES) for _ in range(3)]
        assert [sizes_of(each) for each in rest] == [[len(BIG)], [len(BIG)], [len(SMALL)]]


def sizes_of(fetched: Fetched) -> list[int]:
    return [len(value or b"") for value in fetched.values]


@pytest.mark.parametrize("max_bytes", [1, 1_500])
@on_loop
async def test_with_room_for_one_batch_each_fetch_brings_one(tmp_path: Path, max_bytes: int) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await written(client, *[SMALL] * 4)
        assert await fetched_in_turn(member, 4, max_bytes) == [[0], [1], [2], [3]]


@pytest.mark.parametrize("max_bytes", [0, -1])
@on_loop
async def test_without_room_nothing_is_lent_and_others_are_served(tmp_path: Path, max_bytes: int) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        without_room, other = [await Member.joined(broker, "t") for _ in range(2)]
        waiting = asyncio.create_task(without_room.fetch(max_bytes=max_bytes, wait_ms=300))
        other_waiting = asyncio.create_task(other.fetch(wait_ms=10_000))
        await until_waiting(broker)
        await produced(client, SMALL)
        assert (await other_waiting).offsets == [0]
        fetched = await waiting
        assert (fetched.error_code, fetched.offsets) == (0, [])


@on_loop
async def test_who_wants_more_than_there_is_keeps_it_from_nobody(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        greedy, other = [await Member.joined(broker, "t") for _ in range(2)]
        in_vain = asyncio.create_task(greedy.fetch(wait_ms=60_000, min_bytes=100_000))
        await until_waiting(broker)
        waiting = asyncio.create_task(other.fetch(wait_ms=60_000))
        await until_waiting(broker, 2)
        await produced(client, SMALL)
        assert (await waiting).offsets == [0]
        assert not in_vain.done()
        in_vain.cancel()


@on_loop
async def test_members_that_wait_divide_what_comes(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        members = [await Member.joined(broker, "t") for _ in range(6)]
        fetches = [asyncio.create_task(each.fetch(wait_ms=60_000, mode=0)) for each in members]
        await until_waiting(broker, 6)
        await produced(client, *numbered(3_000))
        fetched = [await each for each in fetches]
        assert sorted(len(each.offsets) for each in fetched) == [333] * 4 + [334] * 2
        offsets = [offset for each in fetched for offset in each.offsets]
        assert sorted(offsets) == list(range(2_000)), "as many as may be lent"


@on_loop
async def test_small_bursts_reach_every_member(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        members = [await Member.joined(broker, "t") for _ in range(4)]
        fetches = [asyncio.create_task(each.fetch(wait_ms=60_000, max_records=2, mode=0)) for each in members]
        await until_waiting(broker, 4)
        await produced(client, *numbered(20))
        assert [len((await each).offsets) for each in fetches] == [2, 2, 2, 2], "no more than was asked for"


@pytest.mark.parametrize("is_alone", [True, False])
@on_loop
async def test_whole_batches_go_to_who_is_alone_or_if_the_group_says_so(tmp_path: Path, is_alone: bool) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        members = [await Member.joined(broker, "t") for _ in range(1 if is_alone else 4)]
        if not is_alone:
            await configure(client, headwater_share_fair="false")
        fetches = [asyncio.create_task(each.fetch(wait_ms=60_000, max_records=10, mode=0)) for each in members]
        await until_waiting(broker, len(members))
        await produced(client, *numbered(500))
        assert (await fetches[0]).offsets == list(range(500))
        for each in fetches[1:]:
            assert not each.done()
            each.cancel()


async def until_waiting(broker: Broker, count: int = 1) -> None:
    """That many fetches are parked at the queue of group "g"."""
    await until(lambda: sum(queue.waiting_count for queue in broker.shares) >= count, f"{count} fetches wait")


@on_loop
async def test_records_do_not_wait_for_the_queues_of_other_partitions_to_be_made(tmp_path: Path) -> None:
    async with queue_broker(tmp_path, partitions=3) as (broker, client):
        for partition in range(3):
            await written(client, SMALL, partition=partition)
        member = await Member.joined(broker, "t", partitions=(0, 1, 2), opens=False)
        fetched = [await member.fetch() for _ in range(3)]
        assert [list(each.records) for each in fetched] == [[0], [1], [2]]
        for partition in range(3):
            await written(client, SMALL, partition=partition)
        assert sorted((await member.fetch()).records) == [0, 1, 2], "all are there now"
