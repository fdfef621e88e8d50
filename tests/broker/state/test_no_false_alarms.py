"""What comes in the ordinary order of a start, or with a topic that was made a moment ago, is waited for: the log tells
of no failure, and of nothing left behind."""

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.groups.group_log import OFFSETS_TOPIC
from headwater.broker.queues.state_keepers import STATE_TOPIC
from headwater.broker.server import Broker
from headwater.broker.state.shard_log import ShardLog
from headwater.broker.topics.leadership import Leadership
from headwater.broker.topics.topic import Topic
from headwater.broker.transactions import transaction_log
from headwater.model.errors import RequestError
from headwater.testing.fakes.files import MemoryFiles
from headwater.transactions.transaction import TransactionState
from tests.broker.queues.queue_brokers import produced, queue_broker, settled
from tests.broker.queues.share_members import REJECT, Member, on_loop
from tests.broker.transactions.raw_producers import ID, Producer
from tests.support.eventually import until
from tests.support.local_broker import running
from tests.support.log_lines import own_lines, own_records

PARTITIONS = 4


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater")


@pytest.fixture
def slow_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition of an internal topic, or one of dead letters, is led a while after its topic is known."""
    take_over = Leadership._take_over

    async def later(self: Leadership, topic: Topic, *args: Any) -> Any:
        await asyncio.sleep(0.1 if topic.is_internal or topic.name.startswith("dlq") else 0)
        return await take_over(self, topic, *args)

    monkeypatch.setattr(Leadership, "_take_over", later)


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings, and whatever is called a failure."""
    lines = [(record.levelno, record.getMessage()) for record in own_records(caplog)]
    return [line for level, line in lines if level >= logging.WARNING or re.match(r"\w+(_failed|_not_\w+) ", line)]


@on_loop
async def test_letters_of_many_queues_wait_for_the_topic_that_the_first_of_them_makes(
    tmp_path: Path, slow_leads: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_broker(tmp_path, partitions=PARTITIONS, default_partitions=PARTITIONS) as (broker, client):
        members = []
        for index in range(PARTITIONS):
            await produced(client, b"poison", partition=index)
            members.append(await Member.joined(broker, "t", partitions=(index,)))
            await members[-1].fetch(wait_ms=1000)
        rejected = (member.acknowledge((0, 0, REJECT), partition=index) for index, member in enumerate(members))
        assert await asyncio.gather(*rejected) == [0] * PARTITIONS
        await settled(broker)
        dead = broker.catalog.topic("dlq.g")
        assert [partition.high_watermark for partition in dead.partitions()] == [1] * PARTITIONS
        assert alarms(caplog) == []


@on_loop
async def test_what_a_new_leader_asks_for_waits_for_the_topic_that_is_being_made(
    tmp_path: Path, slow_leads: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_broker(tmp_path, share_state_topic_partitions=2) as (broker, client):
        making = asyncio.create_task(broker.shares.states.ensure())
        await until(lambda: broker.catalog.find(STATE_TOPIC) is not None)
        await client.create("u", PARTITIONS)
        await broker.shares.states.ensure()
        assert len(list(broker.catalog.topic(STATE_TOPIC).partitions())) == 2, "who comes second is not sent away"
        await making
        assert await broker.shares.loaded("g") == []
        assert alarms(caplog) == []


@pytest.mark.parametrize("is_read_in_time", [True, False])
@on_loop
async def test_markers_wait_for_groups_that_are_being_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_read_in_time: bool
) -> None:
    """A crash takes the word that transactions are complete: the next start asks for their markers once more."""
    monkeypatch.setattr(transaction_log, "HOLD_S", 3600.0)
    monkeypatch.setattr("headwater.broker.transactions.marker_writer.READY_WAIT_S", 60.0 if is_read_in_time else 0.01)
    files = MemoryFiles()
    async with running(tmp_path, files) as (broker, client):
        await client.create("t")
        producer = Producer(client)
        await producer.begin()
        await broker.transactions.add_offsets(ID, producer.id, producer.epoch, "g", 1)
        producer.end(1)
        assert await producer.ended(1) == 0
        await until(lambda: state(broker) is TransactionState.COMPLETE_COMMIT)
    may_read = asyncio.Event()
    load = ShardLog.load

    async def later(self: ShardLog[Any]) -> None:
        if self.partition.topic_name == OFFSETS_TOPIC:
            await may_read.wait()
        await load(self)

    monkeypatch.setattr(ShardLog, "load", later)
    async with running(tmp_path, files) as (broker, client):
        await until(lambda: state(broker) is TransactionState.PREPARE_COMMIT)
        if not is_read_in_time:
            await until(lambda: alarms(caplog) != [])
            assert "marker_failed" in alarms(caplog)[0]
        await client.round_trips()
        assert state(broker) is TransactionState.PREPARE_COMMIT
        may_read.set()
        await until(lambda: state(broker) is TransactionState.COMPLETE_COMMIT)
        assert (alarms(caplog) == []) is is_read_in_time


def state(broker: Broker) -> TransactionState | None:
    try:
        return broker.transactions.described(ID).state
    except RequestError:
        return None  # they are being read


@on_loop
async def test_a_start_leaves_no_orphans_of_partitions_where_nothing_was_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files, partitions=PARTITIONS) as (broker, client):
        await Member.joined(broker, "t")
        await produced(client, b"x")
    for _ in range(3):
        async with running(tmp_path, files) as (broker, _):
            assert broker.catalog.topic(OFFSETS_TOPIC).partition_count > PARTITIONS
            chains = [partition.register.chain for partition in broker.catalog.partitions()]
            assert {each.segment for each in broker.store.replicas()} == {each.id for chain in chains for each in chain}
    assert [line for line in own_lines(caplog) if line.startswith("orphan")] == []
    assert alarms(caplog) == []
