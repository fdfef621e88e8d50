"""Readers of committed records who wait: they are woken when enough became stable, and not before."""

import asyncio
from pathlib import Path

from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.transactions.transactors import Transactor, committed_records, fetch_committed, partition_of
from tests.support.eventually import FOREVER_MS, PATIENCE_S, until
from tests.support.local_broker import Client, batch_of, running


class Counting:
    """Somebody who waits, and counts."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def grew(self, size_bytes: int) -> None:
        self.calls.append(size_bytes)


def test_a_reader_wakes_for_the_marker_and_not_for_the_batches_before_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            all_of_it, stable = Counting(), Counting()
            partition.watchers.add(all_of_it)
            partition.stable_watchers.add(stable)
            consumer = await Client.connect(broker)
            waiting = asyncio.create_task(fetch_committed(consumer, 0, wait_ms=FOREVER_MS))
            await until(lambda: len(partition.stable_watchers) == 2)
            transactor = Transactor(partition)
            for number in range(10):
                await transactor.write(b"%d" % number)
            await client.round_trips()
            assert not waiting.done()
            assert len(all_of_it.calls) == 10 and stable.calls == []
            await transactor.commit()
            result = await asyncio.wait_for(waiting, PATIENCE_S)
            assert [each.value for each in committed_records(result, 0)] == [b"%d" % number for number in range(10)]
            assert len(stable.calls) == 1
            assert sum(stable.calls) == sum(all_of_it.calls) == len(result.records)
            consumer.close()

    asyncio.run(scenario())


def test_min_bytes_counts_what_became_stable(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            small, large = Transactor(partition, 1), Transactor(partition, 2)
            await small.write(bytes(100))
            await large.write(bytes(5_000))
            consumer = await Client.connect(broker)
            waiting = asyncio.create_task(fetch_committed(consumer, 0, wait_ms=FOREVER_MS, min_bytes=1_000))
            await until(lambda: len(partition.stable_watchers) == 1)
            await small.commit()
            await client.round_trips()
            assert not waiting.done(), "a transaction of 100 bytes has ended; the large one has not"
            await large.commit()
            result = await asyncio.wait_for(waiting, PATIENCE_S)
            assert len(result.records) > 5_000
            consumer.close()

    asyncio.run(scenario())


def test_bytes_that_were_there_before_the_wait_are_not_missed(tmp_path: Path) -> None:
    """They were counted when they came, long before anybody waited for them."""

    async def scenario() -> None:
        files = MemoryFiles()
        transactor = Transactor(None)  # type: ignore[arg-type]
        for restarts in (0, 1):
            async with running(tmp_path, files) as (broker, client):
                if not restarts:
                    await client.create("t")
                transactor.partition = partition_of(broker)
                await transactor.write(bytes(4_000))
                if not restarts:
                    continue
                waiting = asyncio.create_task(fetch_committed(client, 0, wait_ms=FOREVER_MS, min_bytes=7_000))
                await until(lambda: len(partition_of(broker).stable_watchers) == 1)
                await transactor.commit()
                result = await asyncio.wait_for(waiting, PATIENCE_S)
                assert len(result.records) > 4_000, "as far as its segment goes"

    asyncio.run(scenario())


def test_where_there_are_no_transactions_both_kinds_of_readers_see_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            consumer = await Client.connect(broker)
            waiting = asyncio.create_task(fetch_committed(consumer, 0, wait_ms=FOREVER_MS, min_bytes=300))
            await until(lambda: len(partition_of(broker).stable_watchers) == 1)
            await client.produce("t", batch_of([bytes(100)]))
            await client.round_trips()
            assert not waiting.done()
            await client.produce("t", batch_of([bytes(100)]))
            result = await asyncio.wait_for(waiting, PATIENCE_S)
            plain = await client.fetch("t", 0)
            assert result.records == plain.records
            assert result.last_stable_offset == plain.last_stable_offset == 2
            assert result.aborted_transactions == [] and plain.aborted_transactions is None
            consumer.close()

    asyncio.run(scenario())


def test_the_answer_names_the_aborted_transactions_of_its_own_range(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            transactor = Transactor(partition_of(broker))
            for _ in range(5):
                await transactor.write(bytes(1_000))
                await transactor.abort()
            for cached in (True, False):
                if not cached:
                    broker.tail_cache.clear(partition_of(broker)._tail)
                result = await fetch_committed(client, 4, max_bytes=2_500)
                named = [(each.producer_id, each.first_offset) for each in result.aborted_transactions]
                assert named == [(7, 4), (7, 6)]
                assert result.last_stable_offset == result.high_watermark == 10
            everything = await client.fetch("t", 0)
            assert everything.aborted_transactions is None and everything.last_stable_offset == 10

    asyncio.run(scenario())


def test_a_reader_at_the_last_stable_offset_waits_for_its_time_and_then_knows_how_far_the_log_is(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            await client.produce("t", batch_of([b"a"]))
            await Transactor(partition_of(broker)).write(b"b", b"c")
            for offset in (1, 2, 3):
                result = await fetch_committed(client, offset, wait_ms=20)
                assert result.error_code == 0 and not result.records
                assert (result.last_stable_offset, result.high_watermark) == (1, 3)
            assert (await fetch_committed(client, 4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    asyncio.run(scenario())


def test_a_deleted_topic_wakes_those_who_wait_for_stable_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            await Transactor(partition_of(broker)).write(b"a")
            consumer = await Client.connect(broker)
            waiting = asyncio.create_task(fetch_committed(consumer, 0, wait_ms=FOREVER_MS))
            await until(lambda: len(partition_of(broker).stable_watchers) == 1)
            await broker.catalog.changes.delete(broker.catalog.topic("t"))
            result = await asyncio.wait_for(waiting, PATIENCE_S)
            assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            consumer.close()

    asyncio.run(scenario())
