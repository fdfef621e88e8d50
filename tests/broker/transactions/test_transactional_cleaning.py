"""Compaction and retention with transactions: nothing committed goes, nothing aborted stays or comes back."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.housekeeping.compactor import Compaction, dirty_log
from headwater.broker.log.partition import Partition
from headwater.broker.server import Broker
from headwater.metadata.keys import SealedSegment
from headwater.records.batch import BatchHeader, split
from headwater.records.compaction import ENTRY_BYTES
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.transactions.transactors import Transactor, committed_values, partition_of, read_committed, roll
from tests.support.eventually import until
from tests.support.local_broker import Client, keyed, running

NOW_MS = 1_700_000_000_000
DELETE_RETENTION_MS = 10_000
COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "delete_retention_ms": str(DELETE_RETENTION_MS),
    "segment_bytes": "100000",
}


async def compact(broker: Broker) -> None:
    """All that is there: the open segment ends first, and is not empty then."""
    await roll(partition_of(broker))
    await broker.cleaner.compact()


async def batches(client: Client) -> list[BatchHeader]:
    """Everything that the log holds, bare headers and markers, too."""
    found: list[BatchHeader] = []
    offset = 0
    while True:
        result = await client.fetch("t", offset)
        headers = [header for header, _ in split(result.records or b"")]
        if not headers:
            return found
        found += headers
        offset = headers[-1].last_offset + 1


async def markers(client: Client) -> list[int]:
    return [header.base_offset for header in await batches(client) if header.is_control]


def test_what_was_aborted_goes_and_replaces_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.create("t", **COMPACTED)
            transactor = Transactor(partition_of(broker))
            await transactor.write(b"first", key=b"k")
            await transactor.commit()
            await transactor.write(b"aborted", key=b"k")
            await transactor.write(b"aborted", key=b"new")
            await transactor.abort()
            await compact(broker)
            assert await committed_values(client) == [b"first"]
            everything = await client.read_all("t")
            assert b"aborted" not in [record.value for record in everything]
            assert partition_of(broker).transactions.producers.last_offsets() == {7: 3}
        async with running(tmp_path, files) as (broker, client):
            assert await committed_values(client) == [b"first"]
            transactor.partition = partition_of(broker)
            await transactor.write(b"second", key=b"k")
            await transactor.commit()
            assert await committed_values(client) == [b"first", b"second"]

    asyncio.run(scenario())


def test_compaction_stops_where_a_transaction_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t", **COMPACTED)
            partition = partition_of(broker)
            transactor = Transactor(partition)
            for value in (b"1", b"2"):
                await client.produce("t", keyed([("k", value.decode())]))
                await roll(partition)
            await transactor.write(b"open", key=b"k")
            await client.produce("t", keyed([("k", "3")]))
            await roll(partition)
            assert [segment.end for segment in dirty_log(partition, NOW_MS).dirty] == [1, 2]
            await broker.cleaner.compact()
            assert [record.offset for record in await client.read_all("t")] == [1, 2, 3]
            await transactor.abort()
            await compact(broker)
            assert [record.value for record in await read_committed(client)] == [b"3"]

    asyncio.run(scenario())


def test_a_marker_stays_as_long_as_anything_of_its_transaction_and_then_its_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        async with running(tmp_path, MemoryFiles(), clock) as (broker, client):
            await client.create("t", **COMPACTED)
            transactor = Transactor(partition_of(broker))
            await transactor.write(b"a", key=b"a")
            await transactor.write(b"b", key=b"b")
            marker = await transactor.commit()
            await compact(broker)
            clock.advance(2 * DELETE_RETENTION_MS / 1000)
            await client.produce("t", keyed([("a", "replaced")]))
            await compact(broker)
            assert await markers(client) == [marker], "b is still there"
            await client.produce("t", keyed([("b", "replaced")]))
            await compact(broker)
            assert await markers(client) == [marker], "readers that have read b may still want it"
            clock.advance(DELETE_RETENTION_MS / 1000 - 1)
            await client.produce("t", keyed([("c", "new")]))
            await compact(broker)
            assert await markers(client) == [marker]
            clock.advance(2)
            await client.produce("t", keyed([("c", "newer")]))
            await compact(broker)
            assert await markers(client) == []
            assert await committed_values(client) == [b"replaced", b"replaced", b"newer"]

    asyncio.run(scenario())


@pytest.mark.parametrize("lives", [(4,), (1, 1, 1, 1)])
def test_without_its_marker_an_aborted_transaction_hides_nothing_that_came_later(
    tmp_path: Path, lives: tuple[int, ...]
) -> None:
    """A reader that is told of an abort and never meets its marker would leave out what its producer wrote since."""

    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        files = MemoryFiles()
        for life, compactions in enumerate(lives):
            async with running(tmp_path, files, clock) as (broker, client):
                if life == 0:
                    await client.create("t", **COMPACTED)
                    transactor = Transactor(partition_of(broker))
                    await transactor.write(b"aborted", key=b"a")
                    await transactor.abort()
                    await transactor.write(b"committed", key=b"b")
                    await transactor.commit()
                else:
                    assert partition_of(broker).aborted_transactions(0, 100) == [], "before its marker goes"
                    assert await committed_values(client) == [b"committed", b"filler"]
                for _ in range(compactions):
                    await client.produce("t", keyed([("filler", "filler")]))
                    await compact(broker)
                    assert partition_of(broker).aborted_transactions(0, 100) == []
                    assert await committed_values(client) == [b"committed", b"filler"]
                    clock.advance(2 * DELETE_RETENTION_MS / 1000)
        async with running(tmp_path, files, clock) as (_, client):
            assert await committed_values(client) == [b"committed", b"filler"]
            assert await markers(client) == [3], "that of the commit; the other one has gone"

    asyncio.run(scenario())


def test_readers_are_right_after_every_step_of_a_compaction_with_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that is covered in part keeps its markers, as long as the partition knows of aborts in it."""

    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files, ManualClock(NOW_MS)) as (broker, client):
            await client.create("t", **COMPACTED | {"delete_retention_ms": "0"})
            partition = partition_of(broker)
            swaps: list[bool] = []

            async def look() -> None:
                found = await read_committed(client)
                assert [each.value for each in found] == [b"%d" % number for number in range(30)]

            async def swap_and_look(old: Sequence[SealedSegment], new: SealedSegment) -> None:
                await Partition.swap(partition, old, new)
                swaps.append(new.compacted)
                await look()

            monkeypatch.setattr(partition, "swap", swap_and_look)
            transactor = Transactor(partition)
            for number in range(30):
                await transactor.write(b"aborted", key=b"k%d" % number)
                await transactor.abort()
                await transactor.write(b"%d" % number, key=b"k%d" % number)
                await transactor.commit()
            await roll(partition)
            log = dirty_log(partition, NOW_MS)
            await Compaction(broker.cleaner._ports, partition, 7 * ENTRY_BYTES).run(log)
            assert swaps == [False, False, False, False, True]
        async with running(tmp_path, files) as (_, client):
            await look()

    asyncio.run(scenario())


