"""A request about a group or a transaction at the wrong node is refused in every API, and both nodes name the right
one."""

import asyncio
import base64
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from headwater.broker.groups.group_log import OFFSETS_TOPIC
from headwater.broker.server import Broker
from headwater.broker.transactions.transaction_coordinator import STATE_TOPIC
from headwater.model.errors import ErrorCode
from headwater.wire.message import Message
from tests.broker.two_nodes import name_kept_by, new_partition, two_nodes
from tests.support.eventually import until
from tests.support.local_broker import Client
from tests.support.messages import nested


def questions(group: str, transaction: str) -> list[tuple[str, int, int, dict[str, Any]]]:
    """Name, API, version, fields."""
    offset = nested(partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata="")
    topics = [nested(name="t", partitions=[offset])]
    producer: dict[str, Any] = {"transactional_id": transaction, "producer_id": 1, "producer_epoch": 0}
    return [
        ("OffsetCommit", 8, 8, {
            "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
            "topics": topics,
        }),
        ("OffsetFetch", 9, 8, {"groups": [nested(group_id=group, topics=None)], "require_stable": False}),
        ("JoinGroup", 11, 7, {
            "group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "",
            "group_instance_id": None, "protocol_type": "consumer",
            "protocols": [nested(name="range", metadata=b"")],
        }),
        ("Heartbeat", 12, 4, {"group_id": group, "generation_id": 1, "member_id": "m", "group_instance_id": None}),
        ("LeaveGroup", 13, 4, {"group_id": group, "members": [nested(member_id="m", group_instance_id=None)]}),
        ("SyncGroup", 14, 5, {
            "group_id": group, "generation_id": 1, "member_id": "m", "group_instance_id": None,
            "protocol_type": "consumer", "protocol_name": "range", "assignments": [],
        }),
        ("DescribeGroups", 15, 5, {"groups": [group], "include_authorized_operations": False}),
        ("DeleteGroups", 42, 2, {"groups_names": [group]}),
        ("OffsetDelete", 47, 0, {
            "group_id": group, "topics": [nested(name="t", partitions=[nested(partition_index=0)])]
        }),
        ("ConsumerGroupHeartbeat", 68, 0, {
            "group_id": group, "member_id": "", "member_epoch": 0, "instance_id": None, "rack_id": None,
            "rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "server_assignor": None,
            "topic_partitions": [],
        }),
        ("ConsumerGroupDescribe", 69, 0, {"group_ids": [group], "include_authorized_operations": False}),
        ("ShareGroupHeartbeat", 76, 1, {
            "group_id": group, "member_id": "m", "member_epoch": 0, "rack_id": None, "subscribed_topic_names": ["t"],
        }),
        ("ShareGroupDescribe", 77, 1, {"group_ids": [group], "include_authorized_operations": False}),
        ("DescribeShareGroupOffsets", 90, 0, {"groups": [nested(group_id=group, topics=None)]}),
        ("AlterShareGroupOffsets", 91, 0, {"group_id": group, "topics": []}),
        ("DeleteShareGroupOffsets", 92, 0, {"group_id": group, "topics": []}),
        ("InitProducerId", 22, 4, {
            "transactional_id": transaction, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1,
        }),
        ("AddPartitionsToTxn", 24, 3, {
            "v3_and_below_transactional_id": transaction, "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0, "v3_and_below_topics": [nested(name="t", partitions=[0])],
        }),
        ("AddOffsetsToTxn", 25, 3, {**producer, "group_id": group}),
        ("EndTxn", 26, 3, {**producer, "committed": True}),
        ("DescribeTransactions", 65, 0, {"transactional_ids": [transaction]}),
    ]  # fmt: skip


def codes(answer: object) -> Iterator[int]:
    """All error codes in an answer, however deep."""
    if isinstance(answer, Message):
        for name in answer.__slots__:
            if name.endswith("error_code"):
                yield getattr(answer, name)
            else:
                yield from codes(getattr(answer, name))
    elif isinstance(answer, list | tuple):
        for each in answer:
            yield from codes(each)


def is_led(node: Broker, topic: str) -> bool:
    """By that node, in part."""
    return node.catalog.find(topic) is not None and bool(node.catalog.topic(topic).led)


async def prepared(one: Broker, two: Broker) -> None:
    await one.groups.ensure_ready()
    await one.transactions.ensure_ready()
    for name in (OFFSETS_TOPIC, STATE_TOPIC):
        await until(partial(is_led, two, name))
    await until(lambda: all(node.groups.is_loaded() for node in (one, two)))


def test_every_api_says_that_another_node_coordinates(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as (one, two):
            await new_partition(one, two)
            await prepared(one, two)
            group, transaction = await name_kept_by(two, OFFSETS_TOPIC), await name_kept_by(two, STATE_TOPIC)
            client = await Client.connect(one)
            answered = {}
            for name, api_key, version, fields in questions(group, transaction):
                found = set(codes(await client.ask(api_key, version, **fields)))
                answered[name] = found - {ErrorCode.NONE}
            client.close()
            assert answered == {name: {ErrorCode.NOT_COORDINATOR} for name in answered}
            assert len(answered) == len(questions("", ""))

    asyncio.run(scenario())


def test_both_nodes_name_the_same_coordinators(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_nodes(tmp_path) as (one, two):
            place = await new_partition(one, two)
            await prepared(one, two)
            await one.shares.states.ensure()
            for node_id, node in ((1, one), (2, two)):
                share = f"g:{_base64(place.topic_id.bytes)}:0"
                for key_type, key in (
                    (0, await name_kept_by(node, OFFSETS_TOPIC)),
                    (1, await name_kept_by(node, STATE_TOPIC)),
                    (2, share),
                ):
                    named = {await coordinator(asked, key_type, key) for asked in (one, two)}
                    assert len(named) == 1
                    assert key_type == 2 or named == {node_id}
            assert await coordinator(one, 2, "nonsense") == -ErrorCode.INVALID_REQUEST
            assert await coordinator(one, 2, "g:!:x") == -ErrorCode.INVALID_REQUEST

    asyncio.run(scenario())


async def coordinator(node: Broker, key_type: int, key: str) -> int:
    """The id of the coordinator's node, when one is elected; below zero, an error."""
    client = await Client.connect(node)

    async def ask() -> int:
        (found,) = (await client.ask(10, 6, key_type=key_type, coordinator_keys=[key])).coordinators
        return int(found.node_id) if not found.error_code else -int(found.error_code)

    answers: list[int] = []

    async def is_elected() -> bool:
        answers.append(await ask())
        return answers[-1] != -ErrorCode.COORDINATOR_NOT_AVAILABLE

    await until(is_elected, "a coordinator is elected")
    client.close()
    return answers[-1]


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
