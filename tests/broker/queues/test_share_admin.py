"""What administrators see and change of share groups."""

from pathlib import Path
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.queue_brokers import numbered, produced, queue_broker
from tests.broker.queues.share_members import (
    ACCEPT,
    ALTER_OFFSETS,
    DELETE_OFFSETS,
    DESCRIBE,
    DESCRIBE_OFFSETS,
    GROUP_RESOURCE,
    Member,
    configure,
    on_loop,
)
from tests.support.local_broker import Client
from tests.support.messages import nested

DELETE_GROUPS, LIST_GROUPS, DESCRIBE_CONFIGS, INCREMENTAL, LIST_RESOURCES, API_VERSIONS = 42, 16, 32, 44, 74, 18


async def offsets(client: Client, group: str = "g", *topics: dict[str, Any]) -> Any:
    answer = await client.ask(DESCRIBE_OFFSETS, 1, groups=[nested(group_id=group, topics=list(topics) or None)])
    found: Any = answer.groups[0]
    return found


async def group_values(client: Client, group: str = "g") -> dict[str, tuple[str, int]]:
    asked = nested(resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=None)
    answer = await client.ask(DESCRIBE_CONFIGS, 4, resources=[asked], include_synonyms=True, include_documentation=True)
    assert answer.results[0].error_code == 0
    return {entry.name: (entry.value, entry.config_source) for entry in answer.results[0].configs}


@on_loop
async def test_a_group_is_listed_and_described_as_what_it_is(tmp_path: Path) -> None:
    async with queue_broker(tmp_path, partitions=2) as (broker, client):
        member = await Member.joined(broker, "t")
        (listed,) = (await client.ask(LIST_GROUPS, 5, states_filter=[], types_filter=["share"])).groups
        assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "share", "Stable")
        assert (await client.ask(LIST_GROUPS, 5, states_filter=[], types_filter=["classic"])).groups == []
        answer = await client.ask(DESCRIBE, 1, group_ids=["g", "absent"], include_authorized_operations=False)
        found, absent = answer.groups
        assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
        assert [(each.member_id, each.client_host) for each in found.members] == [(member.member_id, "/127.0.0.1")]
        (assigned,) = found.members[0].assignment.topic_partitions
        assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1])
        assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@on_loop
