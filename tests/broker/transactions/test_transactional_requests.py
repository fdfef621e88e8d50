"""Whole transactions by their requests, sent without waiting for the answers as clients do, with both durabilities."""

import asyncio
import errno
from pathlib import Path

import pytest

from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.transactions.raw_producers import ID, Producer
from tests.broker.transactions.transactors import committed_values, partition_of
from tests.support.eventually import until
from tests.support.local_broker import running

pytestmark = pytest.mark.parametrize("durability", ["os", "sync"])


def test_transactions_of_the_newer_protocol_follow_each_other_at_once(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), durability=durability) as (broker, client):
            await client.create("t")
            producer = Producer(client)
            await producer.begin()
            for number in range(20):
                producer.send(b"%d a" % number, 12)
                producer.send(b"%d b" % number, 12)
                assert [await producer.sent(12), await producer.sent(12)] == [0, 0]
                producer.end(5)
                assert await producer.ended(5) == 0
            partition = partition_of(broker)
            await until(lambda: partition.last_stable_offset == partition.high_watermark)
            assert await committed_values(client) == [b"%d %s" % (n, x) for n in range(20) for x in (b"a", b"b")]

    asyncio.run(scenario())


def test_transactions_of_the_older_protocol_follow_each_other_at_once(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), durability=durability) as (broker, client):
            await client.create("t", 2)
            producer = Producer(client)
            await producer.begin()
            for number in range(20):
                producer.add(0, 1)
                assert await producer.added() == [0, 0]
                producer.send(b"%d" % number, 7)
                assert await producer.sent(7) == 0
                producer.end(1, is_commit=number % 2 == 0)
                assert await producer.ended(1) == 0
            partition = partition_of(broker)
            await until(lambda: partition.last_stable_offset == partition.high_watermark)
            assert await committed_values(client) == [b"%d" % number for number in range(0, 20, 2)]

    asyncio.run(scenario())


def test_a_partition_that_was_not_added_takes_no_batch(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), durability=durability) as (broker, client):
            await client.create("t")
            producer = Producer(client)
            await producer.begin()
            producer.send(b"early", 7)
            assert await producer.sent(7) == ErrorCode.INVALID_TXN_STATE
            assert partition_of(broker).log_end == 0

    asyncio.run(scenario())


def test_a_coordinator_whose_disk_is_full_sends_its_clients_away_and_comes_back(
    tmp_path: Path, durability: str
) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files, durability=durability) as (broker, client):
            await client.create("t")
            producer = Producer(client)
            await producer.begin()
            producer.send(b"kept", 12)
            assert await producer.sent(12) == 0
            files.fail("pwritev", errno.ENOSPC, is_lasting=True)
            producer.end(5)
            assert await producer.ended(5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            files.heal()
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            while code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                producer.end(5)
                code = ErrorCode(await producer.ended(5))
            assert code is ErrorCode.NONE
            partition = partition_of(broker)
            await until(lambda: partition.last_stable_offset == partition.high_watermark == 2)
            assert await committed_values(client) == [b"kept"]

    asyncio.run(scenario())


def test_a_batch_that_is_refused_for_itself_does_not_begin_a_transaction(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), durability=durability) as (broker, client):
            await client.create("t", max_message_bytes="100")
            producer = Producer(client)
            await producer.begin()
            producer.send(b"x" * 200, 12)
            assert await producer.sent(12) == ErrorCode.MESSAGE_TOO_LARGE
            assert not broker.transactions.described(ID).partitions

    asyncio.run(scenario())
