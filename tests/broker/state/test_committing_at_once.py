"""`durability=os`: what is small is in the log when the call returns, and everything else keeps its place."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.broker.log.partition import Appended, Partition
from headwater.broker.state.record_log import RecordLog
from headwater.model.errors import ErrorCode, RequestError
from headwater.records.batch import parse_header
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.transactions.transactors import Transactor, committed_values, partition_of
from tests.support.eventually import until
from tests.support.local_broker import batch_of, running


def append(partition: Partition, *values: bytes) -> Appended:
    batch = build_batch([Record(None, value) for value in values], timestamp=1)
    return partition.append(batch, parse_header(batch))


def test_a_small_batch_is_committed_when_the_call_returns(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), durability="os") as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            assert append(partition, b"a", b"b").committed is None
            assert append(partition, b"c").committed is None
            assert partition.high_watermark == partition.log_end == 3
            assert [record.value for record in await client.read_all("t")] == [b"a", b"b", b"c"]

    asyncio.run(scenario())


def test_with_sync_nothing_is_committed_before_it_is_flushed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            committed = append(partition, b"a").committed
            assert committed is not None and partition.high_watermark == 0
            await committed
            assert partition.high_watermark == 1

    asyncio.run(scenario())


def test_a_small_batch_does_not_overtake_a_large_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), durability="os") as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            large, small = append(partition, b"x" * 200_000), append(partition, b"small")
            assert large.committed is not None and small.committed is not None
            assert (large.base_offset, small.base_offset, partition.high_watermark) == (0, 1, 0)
            await small.committed
            assert large.committed.done()
            assert append(partition, b"next").committed is None
            assert [len(record.value or b"") for record in await client.read_all("t")] == [200_000, 5, 4]

    asyncio.run(scenario())


def test_a_segment_that_is_full_is_rolled_before_the_next_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), durability="os") as (broker, client):
            await client.create("t", segment_bytes="1048576")
            partition = partition_of(broker)
            for _ in range(40):
                appended = append(partition, b"x" * 60_000)
                if appended.committed is not None:
                    await appended.committed
            assert len(partition.register.chain.sealed) == 2
            assert len(await client.read_all("t")) == 40

    asyncio.run(scenario())


def test_a_full_disk_leaves_nothing_of_the_batch_it_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files, durability="os") as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            one, other = Transactor(partition, 1), Transactor(partition, 2)
            await one.write(b"one")
            files.fail("pwritev", errno.ENOSPC, is_lasting=True)
            refused: list[Callable[[], object]] = [
                lambda: other.send(b"other"), lambda: one.mark(True), lambda: append(partition, b"plain"),
            ]  # fmt: skip
            for call in refused:
                with pytest.raises(RequestError) as caught:
                    call()
                assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert partition.log_end == partition.high_watermark == 1
            assert partition.has_open_transaction(1, 0) and not partition.has_open_transaction(2, 0)
            files.heal()
            other.sequence = 0
            await other.write(b"other")
            await one.commit()
            await other.commit()
            assert await committed_values(client) == [b"one", b"other"]

    asyncio.run(scenario())


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_who_is_called_back_by_a_log_may_write_and_the_order_stays(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), durability=durability) as (broker, client):
            await client.create("t")
            partition = partition_of(broker)
            log = RecordLog(partition, ManualClock(), lambda _: None)
            told: list[str] = []

            def first(error: RequestError | None) -> None:
                assert error is None and partition.high_watermark >= 1
                log.write([Record(None, b"third")], lambda _: told.append("third"))
                told.append("first")

            log.write([Record(None, b"first")], first)
            log.write([Record(None, b"second")], lambda _: told.append("second"))
            log.write([], lambda _: told.append("nothing"))
            await until(lambda: len(told) == 4)
            values = [record.value for record in await client.read_all("t")]
            assert sorted(values, key=repr) == [b"first", b"second", b"third"]
            assert [name for name in told if name != "nothing"] == [value.decode() for value in values if value]
            assert told.index("nothing") > told.index("second")

    asyncio.run(scenario())


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_log_that_is_not_taken_tells_its_owner_first(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files, durability=durability) as (broker, client):
            await client.create("t")
            told: list[object] = []
            log = RecordLog(partition_of(broker), ManualClock(), lambda error: told.append(("lost", error.code)))
            await client.produce("t", batch_of([b"before"]))
            files.fail("pwritev", errno.ENOSPC, is_lasting=True)
            log.write([Record(None, b"a")], lambda error: told.append(error and error.code))
            await until(lambda: len(told) == 2)
            assert told == [("lost", ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR]
            files.heal()
            log.write([Record(None, b"b")], told.append)
            await until(lambda: len(told) == 3)
            assert told[2] is None
            assert [record.value for record in await client.read_all("t")] == [b"before", b"b"]

    asyncio.run(scenario())