async def test_offsets_tell_where_a_group_is_and_how_far_behind(tmp_path: Path) -> None:
    async with queue_broker(tmp_path, partitions=2) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(10))
        await member.fetch(wait_ms=1000)
        assert await member.acknowledge((0, 3, ACCEPT)) == 0
        found = await offsets(client)
        assert found.error_code == 0
        (partition,) = found.topics[0].partitions
        assert (partition.partition_index, partition.start_offset, partition.lag) == (0, 4, 6)
        named = await offsets(client, "g", nested(topic_name="t", partitions=[1, 9]))
        assert [(each.start_offset, each.error_code) for each in named.topics[0].partitions] == [
            (-1, 0),
            (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert (await offsets(client, "absent")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@on_loop
async def test_offsets_are_altered_and_deleted_when_nobody_reads(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await produced(client, *numbered(10))
        altered = nested(topic_name="t", partitions=[nested(partition_index=0, start_offset=7)])
        answer = await client.ask(ALTER_OFFSETS, 0, group_id="g", topics=[altered])
        assert answer.error_code == ErrorCode.NON_EMPTY_GROUP
        answer = await client.ask(DELETE_OFFSETS, 0, group_id="g", topics=[nested(topic_name="t")])
        assert answer.error_code == ErrorCode.NON_EMPTY_GROUP
        await member.heartbeat(-1)
        answer = await client.ask(ALTER_OFFSETS, 0, group_id="g", topics=[altered])
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
        assert (await offsets(client)).topics[0].partitions[0].start_offset == 7
        again = await Member.joined(broker, "t", opens=False)
        assert (await again.fetch(wait_ms=1000)).offsets == [7, 8, 9]
        await again.heartbeat(-1)
        answer = await client.ask(DELETE_OFFSETS, 0, group_id="g", topics=[nested(topic_name="t")])
        assert (answer.error_code, answer.responses[0].error_code) == (0, 0)
        assert (await offsets(client)).topics == []


def altered(topic: str, partition: int = 0) -> dict[str, Any]:
    return nested(topic_name=topic, partitions=[nested(partition_index=partition, start_offset=7)])


@on_loop
async def test_altering_offsets_makes_the_group_if_it_names_a_topic_that_exists(tmp_path: Path) -> None:
    """As Apache Kafka 4.3 does."""
    async with queue_broker(tmp_path) as (broker, client):
        await produced(client, *numbered(10))
        answer = await client.ask(ALTER_OFFSETS, 0, group_id="new", topics=[altered("t")])
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
        assert (await offsets(client, "new")).topics[0].partitions[0].start_offset == 7
        member = await Member.joined(broker, "t", "new", opens=False)
        assert (await member.fetch()).offsets == [7, 8, 9]
        for group, *topics in (("none", altered("absent")), ("nothing",), ("made", altered("t", 99))):
            answer = await client.ask(ALTER_OFFSETS, 0, group_id=group, topics=topics)
            errors = [each.error_code for topic in answer.responses for each in topic.partitions]
            assert (answer.error_code, errors) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(topics))
        groups = (await client.ask(LIST_GROUPS, 5, states_filter=[], types_filter=[])).groups
        assert {each.group_id: each.group_state for each in groups} == {"new": "Stable", "made": "Empty"}
        answer = await client.ask(ALTER_OFFSETS, 0, group_id="", topics=[altered("t")])
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID


@on_loop
async def test_a_group_without_members_can_be_deleted_with_all_it_knew(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (broker, client):
        member = await Member.joined(broker, "t")
        (refused,) = (await client.ask(DELETE_GROUPS, 2, groups_names=["g"])).results
        assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
        await member.heartbeat(-1)
        (deleted,) = (await client.ask(DELETE_GROUPS, 2, groups_names=["g"])).results
        assert deleted.error_code == 0
        assert (await offsets(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert broker.shares.of_group("g") == []


@on_loop
async def test_the_configuration_of_a_group_outlives_a_restart(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with queue_broker(tmp_path, files) as (_, client):
        await configure(client, "a/b c%.é", share_record_lock_duration_ms="7000")
        await configure(client, ".", share_record_lock_duration_ms="8000")
    async with queue_broker(tmp_path, files, share_delivery_count_limit=9) as (_, client):
        assert (await group_values(client, "a/b c%.é"))["share.record.lock.duration.ms"] == ("7000", 8)
        values = await group_values(client, "never seen")
        assert values["share.record.lock.duration.ms"] == ("30000", 5)
        assert values["share.delivery.count.limit"] == ("9", 4)
        assert values["errors.deadletterqueue.topic.name"] == ("dlq.never_seen", 4)
        listed = await client.ask(LIST_RESOURCES, 1, resource_types=[GROUP_RESOURCE])
        assert [each.resource_name for each in listed.config_resources] == [".", "a/b c%.é", "g"]


@pytest.mark.parametrize(
    ("name", "operation", "value", "code"),
    [
        ("share.auto.offset.reset", 0, "sometimes", ErrorCode.INVALID_CONFIG),
        ("share.record.lock.duration.ms", 0, "0", ErrorCode.INVALID_CONFIG),
        ("share.delivery.count.limit", 0, "many", ErrorCode.INVALID_CONFIG),
        ("share.isolation.level", 2, "x", ErrorCode.INVALID_CONFIG),
        ("share.isolation.level", 9, "x", ErrorCode.INVALID_REQUEST),
        ("share.isolation.level", 0, None, ErrorCode.INVALID_REQUEST),
        ("headwater.filter", 0, "((", ErrorCode.INVALID_CONFIG),
        ("retention.ms", 0, "5", ErrorCode.INVALID_CONFIG),
    ],
)
@on_loop
async def test_an_illegal_configuration_is_refused_and_nothing_changes(
    tmp_path: Path, name: str, operation: int, value: str, code: ErrorCode
) -> None:
    async with queue_broker(tmp_path) as (_, client):
        before = await group_values(client)
        asked = nested(
            resource_type=GROUP_RESOURCE,
            resource_name="g",
            configs=[nested(name=name, config_operation=operation, value=value)],
        )
        answer = await client.ask(INCREMENTAL, 1, resources=[asked], validate_only=False)
        assert answer.responses[0].error_code == code
        assert answer.responses[0].error_message
        assert await group_values(client) == before


@on_loop
async def test_a_change_holds_at_once(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (broker, client):
        member = await Member.joined(broker, "t")
        await configure(client, share_delivery_count_limit="7")
        await produced(client, b"x")
        await member.fetch(wait_ms=1000)
        (queue,) = broker.shares.of_group("g")
        assert queue.settings.delivery_count_limit == 7


@on_loop
async def test_the_features_name_share_groups(tmp_path: Path) -> None:
    async with queue_broker(tmp_path) as (_, client):
        answer = await client.ask(API_VERSIONS, 4, client_software_name="test", client_software_version="1")
        features = {each.name: each.max_version_level for each in answer.finalized_features}
        assert features["share.version"] == 1
