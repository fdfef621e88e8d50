"""The log of a running broker: what is acknowledged is there, whatever happens to the process or the disk."""

import asyncio
import errno
import itertools
from pathlib import Path

import pytest

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.replica import StoreFailed
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.support.eventually import FOREVER_MS, PATIENCE_S, until
from tests.support.local_broker import Client, batch_of, keyed, running, start
from tests.support.messages import nested

NOW_MS = 1_700_000_000_000


def values(found: list[Record]) -> list[bytes | None]:
    return [record.value for record in found]


def offsets(found: list[Record]) -> list[int]:
    return [record.offset for record in found]


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        broker = await start(tmp_path, files, durability=durability)
        client = await Client.connect(broker)
        await client.create("t")
        for number in range(30):
            result = await client.produce("t", batch_of([b"%d" % number, b"more"]))
            assert (result.error_code, result.base_offset) == (0, 2 * number)
        left_behind = files.killed()
        client.close()
        await broker.stop()
        async with running(tmp_path, left_behind, durability=durability) as (_, client):
            found = await client.read_all("t")
            assert offsets(found) == list(range(60))
            assert values(found)[::2] == [b"%d" % number for number in range(30)]
            assert (await client.produce("t", batch_of([b"next"]))).base_offset == 60

    asyncio.run(scenario())


def test_every_restart_is_a_new_epoch_and_records_keep_theirs(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        for epoch in range(4):
            async with running(tmp_path, files) as (broker, client):
                if epoch == 0:
                    await client.create("t")
                await client.produce("t", batch_of([b"x"]))
                partition = broker.catalog.topic("t").partition(0)
                assert partition.leader_epoch == epoch
                starts = [(start.epoch, start.start) for start in partition.register.chain.epochs()]
                assert starts == [(number, number) for number in range(epoch + 1)]

    asyncio.run(scenario())


def test_segments_roll_by_size_and_reads_cross_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files, tail_cache_bytes=0) as (broker, client):
            await client.create("t", segment_bytes="2000")
            for number in range(50):
                await client.produce("t", batch_of([b"%04d" % number + bytes(100)]))
            partition = broker.catalog.topic("t").partition(0)
            assert len(partition.register.chain.sealed) >= 4
            assert all(segment.size_bytes <= 2000 for segment in partition.register.chain.sealed)
            assert offsets(await client.read_all("t")) == list(range(50))
            assert ((await client.fetch("t", 17)).records or b"")[:8] == (17).to_bytes(8, "big")
        async with running(tmp_path, files, tail_cache_bytes=0) as (_, client):
            assert offsets(await client.read_all("t")) == list(range(50))

    asyncio.run(scenario())


def test_many_producers_at_once_share_segments_that_roll_under_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t", segment_bytes="3000")
            clients = [await Client.connect(broker) for _ in range(10)]

            async def produce(producer: Client, name: int) -> list[int]:
                return [
                    (await producer.produce("t", batch_of([b"%d-%d" % (name, number) + bytes(50)]))).base_offset
                    for number in range(20)
                ]

            given = await asyncio.gather(*(produce(producer, name) for name, producer in enumerate(clients)))
            assert sorted(itertools.chain(*given)) == list(range(200))
            assert all(mine == sorted(mine) for mine in given)
            assert offsets(await client.read_all("t")) == list(range(200))
            for producer in clients:
                producer.close()

    asyncio.run(scenario())


def test_a_full_disk_is_told_and_forgotten_when_there_is_room_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (_, client):
            await client.create("t")
            good = [await client.produce("t", batch_of([b"before"]))]
            files.fail("pwritev", errno.ENOSPC, is_lasting=True)
            for _ in range(3):
                refused = await client.produce("t", batch_of([b"lost"]))
                assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                assert refused.base_offset == -1
            assert values(await client.read_all("t")) == [b"before"]
            files.heal()
            good.append(await client.produce("t", batch_of([b"after"])))
            assert [(result.error_code, result.base_offset) for result in good] == [(0, 0), (0, 1)]
            assert values(await client.read_all("t")) == [b"before", b"after"]
        async with running(tmp_path, files) as (_, client):
            assert values(await client.read_all("t")) == [b"before", b"after"]

    asyncio.run(scenario())


