from headwater.groups.classic import ClassicGroup
from headwater.groups.departures import DepartureReason
from headwater.groups.events import GroupStored
from headwater.groups.rebalance import GroupState
from headwater.groups.settings import MAX_DEPARTURES
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import NO_DELAY, DrivenGroup, at, protocols, refusal


def test_heartbeats_keep_a_session_alive() -> None:
    driven = DrivenGroup()
    (only,) = driven.stable_members(1, session_timeout_ms=6_000)
    for _ in range(5):
        driven.pass_ms(5_999)
        assert driven.heartbeat(only, 1) is ErrorCode.NONE
    driven.pass_ms(6_000)
    assert driven.group.state is GroupState.EMPTY
    (departure,) = driven.group.departures
    assert (departure.member_id, departure.reason) == (only, DepartureReason.SESSION_EXPIRED)


def test_a_heartbeat_of_a_stranger_or_of_another_generation_is_refused() -> None:
    driven = DrivenGroup()
    (only,) = driven.stable_members(1)
    assert refusal(lambda: driven.heartbeat("stranger", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: driven.heartbeat(only, 0)) is ErrorCode.ILLEGAL_GENERATION


def test_heartbeats_are_welcome_while_the_leader_assigns() -> None:
    driven = DrivenGroup()
    driven.join("a", needs_known_id=False)
    assert driven.group.state is GroupState.COMPLETING
    assert driven.heartbeat(driven.answers["a"].member_id, 1) is ErrorCode.NONE


def test_a_session_that_ends_makes_the_others_rebalance() -> None:
    driven = DrivenGroup()
    leader, follower = driven.stable_members(2, session_timeout_ms=6_000)
    driven.pass_ms(5_000)
    driven.heartbeat(leader, driven.group.generation)
    driven.pass_ms(1_000)
    assert follower not in driven.group.members
    assert driven.heartbeat(leader, driven.group.generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_leaving_makes_the_others_rebalance() -> None:
    driven = DrivenGroup()
    leader, follower = driven.stable_members(2)
    generation = driven.group.generation
    assert [answer.error for answer in driven.leave(leader, reason="closing")] == [ErrorCode.NONE]
    assert driven.heartbeat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = driven.join("again", follower)
    assert joined is not None and (joined.leader, joined.generation) == (follower, generation + 1)
    (departure,) = driven.group.departures
    assert (departure.reason, departure.explanation) == (DepartureReason.LEFT, "closing")


def test_the_last_to_leave_makes_the_group_empty_and_that_is_stored() -> None:
    driven = DrivenGroup()
    one, two = driven.stable_members(2)
    generation = driven.group.generation
    driven.now_ms = 500
    assert [answer.error for answer in driven.leave(one, "stranger", two)] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    stored = driven.events[-1]
    assert isinstance(stored, GroupStored)
    assert (stored.members, stored.protocol, stored.leader, stored.generation) == ((), None, None, generation + 1)
    assert stored.state_timestamp_ms == driven.now.wall_ms
    assert driven.group.state is GroupState.EMPTY and driven.group.is_idle


def test_a_waiting_member_that_leaves_is_answered_and_lets_the_others_go_on() -> None:
    driven = DrivenGroup()
    (first,) = driven.stable_members(1)
    driven.join("b", needs_known_id=False)
    driven.join("c", needs_known_id=False)
    driven.join("a", first)
    third = driven.answers["c"].member_id
    driven.join("d", needs_known_id=False)
    fourth = next(member.member_id for member in driven.group.members if member.joining is not None)
    driven.leave(fourth)
    assert driven.answers["d"].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert third in driven.group.members


def test_departures_are_remembered_up_to_a_limit() -> None:
    driven = DrivenGroup()
    for round_number in range(MAX_DEPARTURES + 5):
        driven.join(round_number, needs_known_id=False)
        driven.leave(driven.answers[round_number].member_id)
    assert len(driven.group.departures) == MAX_DEPARTURES


def test_a_stored_group_comes_back_stable_with_whole_sessions() -> None:
    driven = DrivenGroup()
    leader, follower = driven.stable_members(2, session_timeout_ms=6_000)
    assert driven.group.stored is not None
    driven.group = _reloaded(driven, at_ms=1_000_000)
    driven.now_ms = 1_000_000
    generation = driven.group.generation
    assert driven.group.state is GroupState.STABLE and driven.group.members.leader == leader
    driven.pass_ms(5_999)
    assert driven.heartbeat(leader, generation) is ErrorCode.NONE
    late = driven.sync("late", follower, generation)
    assert late is not None and late.assignment == follower.encode()
    driven.pass_ms(5_999)
    driven.heartbeat(leader, generation)
    driven.pass_ms(1)
    assert follower not in driven.group.members


def test_an_empty_group_comes_back_empty_and_its_generation_goes_on() -> None:
    driven = DrivenGroup()
    (only,) = driven.stable_members(1)
    driven.leave(only)
    driven.group = _reloaded(driven, at_ms=0)
    assert driven.group.state is GroupState.EMPTY and driven.group.generation == 2
    joined = driven.join("new", needs_known_id=False)
    assert joined is not None and joined.generation == 3


def test_a_commit_needs_a_member_of_the_generation() -> None:
    driven = DrivenGroup()
    (only,) = driven.stable_members(1)
    check = driven.check_commit
    assert refusal(lambda: check(only, None, 1, at(0))) is ErrorCode.NONE
    assert refusal(lambda: check(only, None, 0, at(0))) is ErrorCode.ILLEGAL_GENERATION
    assert refusal(lambda: check("stranger", None, 1, at(0))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: check("", None, -1, at(0))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_may_commit_while_the_group_prepares_but_not_while_it_completes() -> None:
    driven = DrivenGroup()
    (only,) = driven.stable_members(1)
    driven.join("b", needs_known_id=False)
    assert refusal(lambda: driven.check_commit(only, None, 1, at(0))) is ErrorCode.NONE
    driven.join("a", only)
    assert driven.group.state is GroupState.COMPLETING
    assert refusal(lambda: driven.check_commit(only, None, 2, at(0))) is ErrorCode.REBALANCE_IN_PROGRESS


def test_anyone_may_commit_for_an_empty_group() -> None:
    driven = DrivenGroup()
    (only,) = driven.stable_members(1)
    driven.leave(only)
    assert refusal(lambda: driven.check_commit("", None, -1, at(0))) is ErrorCode.NONE
    assert refusal(lambda: driven.check_commit(only, None, 1, at(0))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_is_a_sign_of_life() -> None:
    driven = DrivenGroup()
    (only,) = driven.stable_members(1, session_timeout_ms=6_000)
    driven.pass_ms(5_000)
    driven.check_commit(only, None, 1, driven.now)
    driven.pass_ms(5_000)
    assert only in driven.group.members


def test_subscribed_topics_are_those_of_all_members() -> None:
    driven = DrivenGroup()
    driven.stable_members(1, protocols=protocols("range", topics=("a", "b")))
    assert driven.group.subscribed_topics == frozenset({"a", "b"})


def test_nothing_is_concluded_from_metadata_of_other_protocol_types() -> None:
    driven = DrivenGroup()
    driven.stable_members(1, protocol_type="connect")
    assert driven.group.subscribed_topics is None


def test_a_killed_group_leaves_nobody_waiting() -> None:
    driven = DrivenGroup()
    driven.stable_members(1)
    driven.join("b", needs_known_id=False)
    driven.take(driven.group.kill(ErrorCode.NOT_COORDINATOR))
    assert driven.answers["b"].error is ErrorCode.NOT_COORDINATOR


def _reloaded(driven: DrivenGroup, at_ms: int) -> ClassicGroup:
    group = ClassicGroup("g", NO_DELAY)
    for event in driven.events:
        assert isinstance(event, GroupStored)
        group.apply(event)
    group.resume(at(at_ms))
    return group
