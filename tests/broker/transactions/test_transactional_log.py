"""Transactions in a partition's log: markers, the last stable offset, and what is known of them after a restart."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.log import partition as partition_module
from headwater.broker.log.batch_rules import admit
from headwater.model.errors import ErrorCode, RequestError
from headwater.records.batch import LOG_APPEND_TIME, TRANSACTIONAL, Codec, parse_header, split
from headwater.records.record import Record
from headwater.testing.fakes.files import MemoryFiles
from headwater.transactions.partition_snapshot import read_aborted
from tests.broker.transactions.transactors import (
    Transactor,
    committed_values,
    partition_of,
    read_committed,
    roll,
    stable_offset,
)
from tests.support.local_broker import Client, batch_of, running, start
from tests.support.messages import nested

DESCRIBE_PRODUCERS, DELETE_RECORDS, EPOCH_END = 61, 21, 23


def refused(code: ErrorCode, transactor: Transactor, is_commit: bool = True) -> None:
    with pytest.raises(RequestError) as caught:
        transactor.mark(is_commit)
    assert caught.value.code is code


def test_a_transaction_is_seen_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            one, other = Transactor(partition, 1), Transactor(partition, 2)
            await one.write(b"one")
            await client.produce("t", batch_of([b"plain"]))
            assert await committed_values(client) == []
            await other.write(b"other")
            await one.write(b"one more")
            await one.commit()
            assert await committed_values(client) == [b"one", b"plain"]
            await other.abort()
            assert await committed_values(client) == [b"one", b"plain", b"one more"]
            everything = await client.read_all("t")
            assert [record.value for record in everything if record.offset not in (4, 5)] == [
                b"one", b"plain", b"other", b"one more",
            ]  # fmt: skip

    asyncio.run(scenario())


def test_the_last_stable_offset_is_where_the_oldest_transaction_began(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            assert partition.last_stable_offset == 0
            await client.produce("t", batch_of([b"a", b"b"]))
            assert partition.last_stable_offset == 2
            one, other = Transactor(partition, 1), Transactor(partition, 2)
            await one.write(b"c")
            await other.write(b"d")
            await client.produce("t", batch_of([b"e"]))
            assert (partition.last_stable_offset, partition.high_watermark) == (2, 5)
            assert await stable_offset(client) == 2
            assert await client.offset("t", -1) == 5
            await other.commit()
            assert partition.last_stable_offset == 2
            await one.abort()
            assert partition.last_stable_offset == partition.high_watermark == 7

    asyncio.run(scenario())


def test_a_marker_counts_when_it_is_on_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            transactor = Transactor(partition_of(broker))
            await transactor.write(b"a")
            marker = transactor.mark(True)
            assert marker is not None and marker.committed is not None and marker.base_offset == 1
            assert transactor.partition.last_stable_offset == 0
            again = transactor.mark(True)
            assert again is not None and again.committed is marker.committed and again.base_offset == 1
            assert not transactor.partition.has_open_transaction(7, 0)
            await marker.committed
            assert transactor.partition.last_stable_offset == 2
            assert transactor.mark(True) is None
            assert transactor.partition.log_end == 2

    asyncio.run(scenario())


def test_markers_fence_and_are_fenced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            zombie = Transactor(partition_of(broker), coordinator_epoch=2)
            await zombie.write(b"a")
            current = Transactor(partition_of(broker), epoch=1, coordinator_epoch=2)
            await current.abort()
            refused(ErrorCode.INVALID_PRODUCER_EPOCH, zombie)
            with pytest.raises(RequestError) as caught:
                zombie.send(b"b")
            assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
            await current.write(b"c")
            current.coordinator_epoch = 1
            refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, current)
            current.coordinator_epoch = 3
            await current.commit()
            stranger = Transactor(partition_of(broker), producer_id=8, epoch=4)
            await stranger.commit()
            stranger.epoch = 3
            refused(ErrorCode.INVALID_PRODUCER_EPOCH, stranger)
            assert await committed_values(client) == [b"c"]

    asyncio.run(scenario())


@pytest.mark.parametrize("is_newer", [False, True])
def test_after_a_marker_the_producer_goes_on_in_either_protocol(tmp_path: Path, is_newer: bool) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            transactor = Transactor(partition_of(broker))
            for number in range(4):
                await transactor.write(b"%d" % number)
                if is_newer:
                    transactor.next_epoch()
                await (transactor.commit() if number % 2 == 0 else transactor.abort())
            assert await committed_values(client) == [b"0", b"2"]

    asyncio.run(scenario())


def test_a_producer_writes_in_its_transaction_or_outside_of_any(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            transactor = Transactor(partition_of(broker))
            await transactor.write(b"a")
            with pytest.raises(RequestError) as caught:
                transactor.send(b"b", is_transactional=False)
            assert caught.value.code is ErrorCode.INVALID_TXN_STATE
            await transactor.commit()
            await transactor.write(b"b", is_transactional=False)
            assert await committed_values(client) == [b"a", b"b"]

    asyncio.run(scenario())


def test_an_open_transaction_outlives_a_kill(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        broker = await start(tmp_path, files)
        client = await Client.connect(broker)
        await client.create("t")
        transactor = Transactor(partition_of(broker), epoch=3)
        await client.produce("t", batch_of([b"before"]))
        await transactor.write(b"a")
        left_behind = files.killed()
        client.close()
        await broker.stop()
        async with running(tmp_path, left_behind) as (broker, client):
            transactor.partition = partition = partition_of(broker)
            assert partition.has_open_transaction(7, 3)
            assert (partition.last_stable_offset, partition.high_watermark) == (1, 2)
            await transactor.write(b"b")
            assert await committed_values(client) == [b"before"]
            await transactor.commit()
            assert await committed_values(client) == [b"before", b"a", b"b"]

    asyncio.run(scenario())


def test_a_transaction_reaches_over_segments_and_restarts(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        kept, gone = Transactor(None, 1), Transactor(None, 2)  # type: ignore[arg-type]
        for number in range(4):
            async with running(tmp_path, files) as (broker, client):
                if number == 0:
                    await client.create("t")
                kept.partition = gone.partition = partition = partition_of(broker)
                await kept.write(b"kept %d" % number)
                await roll(partition)
                await gone.write(b"gone %d" % number)
                await roll(partition)
                assert partition.last_stable_offset == 0
        async with running(tmp_path, files) as (broker, client):
            kept.partition = gone.partition = partition = partition_of(broker)
            await gone.abort()
            await roll(partition)
            await kept.commit()
            expected = [b"kept %d" % number for number in range(4)]
            assert await committed_values(client) == expected
        for _ in range(3):
            async with running(tmp_path, files, tail_cache_bytes=0) as (broker, client):
                assert await committed_values(client) == expected
                assert partition_of(broker).aborted_transactions(0, 10) == [(2, 1)]
                assert partition_of(broker).last_stable_offset == 10

    asyncio.run(scenario())


def test_aborted_transactions_of_every_segment_are_known_after_restarts(tmp_path: Path) -> None:
    """Each segment's beginning has those of the segment before, also behind segments that stayed empty."""

    async def scenario() -> None:
        files = MemoryFiles()
        expected: list[tuple[int, int]] = []
        for number in range(6):
            async with running(tmp_path, files, tail_cache_bytes=0) as (broker, client):
                if number == 0:
                    await client.create("t")
                partition = partition_of(broker)
                assert partition.aborted_transactions(0, partition.log_end) == expected
                if number == 3:
                    continue  # an open segment that nothing was written to
                if number == 4:  # and one that ends empty because the topic is to be written otherwise
                    topic = broker.catalog.topic("t")
                    await broker.catalog.changes.alter_config(topic, lambda old: {**old, "headwater.durability": "os"})
                await client.produce("t", batch_of([b"kept %d" % number]))
                for pid in range(3):
                    transactor = Transactor(partition, 10 * number + pid)
                    expected.append((transactor.producer_id, await transactor.write(b"gone")))
                    await transactor.abort()
                    if pid != 1:
                        await roll(partition)
                assert partition.aborted_transactions(0, partition.log_end) == expected
        async with running(tmp_path, files, tail_cache_bytes=0) as (broker, client):
            assert await committed_values(client) == [b"kept %d" % number for number in (0, 1, 2, 4, 5)]
            assert await committed_values(client, max_bytes=1) == [b"kept %d" % number for number in (0, 1, 2, 4, 5)]

    asyncio.run(scenario())


