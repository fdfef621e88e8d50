"""The APIs of the new consumer protocol over a socket: heartbeats, descriptions, and offsets with member epochs."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.model.errors import ErrorCode
from headwater.testing.broker import Broker
from tests.support.messages import nested
from tests.support.wire import ask

COMMIT, FETCH_OFFSETS, METADATA, DESCRIBE, LIST, HEARTBEAT, DESCRIBE_CONSUMERS = 8, 9, 3, 15, 16, 68, 69
DELETE_GROUPS = 42
JOIN = {
    "rebalance_timeout_ms": 10_000,
    "subscribed_topic_names": ["orders"],
    "topic_partitions": [],
    "instance_id": None,
    "rack_id": None,
    "server_assignor": None,
    "subscribed_topic_regex": None,
}
STAY = {
    "rebalance_timeout_ms": -1,
    "subscribed_topic_names": None,
    "topic_partitions": None,
    "instance_id": None,
    "rack_id": None,
    "server_assignor": None,
    "subscribed_topic_regex": None,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(group_consumer_heartbeat_interval_ms=700) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 2, 1)]).values():
            future.result(60)
        while ask(broker, 10, 6, key_type=0, coordinator_keys=["g"]).coordinators[0].error_code:
            pass
        while ask(broker, LIST, 5, states_filter=[], types_filter=[]).error_code:
            pass
        yield broker


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def beat(broker: Broker, group: str, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
    whole = {**(JOIN if epoch == 0 else STAY), **fields}
    return ask(broker, HEARTBEAT, version, group_id=group, member_id=member_id, member_epoch=epoch, **whole)


def topic_id(broker: Broker, name: str = "orders") -> uuid.UUID:
    asked = [nested(topic_id=uuid.UUID(int=0), name=name)]
    answer = ask(
        broker, METADATA, 12, topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    found: uuid.UUID = answer.topics[0].topic_id
    return found


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_stays_and_leaves(broker: Broker, group: str, version: int) -> None:
    joined = beat(broker, group, "" if version == 0 else "me", 0, version)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 1, 700)
    assert joined.member_id == "me" or (version == 0 and uuid.UUID(joined.member_id))
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic_id(broker), [0, 1])
    stayed = beat(broker, group, joined.member_id, 1, version)
    assert (stayed.error_code, stayed.member_epoch, stayed.assignment) == (0, 1, None)
    left = beat(broker, group, joined.member_id, -1, version)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert beat(broker, group, joined.member_id, 1, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_refusals_say_why(broker: Broker, group: str) -> None:
    def refused(member_id: str, epoch: int, **fields: Any) -> int:
        answer = beat(broker, group, member_id, epoch, **fields)
        assert answer.error_message or not answer.error_code
        code: int = answer.error_code
        return code

    assert refused("", 0) == ErrorCode.INVALID_REQUEST
    assert refused("m", 0, subscribed_topic_names=None) == ErrorCode.INVALID_REQUEST
    assert refused("m", 0, server_assignor="mine") == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused("m", 0, subscribed_topic_regex="(") == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused("m", 5) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused("m", 0, instance_id="i") == 0
    assert refused("n", 0, instance_id="i") == ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused("m", 9, instance_id="i") == ErrorCode.FENCED_MEMBER_EPOCH
    assert refused("n", 1, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert beat(broker, "", "m", 0).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described_with_what_members_have(broker: Broker, group: str, version: int) -> None:
    beat(broker, group, "a", 0, subscribed_topic_regex="ord.*" if version else None)
    answer = ask(broker, DESCRIBE_CONSUMERS, version, group_ids=[group, "nowhere"], include_authorized_operations=True)
    found, missing = answer.groups
    assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (0, "Stable", 1, 1)
    assert (found.assignor_name, found.authorized_operations) == ("uniform", 3400)
    (member,) = found.members
    assert (member.member_id, member.member_epoch, list(member.subscribed_topic_names)) == ("a", 1, ["orders"])
    for share in (member.assignment, member.target_assignment):
        assert [(each.topic_name, list(each.partitions)) for each in share.topic_partitions] == [("orders", [0, 1])]
    if version:
        assert (member.member_type, member.subscribed_topic_regex) == (1, "ord.*")
    assert (missing.error_code, missing.members) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


@pytest.mark.parametrize(("pattern", "count"), [("__consumer_.*", 1), (".*", 2)])
def test_patterns_match_internal_topics_too(broker: Broker, group: str, pattern: str, count: int) -> None:
    """As in Apache Kafka 4.3, where only clients that match patterns themselves leave internal topics out."""
    joined = beat(broker, group, "a", 0, subscribed_topic_names=None, subscribed_topic_regex=pattern)
    assert joined.error_code == 0
    assigned = {each.topic_id for each in joined.assignment.topic_partitions}
    assert topic_id(broker, "__consumer_offsets") in assigned
    assert len(assigned) == count


def test_the_type_of_a_group_shows_in_lists_and_it_is_no_classic_group(broker: Broker, group: str) -> None:
    beat(broker, group, "a", 0)
    listed = ask(broker, LIST, 5, states_filter=["stable"], types_filter=["consumer"]).groups
    (found,) = [each for each in listed if each.group_id == group]
    assert (found.group_type, found.group_state, found.protocol_type) == ("consumer", "Stable", "consumer")
    (described,) = ask(broker, DESCRIBE, 6, groups=[group], include_authorized_operations=False).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    (deleted,) = ask(broker, DELETE_GROUPS, 2, groups_names=[group]).results
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP


def commit(broker: Broker, group: str, member_id: str, epoch: int, version: int, **topic: Any) -> list[int]:
    offsets = [
        nested(partition_index=index, committed_offset=7, committed_leader_epoch=-1, committed_metadata="x")
        for index in (0, 5)
    ]
    answer = ask(
        broker, COMMIT, version, group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id,
        group_instance_id=None, retention_time_ms=-1, topics=[nested(partitions=offsets, **topic)],
    )  # fmt: skip
    return [each.error_code for each in answer.topics[0].partitions]


def test_commits_name_the_members_epoch(broker: Broker, group: str) -> None:
    beat(broker, group, "a", 0)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, group, "a", 1, 9, name="orders") == [0, missing]
    assert commit(broker, group, "a", 0, 9, name="orders") == [ErrorCode.STALE_MEMBER_EPOCH, missing]
    assert commit(broker, group, "b", 1, 9, name="orders") == [ErrorCode.UNKNOWN_MEMBER_ID, missing]
    assert commit(broker, group, "a", 1, 8, name="orders") == [ErrorCode.UNSUPPORTED_VERSION, missing]
    assert commit(broker, group, "a", 1, 10, topic_id=topic_id(broker)) == [0, missing]
    assert commit(broker, group, "a", 1, 10, topic_id=uuid.UUID(int=5)) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2


def fetch_offsets(broker: Broker, group: str, version: int, topics: Any, member: Any = (None, -1)) -> Any:
    asked = nested(group_id=group, member_id=member[0], member_epoch=member[1], topics=topics)
    answer: Any
    (answer,) = ask(broker, FETCH_OFFSETS, version, groups=[asked], require_stable=True).groups
    return answer


def test_offsets_are_fetched_by_id_and_by_members_of_the_present_epoch(broker: Broker, group: str) -> None:
    beat(broker, group, "a", 0)
    commit(broker, group, "a", 1, 9, name="orders")
    by_name = [nested(name="orders", partition_indexes=[0])]
    by_id = [
        nested(topic_id=topic_id(broker), partition_indexes=[0, 1]),
        nested(topic_id=uuid.UUID(int=5), partition_indexes=[0]),
    ]
    found = fetch_offsets(broker, group, 10, by_id, ("a", 1))
    assert found.error_code == 0
    assert [(each.committed_offset, each.error_code) for topic in found.topics for each in topic.partitions] == [
        (7, 0),
        (-1, 0),
        (-1, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    (everything,) = fetch_offsets(broker, group, 10, None).topics
    assert everything.topic_id == topic_id(broker) and everything.partitions[0].committed_offset == 7
    assert fetch_offsets(broker, group, 9, by_name, ("a", 1)).topics[0].partitions[0].committed_offset == 7
    assert fetch_offsets(broker, group, 9, by_name, ("a", 0)).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_offsets(broker, group, 9, by_name, ("b", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_offsets(broker, "never seen", 10, by_id, ("b", 1)).topics[0].partitions[0].committed_offset == -1