def test_retention_keeps_what_an_open_transaction_has_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        async with running(tmp_path, MemoryFiles(), clock) as (broker, client):
            await client.create("t", retention_ms="1000", retention_bytes="1")
            partition = partition_of(broker)
            transactor = Transactor(partition)
            await client.produce("t", keyed([("a", "old")], timestamp=NOW_MS))
            await roll(partition)
            await transactor.write(b"open", timestamp=NOW_MS)
            await roll(partition)
            await client.produce("t", keyed([("a", "new")], timestamp=NOW_MS))
            await roll(partition)
            clock.advance(100)
            await broker.cleaner.retain()
            assert partition.log_start == 1
            await transactor.commit()
            clock.advance(100)
            await broker.cleaner.retain()
            await until(lambda: partition.open_bytes == 0)
            await broker.cleaner.retain()
            assert partition.log_start == partition.high_watermark == 4

    asyncio.run(scenario())


def test_a_silent_producer_is_not_forgotten_while_its_transaction_is_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        async with running(tmp_path, MemoryFiles(), clock) as (broker, client):
            await client.create("t", retention_ms="-1")
            partition = partition_of(broker)
            one, other = Transactor(partition, 1), Transactor(partition, 2)
            await one.write(b"one")
            await other.write(b"other")
            await other.commit()
            clock.advance(broker.config.producer_id_expiration_ms / 1000 + 1)
            await broker.cleaner.retain()
            assert 1 in partition.producers and 2 not in partition.producers

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_readers_of_committed_records_find_the_last_committed_value_of_every_key(
    tmp_path: Path, seed: int
) -> None:
    """Several producers, transactions that reach over segments, compaction and kills in between."""

    async def scenario() -> None:
        chance = random.Random(seed)
        clock = ManualClock(NOW_MS)
        files = MemoryFiles()
        transactors = [Transactor(None, pid) for pid in range(4)]  # type: ignore[arg-type]
        pending: dict[int, list[tuple[int, bytes, bytes]]] = {}
        written: list[tuple[int, bytes, bytes]] = []
        for life in range(4):
            async with running(tmp_path, files, clock, tail_cache_bytes=chance.choice([0, 10_000])) as (broker, client):
                if life == 0:
                    await client.create("t", **COMPACTED | {"delete_retention_ms": "5000"})
                for transactor in transactors:
                    transactor.partition = partition_of(broker)
                for step in range(60):
                    transactor = chance.choice(transactors)
                    mine = pending.setdefault(transactor.producer_id, [])
                    what = chance.random()
                    if what < 0.6:
                        key, value = b"k%d" % chance.randrange(8), b"%d.%d" % (life, step)
                        mine.append((await transactor.write(value, key=key), key, value))
                    elif what < 0.75 and mine:
                        await transactor.commit()
                        written += mine
                        mine.clear()
                    elif what < 0.9 and mine:
                        await transactor.abort()
                        mine.clear()
                    elif what < 0.96:
                        await roll(partition_of(broker))
                    else:
                        clock.advance(chance.choice([1, 6]))
                        await broker.cleaner.compact()
                        await check(broker, client, written)
                await check(broker, client, written)
                files = files.killed() if chance.random() < 0.7 else files
        async with running(tmp_path, files, clock) as (broker, client):
            for transactor in transactors:
                transactor.partition = partition_of(broker)
                if pending.get(transactor.producer_id):
                    await transactor.commit()
                    written += pending[transactor.producer_id]
            await compact(broker)
            await check(broker, client, written)
            assert {each.value for each in await read_committed(client)} == {
                value for _, _, value in last_of_keys(written).values()
            }

    async def check(broker: Broker, client: Client, written: list[tuple[int, bytes, bytes]]) -> None:
        stable = partition_of(broker).last_stable_offset
        known = {offset: (key, value) for offset, key, value in written}
        found = await read_committed(client)
        assert all(known[each.offset] == (each.key, each.value) for each in found), f"seed {seed}"
        expected = last_of_keys([entry for entry in written if entry[0] < stable])
        assert {each.key: each.offset for each in found} == {key: offset for key, (offset, _, _) in expected.items()}, (
            f"seed {seed}"
        )

    asyncio.run(scenario())


def last_of_keys(written: list[tuple[int, bytes, bytes]]) -> dict[bytes, tuple[int, bytes, bytes]]:
    return {entry[1]: entry for entry in sorted(written)}