def power_cut(files: MemoryFiles) -> MemoryFiles:
    """Only what was flushed is there."""
    return files.crash_point().nothing_more()


@pytest.mark.parametrize("end", [MemoryFiles.killed, power_cut])
def test_the_end_at_any_moment_leaves_each_transaction_whole_or_out(
    tmp_path: Path, end: Callable[[MemoryFiles], MemoryFiles]
) -> None:
    """What was promised is there; what was under way has ended, or goes on and can be ended."""

    async def scenario() -> None:
        files = MemoryFiles()
        expected: list[bytes] = []
        for number in range(10):
            broker = await start(tmp_path, files)
            client = await Client.connect(broker)
            if number == 0:
                await client.create("t")
            is_commit, is_told = number % 3 != 0, number % 2 == 0
            transactor = Transactor(partition_of(broker), number)
            await transactor.write(b"%d a" % number)
            transactor.send(b"%d b" % number)
            marker = transactor.mark(is_commit)
            assert marker is not None and marker.committed is not None
            if is_told:
                await marker.committed
            files = end(files)
            client.close()
            await broker.stop()
            async with running(tmp_path, files) as (broker, client):
                partition = transactor.partition = partition_of(broker)
                if partition.has_open_transaction(number, 0):
                    assert not is_told
                    assert await committed_values(client) == expected
                    await transactor.abort()
                elif is_commit:
                    expected += [b"%d a" % number, b"%d b" % number]
                assert await committed_values(client) == expected
                assert partition.last_stable_offset == partition.high_watermark

    asyncio.run(scenario())


