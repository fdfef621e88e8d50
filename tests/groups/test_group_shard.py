from typing import Any

import pytest

from headwater.groups.effects import GroupEffects
from headwater.groups.events import Event, GroupDeleted, OffsetCommitted, OffsetDeleted
from headwater.groups.rebalance import GroupState
from headwater.groups.requests import CommitRequest, LeaveRequest, OffsetToCommit, SyncRequest
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.groups.topics import TopicTable
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import NO_DELAY, at, join_request, protocols, refusal

HOUR_MS = 3_600_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=HOUR_MS)


def commit(*offsets: tuple[str, int, int], member_id: str = "", generation: int = -1, **changes: Any) -> CommitRequest:
    each = tuple(OffsetToCommit(topic, partition, offset, -1, "") for topic, partition, offset in offsets)
    return CommitRequest(member_id, None, generation, each, **changes)


def answer(effects: GroupEffects, to: object = "t") -> Any:
    (found,) = [reply.answer for reply in effects.replies if reply.to == to]
    return found


def with_member(shard: GroupShard, group_id: str = "g", **changes: Any) -> tuple[str, list[Event]]:
    joined = answer(shard.join(group_id, join_request(needs_known_id=False, **changes), "u", "t", at(0)))
    sync = SyncRequest(joined.member_id, None, joined.generation, None, None, {})
    effects = shard.sync(group_id, sync, "t", at(0))
    return joined.member_id, effects.events


def leave(shard: GroupShard, member_id: str, at_ms: int) -> list[Event]:
    return shard.leave("g", [LeaveRequest(member_id, None)], "t", at(at_ms)).events


@pytest.mark.parametrize("group_id", ["", "x" * 40_000])
def test_a_group_id_must_not_be_empty_or_too_long(group_id: str) -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    assert refusal(lambda: shard.join(group_id, join_request(), "u", "t", at(0))) is ErrorCode.INVALID_GROUP_ID
    assert refusal(lambda: shard.heartbeat(group_id, "m", None, 1, at(0))) is ErrorCode.INVALID_GROUP_ID
    assert refusal(lambda: shard.commit(group_id, commit(), "t", at(0))) is ErrorCode.INVALID_GROUP_ID


def test_members_of_unknown_groups_are_unknown() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    assert refusal(lambda: shard.join("g", join_request("m"), "u", "t", at(0))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: shard.heartbeat("g", "m", None, 1, at(0))) is ErrorCode.UNKNOWN_MEMBER_ID
    left = answer(shard.leave("g", [LeaveRequest("m", None)], "t", at(0)))
    assert [each.error for each in left] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert refusal(lambda: shard.commit("g", commit(generation=3), "t", at(0))) is ErrorCode.ILLEGAL_GENERATION
    assert shard.group_ids() == []


def test_a_refused_join_leaves_no_group_behind() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    refused = refusal(lambda: shard.join("g", join_request(session_timeout_ms=1), "u", "t", at(0)))
    assert refused is ErrorCode.INVALID_SESSION_TIMEOUT
    assert shard.group_ids() == []


def test_a_consumer_that_assigns_itself_commits_without_a_group() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    effects = shard.commit("g", commit(("a", 0, 7), ("a", 1, 8)), "t", at(0))
    assert [type(event) for event in effects.events] == [OffsetCommitted, OffsetCommitted]
    assert [each.error for each in answer(effects)] == [ErrorCode.NONE, ErrorCode.NONE]
    committed = shard.offsets("g").get("a", 1)
    assert committed is not None and committed.offset == 8
    assert [(each.group_id, each.state, each.protocol_type) for each in shard.listed()] == [("g", GroupState.EMPTY, "")]


def test_an_unknown_group_has_committed_nothing() -> None:
    assert not GroupShard(SETTINGS, TopicTable()).offsets("g")


def test_too_much_metadata_is_refused_for_its_offset_alone() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    offsets = (OffsetToCommit("a", 0, 1, -1, "ü" * 2_049), OffsetToCommit("a", 1, 1, -1, "ü" * 2_048))
    effects = shard.commit("g", CommitRequest("", None, -1, offsets), "t", at(0))
    assert [each.error for each in answer(effects)] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert shard.offsets("g").get("a", 0) is None


def test_offsets_of_an_empty_group_expire_and_the_group_with_them() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    member, _ = with_member(shard)
    shard.commit("g", commit(("orders", 0, 7), member_id=member, generation=1), "t", at(0))
    leave(shard, member, at_ms=1_000)
    assert shard.expire("g", at(HOUR_MS + 999)).events == []
    events = shard.expire("g", at(HOUR_MS + 1_000)).events
    assert events == [OffsetDeleted("g", "orders", 0), GroupDeleted("g")]
    assert shard.group_ids() == []


def test_offsets_of_a_running_group_stay_but_not_those_of_topics_it_left() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    member, _ = with_member(shard)
    shard.commit("g", commit(("orders", 0, 7), ("old", 0, 7), member_id=member, generation=1), "t", at(0))
    assert shard.expire("g", at(2 * HOUR_MS)).events == [OffsetDeleted("g", "old", 0)]


def test_nothing_of_a_running_group_expires_when_its_topics_cannot_be_known() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    member, _ = with_member(shard, protocol_type="connect")
    shard.commit("g", commit(("orders", 0, 7), member_id=member, generation=1), "t", at(0))
    assert shard.expire("g", at(9 * HOUR_MS)).events == []


def test_offsets_without_a_group_expire_by_their_commit() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    shard.commit("g", commit(("a", 0, 7), retention_ms=10), "t", at(0))
    shard.commit("g", commit(("b", 0, 7)), "t", at(0))
    assert shard.expire("g", at(10)).events == [OffsetDeleted("g", "a", 0)]
    assert shard.expire("g", at(HOUR_MS)).events == [OffsetDeleted("g", "b", 0)]
    assert shard.group_ids() == []


