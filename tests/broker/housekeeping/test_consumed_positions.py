"""Retention by subscriber: what groups have read and what they ask for decide what a topic keeps."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from headwater.broker.housekeeping.cleaner import Cleaner
from headwater.broker.housekeeping.consumed_positions import ConsumedPositions
from headwater.broker.server import Broker
from headwater.broker.settings.subscription_keys import (
    KIND,
    PAUSED,
    RETENTION,
    TOPIC,
    SubscriptionKind,
    parse_subscription,
)
from headwater.groups.requests import CommitRequest, OffsetToCommit
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.group_position import GroupPosition
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.support.eventually import until
from tests.support.local_broker import Client, batch_of, running
from tests.support.messages import nested

NOW_MS = 1_700_000_000_000
DAY_S = 86_400
DAY_MS = DAY_S * 1000
DELETE_GROUPS, ALTER_SHARE_GROUP_OFFSETS = 42, 91
RECORDS = 20

Scenario: TypeAlias = Callable[[Broker, Client, ManualClock], Awaitable[None]]


def play(directory: Path, scenario: Scenario) -> None:
    async def run() -> None:
        clock = ManualClock(NOW_MS)
        async with running(directory, MemoryFiles(), clock) as (broker, client):
            await scenario(broker, client, clock)

    asyncio.run(run())


async def fill(client: Client, topic: str = "t", partition: int = 0) -> None:
    """About three records to a segment."""
    for _ in range(RECORDS):
        answer = await client.produce(topic, batch_of([bytes(300)], timestamp=NOW_MS), partition=partition)
        assert answer.error_code == 0


async def commit(broker: Broker, group_id: str, offset: int, topic: str = "t") -> None:
    request = CommitRequest("", None, -1, (OffsetToCommit(topic, 0, offset, -1, ""),))
    await broker.groups.ensure_ready()
    await until(broker.groups.is_loaded)
    (answer,) = await broker.groups.commit(group_id, request)
    assert answer.error is ErrorCode.NONE


async def configure(broker: Broker, group_id: str, **values: object) -> None:
    named = {"topic": TOPIC, "kind": KIND, "retention_ms": RETENTION, "paused": PAUSED}
    await broker.group_configs.alter(group_id, [(named[name], 0, str(value)) for name, value in values.items()])


async def delete_group(client: Client, group_id: str) -> int:
    answer = await client.ask(DELETE_GROUPS, 2, groups_names=[group_id])
    code: int = answer.results[0].error_code
    return code


async def start_after_cleaning(broker: Broker, client: Client) -> int:
    """Where the log starts when the cleaner had time for a round to end the open segment, and one to drop it."""
    await broker.cleaner.retain()
    partition = broker.catalog.topic("t").partition(0)
    await until(lambda: not partition.is_rolling)
    await broker.cleaner.retain()
    return await client.offset("t", -2)


def test_a_lagging_subscription_keeps_records_longer_than_the_topic_does(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t", segment_bytes="1024", retention_ms=str(DAY_MS))
        await fill(client)
        await commit(broker, "slow", 10)
        await configure(broker, "slow", topic="t", retention_ms=7 * DAY_MS)
        clock.advance(3 * DAY_S)
        start = await start_after_cleaning(broker, client)
        assert 5 < start <= 10, "what it has read is gone, but for its segment"
        await commit(broker, "slow", RECORDS)
        assert await start_after_cleaning(broker, client) == RECORDS

    play(tmp_path, scenario)


def test_a_subscription_keeps_nothing_beyond_its_own_retention(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t", segment_bytes="1024", retention_ms=str(DAY_MS))
        await fill(client)
        await configure(broker, "slow", topic="t", retention_ms=7 * DAY_MS)
        clock.advance(6 * DAY_S)
        assert await start_after_cleaning(broker, client) == 0
        clock.advance(2 * DAY_S)
        assert await start_after_cleaning(broker, client) == RECORDS

    play(tmp_path, scenario)


def test_the_topics_limit_goes_before_what_a_subscription_asks_for(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        limit: dict[str, Any] = {"headwater_subscription_retention_limit_ms": str(2 * DAY_MS)}
        await client.create("t", segment_bytes="1024", retention_ms=str(DAY_MS), **limit)
        await fill(client)
        await configure(broker, "greedy", topic="t", retention_ms=-1)
        clock.advance(1.5 * DAY_S)
        assert await start_after_cleaning(broker, client) == 0
        clock.advance(1 * DAY_S)
        assert await start_after_cleaning(broker, client) == RECORDS

    play(tmp_path, scenario)


def test_a_group_that_asks_for_nothing_keeps_nothing(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t", segment_bytes="1024", retention_ms=str(DAY_MS))
        await fill(client)
        await commit(broker, "plain", 1)
        clock.advance(2 * DAY_S)
        assert await start_after_cleaning(broker, client) == RECORDS

    play(tmp_path, scenario)


def test_consumed_records_go_when_every_subscription_is_through(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t", segment_bytes="1024", headwater_retention="consumed")
        await fill(client)
        assert await start_after_cleaning(broker, client) == 0, "nobody subscribes: nothing was consumed"
        await commit(broker, "fast", RECORDS)
        await commit(broker, "slow", 10)
        assert 5 < await start_after_cleaning(broker, client) <= 10
        await commit(broker, "slow", RECORDS)
        assert await start_after_cleaning(broker, client) == RECORDS, "also of the segment that was open"
        assert broker.catalog.topic("t").partition(0).size_bytes == 0

    play(tmp_path, scenario)


def test_an_explicit_subscription_counts_before_its_first_commit(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t", segment_bytes="1024", headwater_retention="consumed")
        await fill(client)
        await configure(broker, "later", topic="t")
        await commit(broker, "fast", RECORDS)
        assert await start_after_cleaning(broker, client) == 0
        await commit(broker, "later", RECORDS)
        assert await start_after_cleaning(broker, client) == RECORDS

    play(tmp_path, scenario)


@pytest.mark.parametrize("has_committed", [True, False])
def test_unsubscribing_frees_what_was_kept(tmp_path: Path, has_committed: bool) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t", segment_bytes="1024", retention_ms=str(DAY_MS))
        await fill(client)
        await configure(broker, "slow", topic="t", retention_ms=-1)
        if has_committed:
            await commit(broker, "slow", 1)
        clock.advance(2 * DAY_S)
        assert await start_after_cleaning(broker, client) == 0
        assert await delete_group(client, "slow") == ErrorCode.NONE
        assert await start_after_cleaning(broker, client) == RECORDS
        assert await delete_group(client, "slow") == ErrorCode.GROUP_ID_NOT_FOUND

    play(tmp_path, scenario)


def test_the_positions_of_an_explicit_subscription_do_not_expire(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t")
        for group_id in ("durable", "plain"):
            await commit(broker, group_id, 5)
        await configure(broker, "durable", topic="t")
        clock.advance(60 * DAY_S)
        await broker.groups.expire()
        await until(lambda: [position.group_id for position in broker.groups.views.positions()] == ["durable"])

    play(tmp_path, scenario)


def test_subscriptions_are_back_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, files = ManualClock(NOW_MS), MemoryFiles()
        async with running(tmp_path, files, clock) as (broker, client):
            await client.create("t", segment_bytes="1024", retention_ms=str(DAY_MS))
            await fill(client)
            await commit(broker, "slow", 1)
            await configure(broker, "slow", topic="t", retention_ms=-1)
        clock.advance(2 * DAY_S)
        async with running(tmp_path, files, clock) as (broker, client):
            await until(lambda: broker.groups.is_loaded() and list(broker.groups.views.positions()))
            assert await start_after_cleaning(broker, client) == 0
            assert broker.group_configs.subscription("slow").retention_ms == -1

    asyncio.run(scenario())


async def subscribe_queue(broker: Broker, client: Client, group_id: str, offset: int, **values: object) -> None:
    """As `headwater subscription create --queue` does it."""
    await configure(broker, group_id, topic="t", kind="queue", **values)
    start = nested(partition_index=0, start_offset=offset)
    asked = [nested(topic_name="t", partitions=[start])]

    async def is_answered() -> bool:
        answer = await client.ask(ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group_id, topics=asked)
        if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return False
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        return True

    await until(is_answered)


def test_a_queue_keeps_what_it_has_not_handled(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t", segment_bytes="1024", retention_ms=str(DAY_MS))
        await fill(client)
        await subscribe_queue(broker, client, "workers", 10, retention_ms=-1)
        clock.advance(2 * DAY_S)
        assert 5 < await start_after_cleaning(broker, client) <= 10
        assert await delete_group(client, "workers") == ErrorCode.NONE
        assert await start_after_cleaning(broker, client) == RECORDS

    play(tmp_path, scenario)


def test_a_queue_that_nobody_has_used_is_there_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, files = ManualClock(NOW_MS), MemoryFiles()
        async with running(tmp_path, files, clock) as (broker, client):
            await client.create("t")
            await fill(client)
            await subscribe_queue(broker, client, "workers", 10)
        async with running(tmp_path, files, clock) as (broker, client):
            await broker.shares.loaded("workers")
            (position,) = broker.shares.positions()
            assert (position.group_id, position.offset) == ("workers", 10)
            assert not broker.groups.share_group("workers").members

    asyncio.run(scenario())


def test_the_name_of_a_stream_does_not_become_a_queue(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t")
        await commit(broker, "stream", 0)
        await configure(broker, "stream", topic="t", kind="queue")
        begins = nested(topic_name="t", partitions=[nested(partition_index=0, start_offset=0)])
        answer = await client.ask(ALTER_SHARE_GROUP_OFFSETS, 0, group_id="stream", topics=[begins])
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(tmp_path, scenario)


def test_a_paused_queue_delivers_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t")
        await fill(client)
        await subscribe_queue(broker, client, "workers", 10)
        queue = broker.shares.find("workers", broker.catalog.topic("t").partition(0).id)
        assert queue is not None and queue.can_take()
        await configure(broker, "workers", paused="true")
        assert not queue.can_take() and await queue.read(1 << 20) is None
        seen = queue.version
        await configure(broker, "workers", paused="false")
        assert queue.can_take() and queue.version > seen, "who waits looks again"

    play(tmp_path, scenario)


def still_reading() -> Iterator[GroupPosition]:
    raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def test_nothing_is_dropped_while_positions_are_still_being_read(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t", segment_bytes="1024", retention_ms=str(DAY_MS))
        await fill(client)
        clock.advance(2 * DAY_S)
        survey = ConsumedPositions(
            broker.catalog, broker.group_configs, [broker.groups.views.positions, still_reading]
        ).survey
        assert await survey() is None
        cleaner, broker.cleaner = (
            broker.cleaner,
            Cleaner(broker.cleaner._ports, broker.catalog, broker.config, survey),
        )
        assert await start_after_cleaning(broker, client) == 0
        broker.cleaner = cleaner
        assert await start_after_cleaning(broker, client) == RECORDS

    play(tmp_path, scenario)


def test_a_topic_that_is_gone_is_wanted_by_nobody(tmp_path: Path) -> None:
    async def scenario(broker: Broker, client: Client, clock: ManualClock) -> None:
        await client.create("t")
        await configure(broker, "g", topic="t")
        await broker.delete_topic(broker.catalog.topic("t"))
        wanted = await broker.subscriptions.survey()
        assert wanted is not None and not wanted.of("t", 0)

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({TOPIC: "a/b"}, "the name of a topic is allowed"),
        ({RETENTION: "-2"}, "from -1"),
        ({KIND: "stack"}, "stream, queue are allowed"),
        ({PAUSED: "yes"}, "true or false"),
        ({PAUSED: "true", TOPIC: "t"}, "Only queues can be paused"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, str], problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as refused:
        parse_subscription(values)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_a_queue_can_be_paused() -> None:
    settings = parse_subscription({KIND: "queue", PAUSED: "true", "share.auto.offset.reset": "earliest"})
    assert settings.is_paused and settings.kind is SubscriptionKind.QUEUE
