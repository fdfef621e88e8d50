"""The group APIs over a socket, in every version that is served."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.broker.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from tests.support.messages import nested
from tests.support.wire import ask

SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        created = admin.create_topics([NewTopic("orders", 2, 1), NewTopic("old", 1, 1)])
        for future in created.values():
            future.result(60)
        yield broker


def versions(module: Any) -> list[int]:
    return list(range(module.API.min_version, module.API.max_version + 1))


def versions_with_names(module: Any) -> list[int]:
    """Version 10 of the offset APIs names topics by id."""
    return [version for version in versions(module) if version < 10]


def call(broker: Broker, module: Any, version: int | None = None, **fields: object) -> Any:
    return ask(broker, module.API.key, module.API.max_version if version is None else version, **fields)


def join(broker: Broker, group_id: str, version: int = 9, **changes: object) -> Any:
    fields = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [nested(name="range", metadata=SUBSCRIPTION)],
        "reason": None,
    }
    return call(broker, join_group, version, **{**fields, **changes})


def sync(broker: Broker, group_id: str, joined: Any, version: int = 5) -> Any:
    fields: dict[str, object] = {
        "group_id": group_id,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [nested(member_id=joined.member_id, assignment=b"mine")],
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
    }
    return call(broker, sync_group, version, **fields)


def stable(broker: Broker, group_id: str) -> Any:
    joined = join(broker, group_id, 3)
    assert sync(broker, group_id, joined).error_code == ErrorCode.NONE
    return joined


def commit(
    broker: Broker, group_id: str, offset: int, joined: Any = None, version: int = 8, **changes: object
) -> list[tuple[str, int, int]]:
    partition = {"committed_offset": offset, "committed_leader_epoch": 3, "committed_metadata": "note"}
    topics = changes.pop("topics", {"orders": [0]})
    assert isinstance(topics, dict)
    fields: dict[str, object] = {
        "group_id": group_id,
        "generation_id_or_member_epoch": joined.generation_id if joined is not None else -1,
        "member_id": joined.member_id if joined is not None else "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [
            nested(name=name, partitions=[nested(partition_index=index, **partition) for index in indexes])
            for name, indexes in topics.items()
        ],
    }
    answer = call(broker, offset_commit, version, **{**fields, **changes})
    return [
        (topic.name, partition.partition_index, partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    ]


def fetch(broker: Broker, group_id: str, topics: dict[str, list[int]] | None, version: int = 8) -> Any:
    wanted = None
    if topics is not None:
        wanted = [nested(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    if version < 8:
        return call(broker, offset_fetch, version, group_id=group_id, topics=wanted, require_stable=True)
    groups = [nested(group_id=group_id, topics=wanted)]
    group: Any = call(broker, offset_fetch, version, groups=groups, require_stable=True).groups[0]
    return group


def offsets_of(fetched: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in fetched.topics
        for partition in topic.partitions
    }


def leave(broker: Broker, group_id: str, member_id: str, version: int = 5) -> Any:
    if version < 3:
        return call(broker, leave_group, version, group_id=group_id, member_id=member_id)
    leaving = [nested(member_id=member_id, group_instance_id=None, reason="done")]
    return call(broker, leave_group, version, group_id=group_id, members=leaving)


@pytest.mark.parametrize("version", versions(find_coordinator))
def test_this_node_coordinates_groups_and_transactions(broker: Broker, version: int) -> None:
    for key_type in (0, 1) if version else (0,):
        answer = call(broker, find_coordinator, version, key="g", key_type=key_type, coordinator_keys=["g", "h"])
        found = answer.coordinators if version >= 4 else [answer]
        assert [(each.error_code, each.host, each.port, each.node_id) for each in found] == [
            (ErrorCode.NONE, broker.host, broker.port, 1)
        ] * (2 if version >= 4 else 1)


def test_a_coordinator_of_nothing_or_of_an_unknown_kind_is_refused(broker: Broker) -> None:
    answer = call(broker, find_coordinator, 6, key_type=0, coordinator_keys=[""])
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_GROUP_ID
    answer = call(broker, find_coordinator, 6, key_type=2, coordinator_keys=["g"])
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    assert answer.coordinators[0].node_id == -1


@pytest.mark.parametrize("version", versions(join_group))
def test_joining_works_in_every_version(broker: Broker, version: int) -> None:
    group_id = f"join-{version}"
    joined = join(broker, group_id, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED and joined.generation_id == -1
        joined = join(broker, group_id, version, member_id=joined.member_id)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, SUBSCRIPTION)]
    refused = join(broker, group_id, version, member_id="stranger")
    assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    assert refused.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", versions(sync_group))
def test_syncing_works_in_every_version(broker: Broker, version: int) -> None:
    group_id = f"sync-{version}"
    joined = join(broker, group_id, 3)
    synced = sync(broker, group_id, joined, version)
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")
    joined.generation_id = 77
    assert sync(broker, group_id, joined, version).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(heartbeat))
def test_heartbeats_work_in_every_version(broker: Broker, version: int) -> None:
    group_id = f"heartbeat-{version}"
    joined = stable(broker, group_id)
    beat = {"group_id": group_id, "member_id": joined.member_id, "generation_id": 1, "group_instance_id": None}
    assert call(broker, heartbeat, version, **beat).error_code == ErrorCode.NONE
    assert call(broker, heartbeat, version, **{**beat, "generation_id": 0}).error_code == ErrorCode.ILLEGAL_GENERATION
    assert call(broker, heartbeat, version, **{**beat, "member_id": "x"}).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(leave_group))
def test_leaving_works_in_every_version(broker: Broker, version: int) -> None:
    group_id = f"leave-{version}"
    joined = stable(broker, group_id)
    first, second = (leave(broker, group_id, joined.member_id, version) for _ in range(2))
    if version < 3:
        assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        assert first.error_code == second.error_code == ErrorCode.NONE
        assert [member.error_code for member in first.members] == [ErrorCode.NONE]
        assert [member.error_code for member in second.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", versions_with_names(offset_commit))
def test_commits_work_in_every_version(broker: Broker, version: int) -> None:
    group_id = f"commit-{version}"
    joined = stable(broker, group_id)
    ok, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = {"orders": [0, 1, 2], "nowhere": [0]}
    assert commit(broker, group_id, 42, joined, version, topics=topics) == [
        ("orders", 0, ok),
        ("orders", 1, ok),
        ("orders", 2, unknown),
        ("nowhere", 0, unknown),
    ]
    joined.generation_id = 9
    assert commit(broker, group_id, 43, joined, version) == [("orders", 0, ErrorCode.ILLEGAL_GENERATION)]
    assert commit(broker, group_id, 43, None, version) == [("orders", 0, ErrorCode.UNKNOWN_MEMBER_ID)]
    assert offsets_of(fetch(broker, group_id, None)) == {("orders", 0): 42, ("orders", 1): 42}


@pytest.mark.parametrize("version", versions_with_names(offset_fetch))
def test_committed_offsets_are_fetched_in_every_version(broker: Broker, version: int) -> None:
    group_id = f"fetch-{version}"
    assert commit(broker, group_id, 42) == [("orders", 0, ErrorCode.NONE)]
    fetched = fetch(broker, group_id, {"orders": [0, 1], "nowhere": [5]}, version)
    assert offsets_of(fetched) == {("orders", 0): 42, ("orders", 1): -1, ("nowhere", 5): -1}
    found = fetched.topics[0].partitions[0]
    assert (found.metadata, found.error_code) == ("note", ErrorCode.NONE)
    if version >= 5:
        assert found.committed_leader_epoch == 3
    if version >= 2:
        assert fetched.error_code == ErrorCode.NONE
        assert offsets_of(fetch(broker, group_id, None, version)) == {("orders", 0): 42}


@pytest.mark.parametrize("version", versions_with_names(offset_fetch))
def test_an_unknown_group_has_no_offsets_and_that_is_no_error(broker: Broker, version: int) -> None:
    fetched = fetch(broker, "never seen", {"orders": [0]}, version)
    assert offsets_of(fetched) == {("orders", 0): -1}
    assert fetched.topics[0].partitions[0].error_code == ErrorCode.NONE
    if version >= 2:
        assert fetched.error_code == ErrorCode.NONE


def test_many_groups_are_fetched_at_once(broker: Broker) -> None:
    for number in range(3):
        commit(broker, f"many-{number}", number)
    groups = [nested(group_id=f"many-{number}", topics=None) for number in range(3)]
    answer = call(broker, offset_fetch, 8, groups=groups, require_stable=False)
    assert [offsets_of(group) for group in answer.groups] == [{("orders", 0): number} for number in range(3)]


def test_metadata_of_an_offset_has_a_limit(broker: Broker) -> None:
    partitions = [
        nested(partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata="x" * 4097)
    ]
    answer = call(
        broker,
        offset_commit,
        8,
        group_id="metadata",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[nested(name="orders", partitions=partitions)],
    )
    assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("version", versions(describe_groups))
def test_groups_are_described_in_every_version(broker: Broker, version: int) -> None:
    group_id = f"describe-{version}"
    joined = stable(broker, group_id)
    answer = call(broker, describe_groups, version, groups=[group_id, "never seen"], include_authorized_operations=True)
    group, unknown = answer.groups
    assert (group.error_code, group.group_state, group.protocol_type) == (ErrorCode.NONE, "Stable", "consumer")
    assert group.protocol_data == "range"
    (member,) = group.members
    assert (member.member_id, member.member_metadata, member.member_assignment) == (
        joined.member_id,
        SUBSCRIPTION,
        b"mine",
    )
    assert member.client_host == "/127.0.0.1"
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


@pytest.mark.parametrize("version", versions(list_groups))
def test_groups_are_listed_in_every_version(broker: Broker, version: int) -> None:
    stable(broker, f"list-{version}")
    commit(broker, f"list-{version}-empty", 1)
    listed = call(broker, list_groups, version, states_filter=["STABLE"], types_filter=["Classic"])
    found = {group.group_id: group for group in listed.groups}
    assert found[f"list-{version}"].protocol_type == "consumer"
    assert (f"list-{version}-empty" in found) == (version < 4)
    if version >= 5:
        assert found[f"list-{version}"].group_type == "classic"
        assert list(call(broker, list_groups, version, states_filter=[], types_filter=["share"]).groups) == []


@pytest.mark.parametrize("version", versions(delete_groups))
def test_only_empty_groups_are_deleted(broker: Broker, version: int) -> None:
    busy, empty = f"delete-{version}-busy", f"delete-{version}-empty"
    joined = stable(broker, busy)
    commit(broker, empty, 1)
    results = call(broker, delete_groups, version, groups_names=[busy, empty, "never seen"]).results
    assert [(result.group_id, result.error_code) for result in results] == [
        (busy, ErrorCode.NON_EMPTY_GROUP),
        (empty, ErrorCode.NONE),
        ("never seen", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert offsets_of(fetch(broker, empty, {"orders": [0]})) == {("orders", 0): -1}
    leave(broker, busy, joined.member_id)
    assert call(broker, delete_groups, version, groups_names=[busy]).results[0].error_code == ErrorCode.NONE


def test_offsets_are_deleted_unless_their_topic_is_read(broker: Broker) -> None:
    joined = stable(broker, "offset-delete")
    commit(broker, "offset-delete", 5, joined, topics={"orders": [0], "old": [0]})
    topics = [nested(name=name, partitions=[nested(partition_index=0)]) for name in ("orders", "old", "nowhere")]
    answer = call(broker, offset_delete, group_id="offset-delete", topics=topics)
    assert answer.error_code == ErrorCode.NONE
    assert [topic.partitions[0].error_code for topic in answer.topics] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert offsets_of(fetch(broker, "offset-delete", None)) == {("orders", 0): 5}
    unknown = call(broker, offset_delete, group_id="never seen", topics=topics)
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_retention_of_the_clients_own_is_taken(broker: Broker) -> None:
    huge = 2**63 - 1
    assert commit(broker, "retention", 5, version=2, retention_time_ms=huge) == [("orders", 0, ErrorCode.NONE)]
    assert offsets_of(fetch(broker, "retention", None)) == {("orders", 0): 5}


@pytest.mark.parametrize(
    ("module", "fields"),
    [
        (join_group, {"session_timeout_ms": 10_000, "protocol_type": "consumer"}),
        (sync_group, {"generation_id": 1, "protocol_type": "consumer"}),
        (heartbeat, {"generation_id": 1}),
    ],
)
def test_an_empty_group_id_is_refused(broker: Broker, module: Any, fields: dict[str, Any]) -> None:
    answer = call(broker, module, group_id="", member_id="m", **fields)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