def test_a_full_disk_takes_back_what_began_and_what_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            one, other = Transactor(partition, 1), Transactor(partition, 2)
            await one.write(b"one")
            files.fail("pwritev", errno.ENOSPC, is_lasting=True)
            marker, begun = one.mark(False), other.send(b"other")
            assert marker is not None and marker.committed is not None and begun.committed is not None
            for lost in (marker.committed, begun.committed):
                with pytest.raises(RequestError) as caught:
                    await lost
                assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert partition.has_open_transaction(1, 0) and not partition.has_open_transaction(2, 0)
            assert partition.aborted_transactions(0, 10) == []
            files.heal()
            other.sequence = 0
            await other.write(b"other")
            assert partition.last_stable_offset == 0
            await one.commit()
            await other.commit()
            assert await committed_values(client) == [b"one", b"other"]
        async with running(tmp_path, files) as (_, client):
            assert await committed_values(client) == [b"one", b"other"]

    asyncio.run(scenario())


def test_many_aborts_end_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "ABORTED_PER_SEGMENT", 5)

    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.create("t")
            transactor = Transactor(partition_of(broker))
            for _ in range(23):
                await transactor.write(b"gone")
                await transactor.abort()
            await client.produce("t", batch_of([b"kept"]))
            chain = list(transactor.partition.register.chain)
            replicas = [broker.store.replica(segment.id) for segment in chain]
            named = [len(read_aborted(replica.header)) for replica in replicas if replica is not None]
            assert len(named) >= 5 and 0 < max(named) <= 5
        async with running(tmp_path, files) as (broker, client):
            assert len(partition_of(broker).transactions.aborted) == 23
            assert await committed_values(client) == [b"kept"]

    asyncio.run(scenario())


def test_deleted_records_take_their_aborted_transactions_along(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            transactor = Transactor(partition)
            for _ in range(5):
                await transactor.write(b"gone")
                await transactor.abort()
            await partition.trim(6)
            assert partition.aborted_transactions(0, 10) == [(7, 6), (7, 8)]
            await partition.trim(7)
            assert partition.aborted_transactions(0, 10) == [(7, 6), (7, 8)]
        async with running(tmp_path, files) as (broker, client):
            assert partition_of(broker).aborted_transactions(0, 10) == [(7, 6), (7, 8)]
            await partition_of(broker).trim(10)
            assert partition_of(broker).aborted_transactions(0, 10) == []

    asyncio.run(scenario())


def test_records_of_an_open_transaction_can_be_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files) as (broker, client):
            await client.create("t")
            transactor = Transactor(partition_of(broker))
            await transactor.write(b"a", b"b", b"c")
            await delete_records(client, 2)
            partition = transactor.partition
            assert partition.log_start == partition.last_stable_offset == 2
            await transactor.write(b"d")
            await delete_records(client, -1)
            assert partition.log_start == partition.last_stable_offset == partition.high_watermark == 4
            await transactor.write(b"e")
            assert (partition.last_stable_offset, partition.high_watermark) == (4, 5)
        async with running(tmp_path, files) as (broker, client):
            transactor.partition = partition = partition_of(broker)
            assert (partition.last_stable_offset, partition.high_watermark) == (4, 5)
            await transactor.commit()
            assert await committed_values(client, start=4) == [b"e"]

    asyncio.run(scenario())


