"""A produce may wait before its batches are appended: for schemas, or for its transaction. What the client may not
write any more when the wait ends is not appended."""

import asyncio
from pathlib import Path

from headwater.model.errors import ErrorCode
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.security.access_codes import Operation, ResourceType
from tests.broker.access.guarded_here import GuardedHere, guarded_here
from tests.broker.transactions.raw_producers import ID, Producer
from tests.support.eventually import until
from tests.support.local_broker import Client
from tests.support.wire import AsyncWireClient

WRITE = Operation.WRITE
TOPIC, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
PRODUCE = 0
TOMBSTONE = build_batch([Record(b"k", None)])


async def answer_of(client: AsyncWireClient) -> int:
    answer = await client.answer(PRODUCE, 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def end_of(guarded: GuardedHere) -> int:
    return guarded.broker.catalog.topic("t").partition(0).log_end


async def allowed(guarded: GuardedHere) -> Client:
    await guarded.allow("alice", WRITE, TOPIC, "t")
    await guarded.allow("alice", WRITE, TRANSACTIONAL_ID, ID)
    return await guarded.client("alice")


def test_a_produce_that_waited_for_schemas_is_judged_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with guarded_here(tmp_path, "alice") as guarded:
            await guarded.admin.create("t", confluent_value_schema_validation="true")
            alice, gate = await allowed(guarded), guarded.broker.schema_gate
            async with gate.queue():
                alice.send_batch("t", TOMBSTONE)
                await until(lambda: gate._waiting == 2, "the produce waits")
                await guarded.revoke("alice", WRITE, TOPIC, "t")
            assert await answer_of(alice) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert await end_of(guarded) == 0
            await guarded.allow("alice", WRITE, TOPIC, "t")
            async with gate.queue():
                alice.send_batch("t", TOMBSTONE)
                await until(lambda: gate._waiting == 2, "the produce waits")
                await guarded.allow("alice", Operation.READ, TOPIC, "t")
            assert await answer_of(alice) == 0, "what changed did not concern it"
            assert await end_of(guarded) == 1

    asyncio.run(scenario())


def test_a_produce_that_waited_for_its_transaction_is_judged_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        for lost, name, code in (
            (TOPIC, "t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            (TRANSACTIONAL_ID, ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ):
            await guarded_transaction(tmp_path / name, lost, name, code)

    asyncio.run(scenario())


async def guarded_transaction(directory: Path, lost: ResourceType, name: str, code: ErrorCode) -> None:
    async with guarded_here(directory, "alice") as guarded:
        await guarded.admin.create("t")
        producer, gate = Producer(await allowed(guarded)), guarded.broker.transaction_gate
        await producer.begin()
        async with gate.queue(producer.id) as first:
            producer.send(b"too late", 12)
            await until(lambda: gate._last_in_queue.get(producer.id) is not first, "the produce waits")
            await guarded.revoke("alice", WRITE, lost, name)
        assert await producer.sent(12) == code
        assert await end_of(guarded) == 0
