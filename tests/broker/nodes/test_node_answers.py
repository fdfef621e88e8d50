"""RPCs of another node: what they do, and what they are refused."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.broker.groups.group_log import OFFSETS_TOPIC
from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_client import ConnectionClass, NodeRequest
from headwater.broker.nodes.node_messages import NodeCallKind
from headwater.broker.nodes.partition_client import PartitionClient
from headwater.broker.server import Broker
from headwater.groups.requests import CommitRequest, OffsetToCommit
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.records.batch import split
from headwater.records.byte_reader import ByteReader
from headwater.records.record import records
from tests.broker.two_nodes import name_kept_by, new_partition, two_nodes
from tests.support.eventually import until
from tests.support.local_broker import batch_of

Scenario = Callable[[Broker, Broker, PartitionId], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario) -> None:
    """The first node leads the partition; the second one calls."""

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


async def call(node: Broker, to: int, kind: int, body: bytes) -> bytes:
    """The body of the response."""
    request = NodeRequest(kind, ConnectionClass.BULK, lambda: body, lambda response: bytes(response.rest()))  # type: ignore[arg-type]
    return await node.nodes.call(to, request)


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


def test_an_unknown_call_is_refused_and_the_next_one_is_answered(tmp_path: Path) -> None:
    async def scenario(leader: Broker, other: Broker, place: PartitionId) -> None:
        for kind, body in [
            (200, b""),
            (NodeCallKind.MARK, b"\0"),
            (NodeCallKind.POSITIONS, bytes(99)),
            (NodeCallKind.FORGET_SHARES, b"\0\1"),
        ]:
            assert await refusal(call(other, 1, kind, body)) is ErrorCode.INVALID_REQUEST
        response = await call(other, 1, NodeCallKind.SHARE_OFFSETS, node_messages.text("g"))
        assert node_messages.read_share_offsets(ByteReader(response)) == []

    play(tmp_path, scenario)


def test_who_does_not_lead_says_so(tmp_path: Path) -> None:
    async def scenario(leader: Broker, other: Broker, place: PartitionId) -> None:
        body = node_messages.read_request(place, 0, 1)
        assert await refusal(call(leader, 2, NodeCallKind.READ, body)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await refusal(call(leader, 1, NodeCallKind.READ, body)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await refusal(call(leader, 9, NodeCallKind.READ, body)) is ErrorCode.BROKER_NOT_AVAILABLE

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
        assert other.member is not None
        leader.nodes.close()
        await other.member.membership.server.close()
        assert await leader.subscriptions.survey() is None

    play(tmp_path, scenario)


def test_the_configuration_of_a_group_holds_on_all_nodes(tmp_path: Path) -> None:
    async def scenario(leader: Broker, other: Broker, place: PartitionId) -> None:
        await leader.group_configs.alter("g", [("share.record.lock.duration.ms", 0, "12345")])
        await until(lambda: other.group_configs.settings("g").record_lock_duration_ms == 12_345)
        await other.group_configs.alter("g", [("share.record.lock.duration.ms", 0, "23456")])
        await until(lambda: leader.group_configs.settings("g").record_lock_duration_ms == 23_456)

    play(tmp_path, scenario)
