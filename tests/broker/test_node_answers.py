"""What a node answers to another one, and what it does not let it do."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from local_broker import batch_of
from two_nodes import name_kept_by, new_partition, two_nodes, until

from headwater.broker.groups.group_coordinator import OFFSETS_TOPIC
from headwater.broker.nodes import node_messages as node_calls
from headwater.broker.nodes.node_client import Lane
from headwater.broker.nodes.node_messages import Kind
from headwater.broker.nodes.partition_client import PartitionClient
from headwater.broker.server import Broker
from headwater.groups.requests import CommitRequest, OffsetToCommit
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.records.batch import split
from headwater.records.record import records

Scenario = Callable[[Broker, Broker, PartitionId], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario) -> None:
    """The first node leads the partition; the second one asks."""

    async def run() -> None:
        async with two_nodes(tmp_path) as (leader, other):
            place = await new_partition(leader, other)
            async with asyncio.timeout(60):
                await scenario(leader, other, place)

    asyncio.run(run())


async def refusal(asked: Awaitable[object]) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        await asked
    return refused.value.code


def test_records_are_written_and_read_where_another_node_leads(tmp_path: Path) -> None:
    async def scenario(leader: Broker, other: Broker, place: PartitionId) -> None:
        client = PartitionClient(other.catalog, other.nodes)
        for value in (b"one", b"two"):
            await client.append(place, batch_of([value]))
        start, end, batches = await client.read(place, 0, 1 << 20)
        assert (start, end) == (0, 2)
        found = [record.value for header, batch in split(batches) for record in records(batch, header)]
        assert found == [b"one", b"two"]
        assert leader.catalog.topic("t").partition(0).high_watermark == 2

    play(tmp_path, scenario)


def test_a_damaged_batch_and_an_internal_topic_are_not_written(tmp_path: Path) -> None:
    async def scenario(leader: Broker, other: Broker, place: PartitionId) -> None:
        client = PartitionClient(other.catalog, other.nodes)
        damaged = batch_of([b"x"])
        damaged[-1] ^= 1
        assert await refusal(client.append(place, damaged)) is ErrorCode.CORRUPT_MESSAGE
        assert await refusal(client.append(place, bytearray(b"x"))) is ErrorCode.CORRUPT_MESSAGE
        await leader.groups.ensure_ready()
        await until(lambda: other.catalog.find(OFFSETS_TOPIC) is not None)
        index = next(iter(leader.catalog.topic(OFFSETS_TOPIC).led))
        internal = other.catalog.topic(OFFSETS_TOPIC).partition_id(index)
        assert await refusal(client.append(internal, batch_of([b"x"]))) is ErrorCode.INVALID_TOPIC_EXCEPTION

    play(tmp_path, scenario)


def test_what_nobody_knows_is_refused_and_the_next_question_is_answered(tmp_path: Path) -> None:
    async def scenario(leader: Broker, other: Broker, place: PartitionId) -> None:
        for kind, body in [(200, b""), (Kind.MARK, b"\0"), (Kind.POSITIONS, bytes(99)), (Kind.FORGET_SHARES, b"\0\1")]:
            asked = other.nodes.ask(1, kind, body, Lane.BULK)  # type: ignore[arg-type]
            assert await refusal(asked) is ErrorCode.INVALID_REQUEST
        asked = other.nodes.ask(1, Kind.SHARE_OFFSETS, node_calls.text("g"), Lane.BULK)
        assert node_calls.read_share_offsets(await asked) == []

    play(tmp_path, scenario)


def test_who_does_not_lead_says_so(tmp_path: Path) -> None:
    async def scenario(leader: Broker, other: Broker, place: PartitionId) -> None:
        body = node_calls.read_request(place, 0, 1)
        assert await refusal(leader.nodes.ask(2, Kind.READ, body, Lane.BULK)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await refusal(leader.nodes.ask(1, Kind.READ, body, Lane.BULK)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await refusal(leader.nodes.ask(9, Kind.READ, body, Lane.BULK)) is ErrorCode.BROKER_NOT_AVAILABLE

    play(tmp_path, scenario)


def test_positions_come_from_all_coordinators_or_not_at_all(tmp_path: Path) -> None:
    async def scenario(leader: Broker, other: Broker, place: PartitionId) -> None:
        await other.groups.ensure_ready()
        kept = {node: await name_kept_by(node, OFFSETS_TOPIC) for node in (leader, other)}
        await until(lambda: all(node.groups.keeps(kept[node]) and node.groups.is_loaded() for node in kept))
        for node, offset in ((leader, 3), (other, 5)):
            request = CommitRequest("", None, -1, (OffsetToCommit("t", 0, offset, -1, ""),))
            (answer,) = await node.groups.commit(kept[node], request)
            assert answer.error is ErrorCode.NONE
        for node in (leader, other):
            wanted = await node.subscriptions.survey()
            assert wanted is not None
            assert sorted(each.position for each in wanted.of("t", 0)) == [3, 5]
        assert other.member is not None and other.member._server is not None
        leader.nodes.close()
        await other.member._server.close()
        assert await leader.subscriptions.survey() is None

    play(tmp_path, scenario)


def test_the_configuration_of_a_group_holds_on_all_nodes(tmp_path: Path) -> None:
    async def scenario(leader: Broker, other: Broker, place: PartitionId) -> None:
        await leader.group_configs.alter("g", [("share.record.lock.duration.ms", 0, "12345")])
        await until(lambda: other.group_configs.settings("g").record_lock_duration_ms == 12_345)
        await other.group_configs.alter("g", [("share.record.lock.duration.ms", 0, "23456")])
        await until(lambda: leader.group_configs.settings("g").record_lock_duration_ms == 23_456)

    play(tmp_path, scenario)