def test_a_nearly_full_disk_takes_no_new_topic_and_the_log_says_so_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        files, clock = MemoryFiles(), ManualClock()
        async with running(tmp_path, files, clock) as (broker, client):
            await client.create("t")
            free_bytes, capacity_bytes = files.room(tmp_path).free_bytes, files.capacity_bytes
            files.capacity_bytes -= free_bytes - (capacity_bytes - free_bytes) // 20  # less than a 20th of what is left
            for seconds, lines in ((0, 1), (1, 1), (60, 2)):
                clock.advance(seconds)
                with pytest.raises(RequestError, match="No store has room for a new segment") as refused:
                    await broker.catalog.changes.create("new", 1, {})
                assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
                assert caplog.text.count("no_store_has_room") == lines
            assert (await client.produce("t", batch_of([b"still taken"]))).error_code == 0
            files.capacity_bytes = capacity_bytes
            await client.create("new")

    asyncio.run(scenario())


def test_an_idempotent_producer_that_met_a_full_disk_sends_the_same_batch_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (_, client):
            await client.create("t")

            def batch(sequence: int) -> bytearray:
                return batch_of([b"%d" % sequence], producer_id=7, producer_epoch=0, base_sequence=sequence)

            assert (await client.produce("t", batch(0))).base_offset == 0
            files.fail("pwritev", errno.ENOSPC, is_lasting=True)
            for sequence in (1, 2, 3):
                client.send_batch("t", batch(sequence))
            for _ in (1, 2, 3):
                answer = await client.answer(0, 9)
                assert answer.responses[0].partition_responses[0].error_code in (
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                )
            files.heal()
            for sequence in (1, 2, 3):
                assert (await client.produce("t", batch(sequence))).base_offset == sequence
            assert values(await client.read_all("t")) == [b"0", b"1", b"2", b"3"]

    asyncio.run(scenario())


def test_a_failed_flush_ends_the_broker_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        broker = await start(tmp_path, files)
        client = await Client.connect(broker)
        await client.create("t")
        await client.produce("t", batch_of([b"kept"]))
        files.fail("sync_data", errno.EIO)
        client.send_batch("t", batch_of([b"doubtful"]))
        with pytest.raises(StoreFailed):
            await asyncio.wait_for(broker.wait_stopped(), PATIENCE_S)
        client.close()
        await broker.stop()
        files.heal()
        async with running(tmp_path, files.killed()) as (_, client):
            assert values(await client.read_all("t"))[0] == b"kept"

    asyncio.run(scenario())