def test_only_an_empty_group_can_be_deleted() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    member, _ = with_member(shard)
    shard.commit("g", commit(("orders", 0, 7), member_id=member, generation=1), "t", at(0))
    assert refusal(lambda: shard.delete_group("g", "t")) is ErrorCode.NON_EMPTY_GROUP
    leave(shard, member, 0)
    effects = shard.delete_group("g", "t")
    assert effects.events == [OffsetDeleted("g", "orders", 0), GroupDeleted("g")]
    assert answer(effects) is ErrorCode.NONE
    assert refusal(lambda: shard.delete_group("g", "t")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.described("g").state is GroupState.DEAD


def test_offsets_of_topics_that_the_group_reads_cannot_be_deleted() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    member, _ = with_member(shard, protocols=protocols("range", topics=("orders",)))
    shard.commit("g", commit(("orders", 0, 7), ("old", 0, 7), member_id=member, generation=1), "t", at(0))
    effects = shard.delete_offsets("g", [("orders", 0), ("old", 0), ("never", 0)], "t")
    assert [each.error for each in answer(effects)] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert effects.events == [OffsetDeleted("g", "old", 0)]
    leave(shard, member, 0)
    assert shard.delete_offsets("g", [("orders", 0)], "t").events == [OffsetDeleted("g", "orders", 0)]


def test_deleting_offsets_needs_a_group_whose_topics_can_be_known() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    assert refusal(lambda: shard.delete_offsets("g", [("a", 0)], "t")) is ErrorCode.GROUP_ID_NOT_FOUND
    with_member(shard, protocol_type="connect")
    assert refusal(lambda: shard.delete_offsets("g", [("a", 0)], "t")) is ErrorCode.NON_EMPTY_GROUP


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    shard.commit("g", commit(("a", 0, 7), ("b", 0, 7)), "t", at(0))
    shard.commit("h", commit(("a", 1, 7)), "t", at(0))
    assert shard.forget_topic("a").events == [OffsetDeleted("g", "a", 0), OffsetDeleted("h", "a", 1)]
    assert shard.group_ids() == ["g"]


def test_the_number_of_groups_is_limited() -> None:
    shard = GroupShard(GroupSettings(max_groups=2), TopicTable())
    shard.commit("a", commit(("t", 0, 1)), "t", at(0))
    shard.join("b", join_request(), "u", "t", at(0))
    assert refusal(lambda: shard.join("c", join_request(), "u", "t", at(0))) is ErrorCode.POLICY_VIOLATION
    assert refusal(lambda: shard.commit("c", commit(("t", 0, 1)), "t", at(0))) is ErrorCode.POLICY_VIOLATION
    assert refusal(lambda: shard.commit("a", commit(("t", 0, 2)), "t", at(0))) is ErrorCode.NONE
    assert refusal(lambda: shard.join("b", join_request(), "v", "t", at(0))) is ErrorCode.NONE


def test_a_group_that_somebody_asked_about_joining_and_never_did_is_forgotten() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    shard.join("g", join_request(), "u", "t", at(0))
    assert shard.expire("g", at(9_999)).events == [] and shard.group_ids() == ["g"]
    shard.tick(at(10_000))
    assert shard.expire("g", at(10_000)).events == [] and shard.group_ids() == []


def test_one_tick_serves_all_groups_that_are_due() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    for group_id in ("a", "b"):
        with_member(shard, group_id, session_timeout_ms=6_000)
    with_member(shard, "c", session_timeout_ms=60_000)
    next_ms = shard.next_deadline_ms()
    assert next_ms is not None and next_ms <= 6_000
    shard.tick(at(6_000))
    assert [each.state for each in shard.listed()] == [GroupState.EMPTY, GroupState.EMPTY, GroupState.STABLE]


def test_metadata_and_assignments_are_shown_of_a_stable_group_only() -> None:
    shard = GroupShard(SETTINGS, TopicTable())
    with_member(shard)
    described = shard.described("g")
    assert (described.state, described.protocol, len(described.members)) == (GroupState.STABLE, "range", 1)
    assert described.members[0].metadata == protocols("range")[0].metadata
    shard.join("g", join_request(needs_known_id=False), "v", "t", at(0))
    described = shard.described("g")
    assert (described.state, described.protocol) == (GroupState.PREPARING, "")
    assert [member.metadata for member in described.members] == [b"", b""]


def test_a_replay_brings_back_groups_and_offsets() -> None:
    shard = GroupShard(NO_DELAY, TopicTable())
    member, log = with_member(shard)
    log += shard.commit("g", commit(("orders", 0, 7), member_id=member, generation=1), "t", at(0)).events
    again = GroupShard(NO_DELAY, TopicTable())
    for event in log:
        again.apply(event)
    again.resume(at(0))
    assert again.durable_state() == shard.durable_state()
    assert again.heartbeat("g", member, None, 1, at(1)) is ErrorCode.NONE
    assert again.next_deadline_ms() == 10_000


def test_what_members_bring_along_is_limited_for_the_whole_shard() -> None:
    shard = GroupShard(GroupSettings(initial_rebalance_delay_ms=0, max_shard_bytes=60), TopicTable())
    member, _ = with_member(shard, "a")
    with_member(shard, "b")
    refused = refusal(lambda: shard.join("c", join_request(needs_known_id=False), "u", "t", at(0)))
    assert refused is ErrorCode.POLICY_VIOLATION
    shard.leave("a", [LeaveRequest(member, None)], "t", at(0))
    assert refusal(lambda: with_member(shard, "c")) is ErrorCode.NONE
