"""A coordinator that has just begun knows members from its log, and some of them never come back."""

from typing import Any

from headwater.groups.classic import ClassicGroup
from headwater.groups.departures import DepartureReason
from headwater.groups.events import GroupStored
from headwater.groups.rebalance import GroupState
from headwater.groups.unheard import MIN_WAIT_MS, RETURN_MS
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import NO_DELAY, DrivenGroup

SESSION_MS = 45_000
LONGEST_MS = SESSION_MS // 3


def began_anew(count: int, session_timeout_ms: int = SESSION_MS, **changes: object) -> tuple[DrivenGroup, list[str]]:
    """A group of so many members, after its coordinator was killed and has read its log."""
    before = DrivenGroup()
    members = before.stable_members(count, session_timeout_ms=session_timeout_ms, **changes)
    after = DrivenGroup()
    after._ids = before._ids  # ids are drawn at random, and never twice
    after.group = ClassicGroup("g", NO_DELAY)
    for event in before.events:
        assert isinstance(event, GroupStored)
        after.group.apply(event)
    after.group.resume(after.now)
    return after, members


def newcomers(driven: DrivenGroup, count: int, **changes: Any) -> list[object]:
    """New members that join, and wait."""
    tokens = [object() for _ in range(count)]
    for token in tokens:
        driven.join(token, needs_known_id=False, session_timeout_ms=SESSION_MS, **changes)
    return tokens


def test_members_that_come_back_under_other_ids_do_not_wait_for_their_former_selves() -> None:
    driven, former = began_anew(12)
    tokens = newcomers(driven, 12)
    states = [driven.group.state]
    driven.pass_ms(RETURN_MS)
    states.append(driven.group.state)
    assert states == [GroupState.PREPARING, GroupState.COMPLETING]
    assert {driven.answers[token].generation for token in tokens} == {driven.group.generation}
    assert len(driven.group.members) == 12 and not any(each in driven.group.members for each in former)
    assert {each.reason for each in driven.group.departures} == {DepartureReason.NOT_BACK}


def test_who_is_heard_of_meanwhile_stays() -> None:
    driven, (first, second) = began_anew(2)
    newcomers(driven, 2)
    driven.pass_ms(RETURN_MS - 1)
    generation = driven.group.generation
    assert driven.heartbeat(first, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    driven.pass_ms(1)
    assert first in driven.group.members and second not in driven.group.members
    joined = driven.join("again", first, session_timeout_ms=SESSION_MS)
    assert joined is not None and joined.generation == generation + 1


def test_a_newcomer_from_elsewhere_is_not_taken_for_somebody_who_came_back() -> None:
    driven, (only,) = began_anew(1)
    newcomers(driven, 1, client_host="/10.0.0.7")
    driven.pass_ms(LONGEST_MS - 1)
    assert only in driven.group.members, "it has as long as clients take to send a heartbeat"
    driven.pass_ms(1)
    assert driven.group.state is GroupState.COMPLETING and only not in driven.group.members


def test_nobody_is_hurried_while_nobody_waits() -> None:
    driven, (first, second) = began_anew(2)
    driven.pass_ms(SESSION_MS - 1)
    assert driven.heartbeat(first, driven.group.generation) is ErrorCode.NONE
    driven.pass_ms(1)
    assert first in driven.group.members and second not in driven.group.members


def test_a_short_session_is_not_made_longer() -> None:
    driven, (only,) = began_anew(1, session_timeout_ms=6_000)
    assert MIN_WAIT_MS > 6_000
    newcomers(driven, 1, client_host="/10.0.0.7")
    driven.pass_ms(6_000)
    assert only not in driven.group.members


def test_static_members_keep_their_places() -> None:
    driven, (only,) = began_anew(1, instances=["i"])
    newcomers(driven, 1)
    driven.pass_ms(SESSION_MS - 1)
    assert only in driven.group.members


def test_one_newcomer_stands_for_one_who_is_gone() -> None:
    driven, former = began_anew(3)
    newcomers(driven, 1)
    driven.pass_ms(RETURN_MS)
    assert sum(each in driven.group.members for each in former) == 2
