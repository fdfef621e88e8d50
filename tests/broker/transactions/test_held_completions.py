"""That a transaction is complete is logged with what comes next, or soon; what a crash takes of it comes back."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.server import Broker
from headwater.broker.transactions import transaction_log
from headwater.broker.transactions.transaction_coordinator import STATE_TOPIC
from headwater.model.errors import ErrorCode, RequestError
from headwater.testing.fakes.files import MemoryFiles
from headwater.transactions.event_bytes import decode
from headwater.transactions.events import TransactionStored
from headwater.transactions.transaction import TransactionState
from tests.broker.transactions.raw_producers import ID, Producer
from tests.broker.transactions.transactors import committed_values, partition_of
from tests.support.eventually import until
from tests.support.local_broker import INIT_PRODUCER_ID, Client, running

ONE_PARTITION: dict[str, Any] = {"transaction_state_topic_partitions": 1}
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE, COMPLETE = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT

pytestmark = pytest.mark.parametrize("durability", ["os", "sync"])


@pytest.fixture
def held_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "HOLD_S", 3600.0)


@asynccontextmanager
async def producing(directory: Path, files: MemoryFiles, durability: str) -> AsyncIterator[tuple[Broker, Producer]]:
    """A fresh broker with the topic "t", and a producer that may begin its first transaction."""
    async with running(directory, files, durability=durability, **ONE_PARTITION) as (broker, client):
        await client.create("t")
        producer = Producer(client)
        await producer.begin()
        yield broker, producer


async def logged(client: Client) -> list[tuple[str, TransactionState]]:
    events = [decode(record.key or b"", record.value) for record in await client.read_all(STATE_TOPIC)]
    return [(each.transactional_id, each.transaction.state) for each in events if isinstance(each, TransactionStored)]


async def transact(broker: Broker, producer: Producer, value: bytes, *, is_new_protocol: bool = True) -> None:
    """Returns when the transaction is complete."""
    produce, end = (12, 5) if is_new_protocol else (7, 1)
    if not is_new_protocol:
        producer.add(0)
        assert await producer.added() == [0]
    producer.send(value, produce)
    assert await producer.sent(produce) == 0
    producer.end(end)
    assert await producer.ended(end) == 0
    await until(lambda: broker.transactions.described(ID).state is COMPLETE)


def test_the_next_transaction_takes_the_place_of_the_completion_before(
    tmp_path: Path, durability: str, held_for_long: None
) -> None:
    async def scenario() -> None:
        async with producing(tmp_path, MemoryFiles(), durability) as (broker, producer):
            for number in range(3):
                await transact(broker, producer, b"%d" % number)
            assert await logged(producer.client) == [(ID, EMPTY), *[(ID, ONGOING), (ID, PREPARE)] * 3]

    asyncio.run(scenario())


def test_a_completion_is_logged_with_what_others_decide(tmp_path: Path, durability: str, held_for_long: None) -> None:
    async def scenario() -> None:
        async with producing(tmp_path, MemoryFiles(), durability) as (broker, producer):
            await transact(broker, producer, b"x")
            other = {"transactional_id": "other", "transaction_timeout_ms": 60_000}
            answer = await producer.client.ask(INIT_PRODUCER_ID, 4, **other, producer_id=-1, producer_epoch=-1)
            assert answer.error_code == 0
            assert (await logged(producer.client))[-2:] == [(ID, COMPLETE), ("other", EMPTY)]

    asyncio.run(scenario())


def test_a_completion_that_nothing_follows_is_logged_soon(tmp_path: Path, durability: str) -> None:
    async def scenario() -> None:
        async with producing(tmp_path, MemoryFiles(), durability) as (broker, producer):
            for number in range(2):
                await transact(broker, producer, b"%d" % number)
                state, end = partition_of(broker, STATE_TOPIC), 1 + 3 * (number + 1)
                await until(lambda: state.high_watermark == end)  # noqa: B023
                await asyncio.sleep(2 * transaction_log.HOLD_S)
                assert state.log_end == end
                assert (await logged(producer.client))[-1] == (ID, COMPLETE)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_new_protocol", [True, False])
def test_a_kill_before_that_asks_for_markers_again_and_writes_none(
    tmp_path: Path, durability: str, is_new_protocol: bool, held_for_long: None
) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with producing(tmp_path, files, durability) as (broker, producer):
            await transact(broker, producer, b"before", is_new_protocol=is_new_protocol)
            assert (await logged(producer.client))[-1] == (ID, PREPARE)
            end = partition_of(broker).log_end
            left_behind = files.killed()
        async with running(tmp_path, left_behind, durability=durability, **ONE_PARTITION) as (broker, client):
            await until(lambda: broker.transactions.keeps(ID) and broker.transactions.described(ID).state is COMPLETE)
            assert partition_of(broker).log_end == end
            producer.client = client
            await transact(broker, producer, b"after", is_new_protocol=is_new_protocol)
            assert await committed_values(client) == [b"before", b"after"]

    asyncio.run(scenario())


def test_who_is_no_longer_the_coordinator_logs_nothing_any_more(
    tmp_path: Path, durability: str, held_for_long: None
) -> None:
    async def scenario() -> None:
        async with producing(tmp_path, MemoryFiles(), durability) as (broker, producer):
            await transact(broker, producer, b"x")
            log, state = broker.transactions._topic.log(ID), partition_of(broker, STATE_TOPIC)
            end = state.log_end
            assert (await logged(producer.client))[-1] == (ID, PREPARE)
            log.shard_log.close(RequestError(ErrorCode.NOT_COORDINATOR))
            log._write_held()  # as the timer would
            assert state.log_end == end

    asyncio.run(scenario())


def test_a_log_that_was_lost_takes_no_completion_from_before(
    tmp_path: Path, durability: str, held_for_long: None
) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        async with producing(tmp_path, files, durability) as (broker, producer):
            await transact(broker, producer, b"before")
            files.fail("pwritev", errno.ENOSPC, is_lasting=True)
            producer.send(b"lost", 12)
            assert await producer.sent(12) != 0
            producer.sequence = 0
            files.heal()
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            while code is not ErrorCode.NONE:
                producer.send(b"after", 12)
                code = ErrorCode(await producer.sent(12))
                producer.sequence = 0 if code is not ErrorCode.NONE else 1
            producer.end(5)
            assert await producer.ended(5) == 0
            partition = partition_of(broker)
            await until(lambda: partition.last_stable_offset == partition.high_watermark)
            assert await committed_values(producer.client) == [b"before", b"after"]
            states = [state for _, state in await logged(producer.client)]
            assert states[-2:] == [ONGOING, PREPARE]

    asyncio.run(scenario())
