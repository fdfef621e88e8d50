from functools import partial
from typing import Any

import pytest

from headwater.groups.members import MemberProtocol
from headwater.groups.rebalance import GroupState
from headwater.groups.settings import MAX_PROTOCOLS, GroupSettings
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import NO_DELAY, DrivenGroup, join_request, protocols, refusal, subscription


def test_a_new_member_is_given_an_id_and_joins_with_it() -> None:
    driven = DrivenGroup()
    asked = driven.join("a")
    assert asked is not None and asked.error is ErrorCode.MEMBER_ID_REQUIRED
    assert asked.member_id == "app-id1"
    joined = driven.join("b", asked.member_id)
    assert joined is not None and joined.error is ErrorCode.NONE
    assert (joined.member_id, joined.leader, joined.generation) == (asked.member_id, asked.member_id, 1)
    assert (joined.protocol_type, joined.protocol) == ("consumer", "range")
    assert [member.metadata for member in joined.members] == [subscription("orders")]


def test_an_old_client_joins_without_asking_for_an_id_first() -> None:
    joined = DrivenGroup().join("a", needs_known_id=False)
    assert joined is not None and joined.error is ErrorCode.NONE and joined.member_id == "app-id1"


def test_an_id_nobody_came_back_with_is_forgotten_after_the_session_timeout() -> None:
    driven = DrivenGroup()
    asked = driven.join("a", session_timeout_ms=6_000)
    assert asked is not None
    idle = [driven.group.is_idle]
    driven.pass_ms(6_000)
    idle.append(driven.group.is_idle)
    assert idle == [False, True]
    assert refusal(lambda: driven.join("b", asked.member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    driven = DrivenGroup()
    asked = driven.join("slow")
    assert driven.join("fast", needs_known_id=False) is None
    assert asked is not None
    driven.join("slow again", asked.member_id)
    assert driven.answers["fast"].generation == driven.answers["slow again"].generation == 1


def test_leaving_with_an_id_that_was_only_given_out_lets_the_others_go_on() -> None:
    driven = DrivenGroup()
    asked = driven.join("slow")
    driven.join("fast", needs_known_id=False)
    assert asked is not None
    assert [answer.error for answer in driven.leave(asked.member_id)] == [ErrorCode.NONE]
    assert driven.answers["fast"].generation == 1


def test_the_first_generation_waits_for_more_members() -> None:
    driven = DrivenGroup(GroupSettings(initial_rebalance_delay_ms=3_000))
    driven.join("a", needs_known_id=False)
    driven.pass_ms(2_000)
    driven.join("b", needs_known_id=False)
    driven.pass_ms(1_000)
    assert "a" not in driven.answers, "a member came during the delay, so it is extended"
    driven.pass_ms(3_000)
    assert driven.answers["a"].generation == driven.answers["b"].generation == 1
    assert len(driven.answers["a"].members) == 2 and driven.answers["b"].members == ()


def test_the_initial_delay_is_never_extended_past_the_rebalance_timeout() -> None:
    driven = DrivenGroup(GroupSettings(initial_rebalance_delay_ms=3_000))
    for second in range(8):
        driven.join(second, needs_known_id=False, rebalance_timeout_ms=7_000)
        driven.pass_ms(1_000)
    assert driven.answers[0].generation == 1
    assert len(driven.answers[0].members) == 7


def test_a_second_member_makes_the_first_one_join_again() -> None:
    driven = DrivenGroup()
    (first,) = driven.stable_members(1)
    assert driven.join("b", needs_known_id=False) is None
    assert driven.group.state is GroupState.PREPARING
    assert driven.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    driven.join("a", first)
    assert driven.answers["a"].generation == driven.answers["b"].generation == 2
    assert driven.answers["b"].leader == first


def test_a_member_that_does_not_come_back_is_left_out_of_the_next_generation() -> None:
    driven = DrivenGroup()
    (first,) = driven.stable_members(1, rebalance_timeout_ms=5_000, session_timeout_ms=30_000)
    driven.join("b", needs_known_id=False, rebalance_timeout_ms=5_000)
    driven.pass_ms(5_000)
    assert driven.answers["b"].generation == 2
    assert driven.answers["b"].leader == driven.answers["b"].member_id
    assert refusal(lambda: driven.heartbeat(first, 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.reason.value for each in driven.group.departures] == ["did not rejoin in time"]


def test_a_follower_whose_answer_was_lost_gets_it_again_without_a_rebalance() -> None:
    driven = DrivenGroup()
    leader, follower = driven.stable_members(2)
    again = driven.join("again", follower)
    assert again is not None and again.generation == driven.group.generation and again.leader == leader
    assert driven.group.state is GroupState.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    driven = DrivenGroup()
    leader, follower = driven.stable_members(2)
    assert driven.join("leader", leader) is None
    assert driven.heartbeat(follower, driven.group.generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_with_new_metadata_starts_a_rebalance() -> None:
    driven = DrivenGroup()
    _, follower = driven.stable_members(2)
    assert driven.join("follower", follower, protocols=protocols("range", topics=("orders", "bills"))) is None
    assert driven.group.state is GroupState.PREPARING


def test_a_lost_join_answer_is_given_again_while_the_generation_waits_for_its_leader() -> None:
    driven = DrivenGroup()
    driven.join("a", needs_known_id=False)
    again = driven.join("again", driven.answers["a"].member_id)
    assert again is not None and again.generation == 1 and len(again.members) == 1


def test_a_repeated_join_of_a_waiting_member_answers_the_first_one() -> None:
    driven = DrivenGroup()
    (first,) = driven.stable_members(1)
    driven.join("b", needs_known_id=False)
    second = next(member.member_id for member in driven.group.members if member.member_id != first)
    driven.join("b again", second)
    assert driven.answers["b"].error is ErrorCode.REBALANCE_IN_PROGRESS
    driven.join("a", first)
    assert driven.answers["b again"].generation == 2


def test_the_protocol_most_members_prefer_and_all_support_is_chosen() -> None:
    driven = DrivenGroup(GroupSettings(initial_rebalance_delay_ms=1_000))
    driven.join("a", needs_known_id=False, protocols=protocols("sticky", "range", "mine"))
    driven.join("b", needs_known_id=False, protocols=protocols("range", "sticky"))
    driven.join("c", needs_known_id=False, protocols=protocols("range", "sticky"))
    driven.pass_ms(3_000)
    assert driven.answers["a"].protocol == "range"


def test_the_leaders_order_decides_a_tie_of_votes() -> None:
    driven = DrivenGroup(GroupSettings(initial_rebalance_delay_ms=1_000))
    driven.join("a", needs_known_id=False, protocols=protocols("sticky", "range"))
    driven.join("b", needs_known_id=False, protocols=protocols("range", "sticky"))
    driven.pass_ms(3_000)
    assert driven.answers["a"].leader == driven.answers["a"].member_id
    assert driven.answers["a"].protocol == "sticky"


def test_a_member_without_a_common_protocol_is_refused() -> None:
    driven = DrivenGroup()
    driven.stable_members(1)
    others: tuple[dict[str, Any], ...] = ({"protocols": protocols("sticky")}, {"protocol_type": "connect"})
    for changes in others:
        assert refusal(partial(driven.join, "b", **changes)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driven.group.state is GroupState.STABLE


def test_the_only_member_may_change_its_protocol() -> None:
    driven = DrivenGroup()
    (only,) = driven.stable_members(1)
    joined = driven.join("again", only, protocols=protocols("sticky"))
    assert joined is not None and joined.protocol == "sticky" and joined.generation == 2


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": protocols(*map(str, range(MAX_PROTOCOLS + 1)))}, ErrorCode.INVALID_REQUEST),
        ({"protocols": (MemberProtocol("range", bytes(262_145)),)}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "ü" * 20_000}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_no_group_would_accept_is_refused(changes: dict[str, Any], error: ErrorCode) -> None:
    assert refusal(lambda: join_request(**changes).check(NO_DELAY)) is error


def test_a_full_group_takes_nobody_else() -> None:
    driven = DrivenGroup(GroupSettings(initial_rebalance_delay_ms=0, max_members=2))
    leader, _ = driven.stable_members(2)
    assert refusal(lambda: driven.join("c")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refusal(lambda: driven.join("c", needs_known_id=False)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driven.join("a", leader) is None, "its members may join again"


def test_ids_given_out_are_limited_too() -> None:
    driven = DrivenGroup(GroupSettings(max_members=3))
    for token in range(3):
        driven.join(token)
    assert refusal(lambda: driven.join("d")) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_stranger_with_an_id_is_refused() -> None:
    driven = DrivenGroup()
    driven.stable_members(1)
    assert refusal(lambda: driven.join("x", "stranger")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_that_vanished_while_waiting_is_removed_after_five_minutes() -> None:
    driven = DrivenGroup()
    driven.stable_members(1, rebalance_timeout_ms=600_000, session_timeout_ms=1_000_000)
    driven.join("b", needs_known_id=False, rebalance_timeout_ms=600_000)
    driven.pass_ms(299_999)
    assert "b" not in driven.answers
    driven.pass_ms(1)
    assert driven.answers["b"].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_members_bring_along_is_limited_for_the_whole_group() -> None:
    driven = DrivenGroup(GroupSettings(max_group_bytes=250))
    large = (MemberProtocol("range", bytes(100)),)
    driven.join("a", needs_known_id=False, protocols=large)
    driven.join("b", needs_known_id=False, protocols=large)
    refused = refusal(lambda: driven.join("c", needs_known_id=False, protocols=large))
    assert refused is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driven.group.members.metadata_bytes == 210
    driven.leave(next(iter(driven.group.members)).member_id)
    assert driven.group.members.metadata_bytes == 105