def test_an_idempotent_batch_is_stored_once_even_across_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        batch = batch_of([b"once", b"only"], producer_id=9, producer_epoch=0, base_sequence=0)
        follower = batch_of([b"then"], producer_id=9, producer_epoch=0, base_sequence=2)
        async with running(tmp_path, files) as (_, client):
            await client.create("t")
            assert [(await client.produce("t", batch)).base_offset for _ in range(3)] == [0, 0, 0]
        async with running(tmp_path, files) as (_, client):
            assert (await client.produce("t", batch)).base_offset == 0
            assert (await client.produce("t", follower)).base_offset == 2
            gap = batch_of([b"gap"], producer_id=9, producer_epoch=0, base_sequence=7)
            assert (await client.produce("t", gap)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            stale = batch_of([b"old"], producer_id=9, producer_epoch=1, base_sequence=0)
            assert (await client.produce("t", stale)).error_code == 0
            assert (await client.produce("t", follower)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert values(await client.read_all("t")) == [b"once", b"only", b"then", b"old"]

    asyncio.run(scenario())


def test_retention_drops_old_segments_and_a_live_change_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        async with running(tmp_path, MemoryFiles(), clock) as (broker, client):
            await client.create("t", segment_bytes="1024", retention_ms="1000000")
            for number in range(20):
                await client.produce("t", batch_of([bytes(300)], timestamp=NOW_MS + number))
            await broker.cleaner.retain()
            assert await client.offset("t", -2) == 0
            topic = broker.catalog.topic("t")
            await broker.catalog.changes.alter_config(topic, lambda old: {**old, "retention.ms": "1000"})
            clock.advance(5)
            await broker.cleaner.retain()  # asks the open segment to end, too
            await until(lambda: broker.catalog.topic("t").partition(0).open_bytes == 0)
            await broker.cleaner.retain()
            assert await client.offset("t", -2) == await client.offset("t", -1) == 20
            refused = await client.fetch("t", 3)
            assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert broker.catalog.topic("t").partition(0).size_bytes == 0

    asyncio.run(scenario())


def test_retention_by_size_keeps_what_was_asked_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.create("t", segment_bytes="1024", retention_bytes="3000", retention_ms="-1")
            for _ in range(40):
                await client.produce("t", batch_of([bytes(300)]))
            await broker.cleaner.retain()
            size = broker.catalog.topic("t").partition(0).size_bytes
            assert 3000 <= size < 3000 + 2048
            start_offset = await client.offset("t", -2)
        async with running(tmp_path, files) as (_, client):
            assert await client.offset("t", -2) == start_offset > 0
            assert offsets(await client.read_all("t", start=start_offset)) == list(range(start_offset, 40))

    asyncio.run(scenario())


def test_compaction_keeps_the_last_value_of_each_key_at_its_offset(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.create("t", segment_bytes="1024", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
            for round_ in range(20):
                await client.produce(
                    "t", keyed([(f"k{number}", f"{round_}-{number}" + "x" * 40) for number in range(5)])
                )
            await broker.cleaner.compact()
            await broker.cleaner.compact()
            found = await client.read_all("t")
            assert len(found) < 40
            assert offsets(found) == sorted(offsets(found))
            assert last_values(found) == {f"k{number}": f"19-{number}" + "x" * 40 for number in range(5)}
            assert all(record.value == value_at(record.offset) for record in found)
            assert await client.offset("t", -1) == 100
        async with running(tmp_path, files) as (_, client):
            assert last_values(await client.read_all("t")) == last_values(found)

    def value_at(offset: int) -> bytes:
        return f"{offset // 5}-{offset % 5}".encode() + b"x" * 40

    asyncio.run(scenario())


def test_a_tombstone_outlives_what_it_deletes_and_then_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        async with running(tmp_path, MemoryFiles(), clock) as (broker, client):
            await client.create(
                "t", segment_bytes="1024", cleanup_policy="compact", min_cleanable_dirty_ratio="0",
                delete_retention_ms="10000",
            )  # fmt: skip
            await client.produce("t", keyed([("gone", "value"), ("kept", "value")]))
            await client.produce("t", keyed([("gone", None)]))
            for number in range(10):
                await client.produce("t", keyed([(f"filler{number}", "x" * 200)]))
            await broker.cleaner.compact()
            found = await client.read_all("t")
            assert [record.value for record in found if record.key == b"gone"] == [None]
            clock.advance(11)
            for number in range(10):
                await client.produce("t", keyed([(f"more{number}", "x" * 200)]))
            await broker.cleaner.compact()
            found = await client.read_all("t")
            assert [record for record in found if record.key == b"gone"] == []
            assert [record.value for record in found if record.key == b"kept"] == [b"value"]

    asyncio.run(scenario())


def test_compaction_with_little_memory_takes_more_passes_and_ends_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), cleaner_memory_bytes=1024 * 1024) as (broker, client):
            from headwater.broker.housekeeping.compactor import Compaction, dirty_log

            await client.create("t", segment_bytes="4096", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
            for round_ in range(3):
                for number in range(100):
                    await client.produce("t", keyed([(f"k{number}", f"{round_}" + "x" * 60)]))
            partition = broker.catalog.topic("t").partition(0)
            log = dirty_log(partition, NOW_MS)
            await Compaction(broker.cleaner._ports, partition, 20 * 192).run(log)
            found = await client.read_all("t")
            assert last_values(found) == {f"k{number}": "2" + "x" * 60 for number in range(100)}
            below = [record for record in found if record.offset < log.dirty[-1].end]
            assert len(below) == len({record.key for record in below})

    asyncio.run(scenario())


def test_compaction_keeps_what_an_idempotent_producer_needs(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.create("t", segment_bytes="1024", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
            batch = build_batch(
                [Record(b"k", b"v" * 100, timestamp=1)], producer_id=3, producer_epoch=0, base_sequence=0
            )
            await client.produce("t", batch)
            for _ in range(20):
                await client.produce("t", keyed([("k", "y" * 200)]))
            await broker.cleaner.compact()
        async with running(tmp_path, files) as (broker, client):
            assert (await client.produce("t", batch)).base_offset == 0
            assert (await client.offset("t", -1)) == 21

    asyncio.run(scenario())


def test_a_long_poll_wakes_when_enough_has_come_and_not_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            consumer = await Client.connect(broker)
            watchers = broker.catalog.topic("t").partition(0).watchers
            waiting = asyncio.create_task(consumer.fetch("t", 0, wait_ms=FOREVER_MS, min_bytes=300))
            await until(lambda: watchers)
            await client.produce("t", batch_of([bytes(100)]))
            await client.round_trips()
            assert watchers and not waiting.done()
            await client.produce("t", batch_of([bytes(100)]))
            result = await asyncio.wait_for(waiting, PATIENCE_S)
            assert result.high_watermark == 2
            assert len(result.records or b"") > 300
            consumer.close()

    asyncio.run(scenario())


def test_a_long_poll_does_not_wait_for_what_lies_in_the_next_segment(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), tail_cache_bytes=0) as (_, client):
            await client.create("t", segment_bytes="1024")
            for _ in range(4):
                await client.produce("t", batch_of([bytes(600)]))
            result = await asyncio.wait_for(client.fetch("t", 0, wait_ms=FOREVER_MS, min_bytes=2_000), PATIENCE_S)
            assert 600 < len(result.records or b"") < 2_000

    asyncio.run(scenario())


def test_a_long_poll_ends_with_its_time_with_its_topic_and_with_its_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            assert (await client.fetch("t", 0, wait_ms=30)).records in (None, b"")
            consumer = await Client.connect(broker)
            waiting = asyncio.create_task(consumer.fetch("t", 0, wait_ms=FOREVER_MS))
            await until(lambda: len(broker.catalog.topic("t").partition(0).watchers) == 1)
            await broker.delete_topic(broker.catalog.topic("t"))
            assert (await asyncio.wait_for(waiting, PATIENCE_S)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await client.create("u")
            consumer.send(
                1, 11, max_wait_ms=FOREVER_MS, min_bytes=1, max_bytes=1000, session_id=0, session_epoch=-1,
                topics=[_asked("u")],
            )  # fmt: skip
            partition = broker.catalog.topic("u").partition(0)
            await until(lambda: len(partition.watchers) == 1)
            consumer.close()
            await until(lambda: not partition.watchers)

    asyncio.run(scenario())


def test_a_deleted_topic_leaves_nothing_and_its_name_is_free(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.create("t", partitions=3, segment_bytes="1024")
            old_id = broker.catalog.topic("t").topic_id
            for number in range(30):
                await client.produce("t", batch_of([bytes(300)]), partition=number % 3)
            await broker.delete_topic(broker.catalog.topic("t"))
            assert broker.store.replicas() == []
            await client.create("t")
            assert broker.catalog.topic("t").topic_id != old_id
            assert await client.read_all("t") == []
        async with running(tmp_path, files) as (broker, client):
            assert len(broker.store.replicas()) == 1

    asyncio.run(scenario())


def test_timestamps_find_the_first_record_that_is_not_older(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        for attempt in range(2):
            async with running(tmp_path, files, tail_cache_bytes=0) as (_, client):
                if attempt == 0:
                    await client.create("t", segment_bytes="1024")
                    for number in range(30):
                        record = [Record(None, bytes(100), timestamp=1000 + 10 * number + late) for late in (0, 5)]
                        await client.produce("t", build_batch(record))
                assert await client.offset("t", 0) == 0
                assert await client.offset("t", 1005) == 1
                assert await client.offset("t", 1006) == 2
                assert await client.offset("t", 1295) == 59
                assert await client.offset("t", 1296) == -1
                assert await client.offset("t", -3) == 59

    asyncio.run(scenario())


def _asked(topic: str) -> object:
    return nested(topic=topic, partitions=[nested(partition=0, fetch_offset=0, partition_max_bytes=1000)])


def last_values(found: list[Record]) -> dict[str, str | None]:
    return {
        (record.key or b"").decode(): record.value.decode() if record.value is not None else None for record in found
    }
