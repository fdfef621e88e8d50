from typing import Any

from headwater.groups.events import GroupStored
from headwater.groups.rebalance import GroupState
from headwater.groups.settings import GroupSettings
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import DrivenGroup, refusal

PATIENT = GroupSettings(initial_rebalance_delay_ms=1_000)


def two_joined(settings: GroupSettings = PATIENT, **changes: Any) -> tuple[DrivenGroup, str, str]:
    driven = DrivenGroup(settings)
    driven.join("a", needs_known_id=False, **changes)
    driven.join("b", needs_known_id=False, **changes)
    driven.pass_ms(2_000)
    return driven, driven.answers["a"].member_id, driven.answers["b"].member_id


def test_a_follower_waits_for_the_leaders_assignment() -> None:
    driven, leader, follower = two_joined()
    assert driven.sync("follower", follower, 1) is None
    driven.sync("leader", leader, 1, assignments={leader: b"one", follower: b"two", "stranger": b"three"})
    assert driven.answers["leader"].assignment == b"one"
    assert driven.answers["follower"].assignment == b"two"
    assert driven.group.state is GroupState.STABLE


def test_the_group_is_stored_before_anyone_learns_its_assignment() -> None:
    driven, leader, follower = two_joined()
    driven.sync("follower", follower, 1)
    assert driven.events == []
    driven.sync("leader", leader, 1, assignments={leader: b"one", follower: b"two"})
    (stored,) = driven.events
    assert isinstance(stored, GroupStored)
    assert (stored.generation, stored.leader, stored.protocol) == (1, leader, "range")
    assert {member.member_id: member.assignment for member in stored.members} == {leader: b"one", follower: b"two"}
    assert driven.group.stored == stored


def test_a_late_follower_gets_its_assignment_at_once() -> None:
    driven, leader, follower = two_joined()
    driven.sync("leader", leader, 1, assignments={follower: b"two"})
    late = driven.sync("follower", follower, 1, protocol_type="consumer", protocol="range")
    assert late is not None and (late.assignment, late.protocol) == (b"two", "range")


def test_a_member_that_the_leader_forgot_is_assigned_nothing() -> None:
    driven, leader, follower = two_joined()
    driven.sync("leader", leader, 1)
    late = driven.sync("follower", follower, 1)
    assert late is not None and (late.error, late.assignment) == (ErrorCode.NONE, b"")


def test_only_members_of_the_generation_with_its_protocol_may_sync() -> None:
    driven, leader, _ = two_joined()
    assert refusal(lambda: driven.sync("x", "stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: driven.sync("x", leader, 2)) is ErrorCode.ILLEGAL_GENERATION
    assert refusal(lambda: driven.sync("x", leader, 1, protocol="sticky")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong_type = refusal(lambda: driven.sync("x", leader, 1, protocol_type="connect"))
    assert wrong_type is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driven.join("c", needs_known_id=False)
    assert refusal(lambda: driven.sync("x", leader, 1)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_answers_those_who_wait_for_an_assignment() -> None:
    driven, _, follower = two_joined()
    driven.sync("follower", follower, 1)
    driven.join("c", needs_known_id=False)
    assert driven.answers["follower"].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    driven, leader, follower = two_joined(rebalance_timeout_ms=5_000, session_timeout_ms=60_000)
    driven.sync("leader", leader, 1, assignments={leader: b"one"})
    driven.pass_ms(5_000)
    assert driven.group.state is GroupState.PREPARING
    assert refusal(lambda: driven.heartbeat(follower, 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.reason.value for each in driven.group.departures] == ["did not sync in time"]
    joined = driven.join("leader again", leader)
    assert joined is not None and joined.generation == 2


def test_a_leader_that_never_syncs_is_replaced() -> None:
    driven, _, follower = two_joined(rebalance_timeout_ms=5_000, session_timeout_ms=60_000)
    driven.sync("follower", follower, 1)
    driven.pass_ms(5_000)
    assert driven.answers["follower"].error is ErrorCode.REBALANCE_IN_PROGRESS
    joined = driven.join("again", follower)
    assert joined is not None and joined.leader == follower


def test_waiting_for_an_assignment_keeps_a_member_alive() -> None:
    driven, leader, follower = two_joined(rebalance_timeout_ms=60_000, session_timeout_ms=6_000)
    driven.sync("follower", follower, 1)
    for _ in range(4):
        driven.pass_ms(5_000)
        driven.heartbeat(leader, 1)
    driven.sync("leader", leader, 1, assignments={follower: b"two"})
    assert driven.answers["follower"].assignment == b"two"


def test_a_repeated_sync_answers_the_first_one() -> None:
    driven, leader, follower = two_joined()
    driven.sync("one", follower, 1)
    driven.sync("two", follower, 1)
    assert driven.answers["one"].error is ErrorCode.REBALANCE_IN_PROGRESS
    driven.sync("leader", leader, 1)
    assert driven.answers["two"].error is ErrorCode.NONE


def test_an_assignment_too_large_to_store_is_refused_to_all() -> None:
    driven, leader, follower = two_joined(GroupSettings(initial_rebalance_delay_ms=1_000, max_group_bytes=1_000))
    driven.sync("follower", follower, 1)
    driven.sync("leader", leader, 1, assignments={leader: bytes(1_001)})
    assert driven.answers["leader"].error is driven.answers["follower"].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert driven.events == [] and driven.group.state is GroupState.PREPARING
