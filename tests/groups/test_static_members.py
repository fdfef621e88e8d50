"""KIP-345: a static member's place in the group outlives its process."""

from headwater.groups.departures import DepartureReason
from headwater.groups.events import GroupStored
from headwater.groups.rebalance import GroupState
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import DrivenGroup, protocols, refusal


def test_a_static_member_needs_no_id_of_its_own_to_join() -> None:
    driven = DrivenGroup()
    joined = driven.join("a", instance_id="i1")
    assert joined is not None and joined.error is ErrorCode.NONE and joined.member_id == "i1-id1"


def test_a_static_member_that_comes_back_keeps_its_assignment_without_a_rebalance() -> None:
    driven = DrivenGroup()
    _, follower = driven.stable_members(2, instances=["i1", "i2"])
    generation = driven.group.generation
    back = driven.join("back", instance_id="i2")
    assert back is not None and (back.error, back.generation, back.members) == (ErrorCode.NONE, generation, ())
    assert back.member_id != follower and driven.group.state is GroupState.STABLE
    synced = driven.sync("sync", back.member_id, generation, instance_id="i2")
    assert synced is not None and synced.assignment == follower.encode()


def test_the_new_id_of_a_static_member_is_stored_before_it_is_told() -> None:
    driven = DrivenGroup()
    driven.stable_members(1, instances=["i1"])
    driven.events.clear()
    back = driven.join("back", instance_id="i1")
    (stored,) = driven.events
    assert isinstance(stored, GroupStored) and back is not None
    assert [member.member_id for member in stored.members] == [back.member_id]


def test_the_old_id_of_a_replaced_static_member_is_fenced() -> None:
    driven = DrivenGroup()
    _, old = driven.stable_members(2, instances=["i1", "i2"])
    driven.join("back", instance_id="i2")
    generation = driven.group.generation
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert refusal(lambda: driven.heartbeat(old, generation, "i2")) is fenced
    assert refusal(lambda: driven.sync("x", old, generation, instance_id="i2")) is fenced
    assert refusal(lambda: driven.join("x", old, instance_id="i2")) is fenced
    assert refusal(lambda: driven.check_commit(old, "i2", generation, driven.now)) is fenced
    assert [answer.error for answer in driven.leave(old, instance_id="i2")] == [fenced]
    assert refusal(lambda: driven.heartbeat(old, generation)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.reason for each in driven.group.departures] == [DepartureReason.FENCED]


def test_a_static_member_that_forgot_its_id_may_join_again_and_is_not_fenced() -> None:
    """librdkafka sends such a heartbeat after it was cut off for a whole session. Fenced, it would never work again."""
    driven = DrivenGroup()
    driven.stable_members(2, instances=["i1", "i2"])
    generation = driven.group.generation
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(lambda: driven.heartbeat("", generation, "i2")) is unknown
    assert refusal(lambda: driven.sync("x", "", generation, instance_id="i2")) is unknown
    assert refusal(lambda: driven.check_commit("", "i2", generation, driven.now)) is unknown
    back = driven.join("back", instance_id="i2")
    assert back is not None and (back.error, back.generation) == (ErrorCode.NONE, generation)


def test_a_waiting_join_of_the_replaced_id_is_answered_as_fenced() -> None:
    driven = DrivenGroup()
    driven.stable_members(1)
    driven.join("old", instance_id="i2")
    driven.join("new", instance_id="i2")
    assert driven.answers["old"].error is ErrorCode.FENCED_INSTANCE_ID
    assert "new" not in driven.answers


def test_a_static_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    driven = DrivenGroup()
    driven.stable_members(2, instances=["i1", "i2"])
    back = driven.join("back", instance_id="i1")
    assert back is not None and back.skip_assignment and back.leader == back.member_id
    assert len(back.members) == 2


def test_an_old_static_leader_that_comes_back_is_not_told_that_it_leads() -> None:
    driven = DrivenGroup()
    leader, _ = driven.stable_members(2, instances=["i1", "i2"])
    back = driven.join("back", instance_id="i1", can_skip_assignment=False)
    assert back is not None and not back.skip_assignment
    assert (back.leader, back.members) == (leader, ())


def test_a_static_member_that_comes_back_with_other_topics_starts_a_rebalance() -> None:
    driven = DrivenGroup()
    driven.stable_members(2, instances=["i1", "i2"])
    assert driven.join("back", instance_id="i2", protocols=protocols("range", topics=("bills",))) is None
    assert driven.group.state is GroupState.PREPARING


def test_a_static_member_that_changes_the_vote_starts_a_rebalance() -> None:
    driven = DrivenGroup()
    driven.stable_members(1, instances=["i1"])
    back = driven.join("back", instance_id="i1", protocols=protocols("sticky"))
    assert back is not None and (back.protocol, back.generation) == ("sticky", 2)


def test_a_static_member_that_is_away_keeps_its_place_in_a_rebalance() -> None:
    driven = DrivenGroup()
    one, two = driven.stable_members(2, instances=["i1", "i2"], session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    driven.join("a", one, instance_id="i1", rebalance_timeout_ms=5_000)
    driven.pass_ms(5_000)
    assert {member.member_id for member in driven.answers["a"].members} == {one, two}
    generation = driven.group.generation
    driven.sync("sync", one, generation, assignments={one: b"1", two: b"2"}, instance_id="i1")
    back = driven.join("back", instance_id="i2")
    assert back is not None and back.generation == generation
    driven.pass_ms(5_000)
    assert len(driven.group.members) == 2, "who did not join this generation owes it no sync"


def test_a_rebalance_to_which_no_static_member_comes_is_put_off() -> None:
    driven = DrivenGroup()
    one, two = driven.stable_members(2, instances=["i1", "i2"], session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    generation = driven.group.generation
    driven.leave("", instance_id="i2")
    driven.pass_ms(20_000)
    assert driven.group.state is GroupState.PREPARING and driven.group.generation == generation
    joined = driven.join("a", one, instance_id="i1")
    assert joined is not None and joined.generation == generation + 1
    assert two not in driven.group.members


def test_a_leader_that_is_away_hands_over_to_one_that_is_there() -> None:
    driven = DrivenGroup()
    _, two = driven.stable_members(2, instances=["i1", "i2"], session_timeout_ms=60_000, rebalance_timeout_ms=5_000)
    driven.join("b", two, instance_id="i2", protocols=protocols("range", topics=("x",)))
    driven.pass_ms(60_000)
    assert driven.answers["b"].leader == two


def test_an_unknown_instance_is_an_unknown_member() -> None:
    driven = DrivenGroup()
    (only,) = driven.stable_members(1)
    assert refusal(lambda: driven.heartbeat(only, 1, "nobody")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert [answer.error for answer in driven.leave("", instance_id="nobody")] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_static_member_expires_like_any_other() -> None:
    driven = DrivenGroup()
    driven.stable_members(1, instances=["i1"], session_timeout_ms=6_000)
    driven.pass_ms(6_000)
    assert driven.group.state is GroupState.EMPTY
    assert driven.join("again", instance_id="i1") is not None
