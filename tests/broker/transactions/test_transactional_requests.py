"""Whole transactions by their requests, sent without waiting for the answers as clients do, with both durabilities."""

import asyncio
import errno
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.model.errors import ErrorCode
from headwater.records.batch import TRANSACTIONAL
from headwater.testing.fakes.files import MemoryFiles
from headwater.wire.codec import Message
from tests.broker.local_broker import INIT_PRODUCER_ID, PRODUCE, Client, batch_of, running
from tests.broker.transactions.transactors import committed_values, partition_of
from tests.support.eventually import until

ADD_PARTITIONS, END = 24, 26
ID = "orders"
pytestmark = pytest.mark.parametrize("durability", ["os", "sync"])


@dataclass
class Producer:
    client: Client
    id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def begin(self) -> None:
        answer = await self.client.ask(
            INIT_PRODUCER_ID, 4, transactional_id=ID, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        assert answer.error_code == 0
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def send(self, value: bytes, version: int, partition: int = 0) -> None:
        batch = batch_of(
            [value],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=TRANSACTIONAL,
        )
        self.sequence += 1
        data = Message(name="t", partition_data=[Message(index=partition, records=bytes(batch))])
        self.client.send(PRODUCE, version, transactional_id=ID, acks=-1, timeout_ms=5_000, topic_data=[data])

    async def sent(self, version: int) -> int:
        """The error code of the batch whose answer is next."""
        answer = await self.client.answer(PRODUCE, version)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    def end(self, version: int, is_commit: bool = True) -> None:
        self.client.send(
            END, version, transactional_id=ID, producer_id=self.id, producer_epoch=self.epoch, committed=is_commit
        )

    async def ended(self, version: int) -> int:
        answer = await self.client.answer(END, version)
        if version >= 5 and not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        code: int = answer.error_code
        return code

    def add(self, *partitions: int) -> None:
        self.client.send(
            ADD_PARTITIONS, 0, v3_and_below_transactional_id=ID, v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch, v3_and_below_topics=[Message(name="t", partitions=partitions)],
        )  # fmt: skip

    async def added(self) -> list[int]:
        answer = await self.client.answer(ADD_PARTITIONS, 0)
        (topic,) = answer.results_by_topic_v3_and_below
        return [each.partition_error_code for each in topic.results_by_partition]


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
