"""The state of share groups belongs to whoever claimed it last, in the newest leader epoch."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headwater.broker.nodes.node_messages import ShareKey, StateEntry, StateWrite
from headwater.broker.queues.state_keeper import StateKeeper
from headwater.broker.queues.state_keepers import LOAD_WAIT_S
from headwater.broker.queues.state_keys import MAX_CHANGES
from headwater.broker.server import Broker
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.queue_brokers import numbered, produced, queue_broker
from tests.broker.queues.share_members import ACCEPT, Member, on_loop
from tests.support.eventually import until
from tests.support.local_broker import running

SNAPSHOT, CHANGE = StateEntry(True, b"all"), StateEntry(False, b"some")


@asynccontextmanager
async def keeper(broker: Broker, key: ShareKey) -> AsyncIterator[StateKeeper]:
    await broker.shares.states.ensure()
    log = broker.shares.states.keeper(key)
    await log.wait_loaded(LOAD_WAIT_S)
    yield log


def key_of(broker: Broker) -> ShareKey:
    return ShareKey("g", PartitionId(broker.catalog.topic("t").topic_id, 0))


async def refusal(asked: object) -> ErrorCode:
    assert callable(asked)
    with pytest.raises(RequestError) as refused:
        await asked()
    return refused.value.code


@on_loop
async def test_a_claim_finds_what_was_written(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, _), keeper(broker, key := key_of(broker)) as log:
        first = await log.claim(key, 5)
        assert (first.snapshot, first.changes) == (b"", ())
        await log.write(StateWrite(key, first.ticket, 0, [SNAPSHOT, CHANGE]))
        await log.write(StateWrite(key, first.ticket, 1, [CHANGE]))
        again = await log.claim(key, 5)
        assert (again.snapshot, again.changes) == (b"all", (b"some", b"some"))
        assert again.ticket != first.ticket


@on_loop
async def test_a_leader_of_an_older_epoch_neither_claims_nor_writes(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, _), keeper(broker, key := key_of(broker)) as log:
        old = await log.claim(key, 5)
        await log.write(StateWrite(key, old.ticket, 0, [SNAPSHOT]))
        await log.claim(key, 6)
        late = StateWrite(key, old.ticket, 0, [CHANGE])
        assert await refusal(lambda: log.write(late)) is ErrorCode.FENCED_STATE_EPOCH
        assert await refusal(lambda: log.forget(key, old.ticket)) is ErrorCode.FENCED_STATE_EPOCH
        assert await refusal(lambda: log.claim(key, 5)) is ErrorCode.FENCED_LEADER_EPOCH
        assert await log.claim_all({key.partition: 5}) == []
    async with running(tmp_path, files) as (broker, _), keeper(broker, key) as log:
        assert await refusal(lambda: log.claim(key, 5)) is ErrorCode.FENCED_LEADER_EPOCH, "the log remembers"
        ((found, claimed),) = await log.claim_all({key.partition: 6})
        assert (found, claimed.snapshot, claimed.changes) == (key, b"all", ())


@on_loop
async def test_a_claim_in_the_same_epoch_ends_the_one_before(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, _), keeper(broker, key := key_of(broker)) as log:
        first = await log.claim(key, 5)
        second = await log.claim(key, 5)
        late = StateWrite(key, first.ticket, 0, [SNAPSHOT])
        assert await refusal(lambda: log.write(late)) is ErrorCode.FENCED_STATE_EPOCH
        await log.write(StateWrite(key, second.ticket, 0, [SNAPSHOT]))


@on_loop
async def test_a_change_without_the_one_before_it_is_refused(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, _), keeper(broker, key := key_of(broker)) as log:
        ticket = (await log.claim(key, 5)).ticket
        change = StateWrite(key, ticket, 0, [CHANGE])
        assert await refusal(lambda: log.write(change)) is ErrorCode.FENCED_STATE_EPOCH, "of nothing"
        await log.write(StateWrite(key, ticket, 0, [SNAPSHOT]))
        gap = StateWrite(key, ticket, 1, [CHANGE])
        assert await refusal(lambda: log.write(gap)) is ErrorCode.FENCED_STATE_EPOCH
        too_many = StateWrite(key, ticket, 0, [CHANGE] * (MAX_CHANGES + 1))
        assert await refusal(lambda: log.write(too_many)) is ErrorCode.INVALID_REQUEST
        assert (await log.claim(key, 5)).changes == (), "nothing of it was kept"


@on_loop
async def test_claims_in_a_row_write_one_record(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, _), keeper(broker, key := key_of(broker)) as log:
        await log.claim(key, 5)
        partition = log.shard_log.partition
        end = partition.log_end
        for _ in range(3):
            await log.claim(key, 5)
        assert partition.log_end == end
        await log.claim(key, 6)
        assert partition.log_end == end + 1


@on_loop
async def test_a_change_that_cannot_be_read_does_not_take_the_rest_with_it(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(3))
        await member.fetch(wait_ms=1000)
        assert await member.acknowledge((0, 1, ACCEPT)) == 0
        async with keeper(broker, key := key_of(broker)) as log:
            claimed = await log.claim(key, broker.catalog.topic("t").partition(0).leader_epoch)
            await log.write(StateWrite(key, claimed.ticket, len(claimed.changes), [CHANGE]))
    async with queue_broker(tmp_path, files) as (broker, _):
        (queue,) = await broker.shares.loaded("g")
        assert queue.share.start_offset == 2


@on_loop
async def test_the_state_of_a_topic_that_is_gone_is_forgotten_and_that_of_a_stranger_stays(tmp_path: Path) -> None:
    """A topic that this node has not heard of may be new. Only the metadata's word counts."""
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, _), keeper(broker, key := key_of(broker)) as log:
        ticket = (await log.claim(key, 5)).ticket
        await log.write(StateWrite(key, ticket, 0, [SNAPSHOT]))
        broker.catalog._by_id.pop(key.partition.topic_id)
        log._on_loaded(log)
        nobody = ShareKey("g", PartitionId(uuid.uuid4(), 0))
        stray = broker.shares.states.keeper(nobody)
        await stray.wait_loaded(LOAD_WAIT_S)
        await stray.write(StateWrite(nobody, (await stray.claim(nobody, 1)).ticket, 0, [SNAPSHOT]))
        stray._on_loaded(stray)
        await until(lambda: nobody.partition.topic_id not in stray.topics())
        assert log.topics() == {key.partition.topic_id}