async def delete_records(client: Client, offset: int) -> None:
    asked = nested(name="t", partitions=[nested(partition_index=0, offset=offset)])
    answer = await client.ask(DELETE_RECORDS, 1, topics=[asked], timeout_ms=1000)
    assert answer.topics[0].partitions[0].error_code == 0


def test_producers_are_described_with_their_transactions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            ended = Transactor(partition_of(broker), 1, epoch=2, coordinator_epoch=5)
            await ended.write(b"a")
            await ended.commit()
            await Transactor(partition_of(broker), 2).write(b"b")
            asked = nested(name="t", partition_indexes=[0])
            answer = await client.ask(DESCRIBE_PRODUCERS, 0, topics=[asked])
            described = answer.topics[0].partitions[0].active_producers
            assert [
                (each.producer_id, each.producer_epoch, each.coordinator_epoch, each.current_txn_start_offset)
                for each in described
            ] == [(1, 2, 5, -1), (2, 0, -1, 2)]

    asyncio.run(scenario())


@pytest.mark.parametrize("config", [{"message_timestamp_type": "LogAppendTime"}, {"compression_type": "gzip"}])
def test_what_a_topic_does_to_batches_leaves_them_transactional(tmp_path: Path, config: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t", **config)
            partition = partition_of(broker)
            sent = memoryview(
                batch_of([b"a"], producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
            )
            batch, header = admit(sent, partition.config, 1_000, 9)
            assert header.is_transactional
            appended = partition.append(batch, header)
            assert appended.committed is not None
            await appended.committed
            await Transactor(partition).commit()
            result = await client.fetch("t", 0)
            (data, _), (marker, _) = split(result.records or b"")
            assert data.is_transactional and not data.is_control and marker.is_control and marker.is_transactional
            if "compression_type" in config:
                assert data.compression == Codec.GZIP and marker.compression == Codec.NONE
            else:
                assert data.attributes & marker.attributes & LOG_APPEND_TIME
            assert await committed_values(client) == [b"a"]

    asyncio.run(scenario())


def test_markers_have_an_epoch_like_any_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        transactor = Transactor(None)  # type: ignore[arg-type]
        async with running(tmp_path, files) as (broker, client):
            await client.create("t")
            transactor.partition = partition_of(broker)
            await transactor.write(b"a")
        async with running(tmp_path, files) as (broker, client):
            transactor.partition = partition_of(broker)
            await transactor.commit()
            result = await client.fetch("t", 1)
            assert parse_header(result.records or b"").partition_leader_epoch == 1
            asked = nested(partition=0, current_leader_epoch=-1, leader_epoch=0)
            answer = await client.ask(EPOCH_END, 3, replica_id=-1, topics=[nested(topic="t", partitions=[asked])])
            assert answer.topics[0].partitions[0].end_offset == 1

    asyncio.run(scenario())


def test_timestamps_past_the_last_stable_offset_are_not_found(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            await client.produce("t", batch_of([b"a"], timestamp=100))
            transactor = Transactor(partition_of(broker))
            await transactor.write(b"b", timestamp=200)
            await client.produce("t", batch_of([b"c"], timestamp=300))
            assert [await stable_offset(client, time) for time in (100, 200, 300, -3, -2, -1)] == [0, -1, -1, -1, 0, 1]
            assert [await client.offset("t", time) for time in (100, 200, 300, -3, -2, -1)] == [0, 1, 2, 2, 0, 3]
            await transactor.commit()
            assert [await stable_offset(client, time) for time in (100, 200, 300, -2, -1)] == [0, 1, 2, 0, 4]

    asyncio.run(scenario())


def test_records_of_a_reader_from_the_middle_of_a_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            gone, kept = Transactor(partition_of(broker), 1), Transactor(partition_of(broker), 2)
            for number in range(3):
                await gone.write(b"gone %d" % number)
                await kept.write(b"kept %d" % number)
            await gone.abort()
            await kept.commit()
            expected = [(1, b"kept 0"), (3, b"kept 1"), (5, b"kept 2")]
            for first in range(8):
                found: list[Record] = await read_committed(client, start=first)
                assert [(each.offset, each.value) for each in found] == [each for each in expected if each[0] >= first]

    asyncio.run(scenario())
