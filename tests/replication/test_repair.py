"""Copies of sealed segments: who needs one, in which order, and that none is ever the last to go."""

import uuid
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headwater.model.cluster import Reassignment, StoreState, TopicRecord
from headwater.model.ids import StoreId
from headwater.replication.actions import (
    Action,
    AnnounceCopy,
    Copy,
    DropReplicas,
    FinishCopy,
    FinishReassignment,
    GiveUpCopy,
    MoveLeader,
)
from headwater.replication.cluster_view import SealedKey
from headwater.replication.controller import ControllerPlanner, ControllerRules
from headwater.replication.reassignment import ReassignmentProgress, progress
from tests.replication.cluster_world import TOPIC, World, partition, segment_name, store_of, stores

RULES = ControllerRules(dead_store_s=60.0, max_copies=2, copy_bytes_per_s=1 << 20, copy_retry_s=30.0)


def plan(planner: ControllerPlanner, world: World, now: float) -> list[Action]:
    found = planner.plan(world.view(), now)
    assert found == planner.plan(world.view(), now), "the same view at the same moment gives the same actions"
    return [action for action in found if not isinstance(action, MoveLeader)]


def settle(planner: ControllerPlanner, world: World, now: float) -> None:
    """Carry everything out, and every copy succeeds, until nothing is left to do."""
    for _ in range(100):
        actions = plan(planner, world, now)
        if not actions:
            return
        for copy in world.carry_out(actions):
            planner.copies.started(copy, now)
            planner.copies.finished(copy)
        now += RULES.copy_retry_s
    raise AssertionError(f"there is always something to do: {actions}")


def replicas(world: World, key: SealedKey) -> tuple[StoreId, ...]:
    assert world.sealed[key].value.adding == ()
    return world.sealed[key].value.replicas


def test_a_segment_with_all_its_replicas_needs_nothing() -> None:
    world = World.of(1, 2, 3, 4)
    world.seal(1, 1, 2, 3)
    assert plan(ControllerPlanner(RULES), world, 0) == []


def test_a_copy_is_announced_then_made_then_listed() -> None:
    world = World.of(1, 2, 3)
    key = world.seal(1, 1, 2)
    planner = ControllerPlanner(RULES)
    (announce,) = plan(planner, world, 0)
    assert announce == AnnounceCopy(key[0], world.sealed[key].value, world.sealed[key].version, store_of(3))
    world.carry_out([announce])
    assert world.sealed[key].value.adding == stores(3)
    (copy,) = plan(planner, world, 0)
    assert isinstance(copy, Copy)
    assert (copy.version, copy.target, copy.donors) == (world.sealed[key].version, store_of(3), stores(1, 2))
    planner.copies.started(copy, 0)
    assert plan(planner, world, 0) == []
    planner.copies.finished(copy)
    (finish,) = plan(planner, world, 0)
    assert isinstance(finish, FinishCopy)
    world.carry_out([finish])
    assert replicas(world, key) == stores(1, 2, 3)
    assert plan(planner, world, 0) == []


def test_a_copy_made_under_another_version_of_the_key_does_not_count() -> None:
    """In between the target may have been taken off the key and have collected its copy."""
    world = World.of(1, 2, 3)
    key = world.seal(1, 1, 2, adding=(3,))
    planner = ControllerPlanner(RULES)
    (copy,) = plan(planner, world, 0)
    assert isinstance(copy, Copy)
    planner.copies.started(copy, 0)
    world.sealed[key] = world.written(world.sealed[key].value)
    assert plan(planner, world, 0) == [], "not twice at the same time"
    planner.copies.finished(copy)
    (again,) = plan(planner, world, 0)
    assert isinstance(again, Copy)
    assert again.version == world.sealed[key].version


def test_the_fewest_copies_come_first() -> None:
    world = World.of(1, 2, 3, 4)
    for number in range(10):
        world.seal(number, 1, 2)
    single = world.seal(99, 1)
    found = plan(ControllerPlanner(RULES), world, 0)
    assert [action.sealed.id for action in found if isinstance(action, AnnounceCopy)] == [single[1], segment_name(0)]


def test_copies_are_bounded_in_number_and_in_bytes() -> None:
    world = World.of(1, 2, 3)
    for number in range(10):
        world.seal(number, 1, 2, size_bytes=3 << 20)
    planner = ControllerPlanner(RULES)
    (first,) = plan(planner, world, 0)
    (copy,) = world.carry_out([first]) or plan_copies(planner, world, 0)
    planner.copies.started(copy, 0)
    planner.copies.finished(copy)
    world.carry_out(plan(planner, world, 0))
    assert plan(planner, world, 2.0) == [], "three seconds' worth were asked for"
    assert len(plan(planner, world, 2.1)) == 1


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_copies_that_an_operator_slows_down_do_not_hold_back_others(side: str) -> None:
    world, slow = World.of(1, 2, 3), uuid.UUID(int=99)
    world.topics[slow] = TopicRecord(slow, "slow", 1, 3, {f"{side}.replication.throttled.replicas": "0:1"})
    for number in range(100):
        world.seal(number, 1, topic=slow)
    for number in range(100, 105):
        world.seal(number, 1, 2)
    planner = ControllerPlanner(RULES)
    world.carry_out(plan(planner, world, 0))
    copies = plan_copies(planner, world, 0)
    assert [copy.partition.topic_id for copy in copies] == [TOPIC] * RULES.max_copies + [slow] * RULES.max_copies
    for copy in copies:
        planner.copies.started(copy, 0)
    for copy in copies[: RULES.max_copies]:
        planner.copies.finished(copy)
    world.carry_out(plan(planner, world, 10))
    world.carry_out(plan(planner, world, 10))
    assert {copy.partition.topic_id for copy in plan_copies(planner, world, 10)} == {TOPIC}, "the slow ones still run"


def plan_copies(planner: ControllerPlanner, world: World, now: float) -> list[Copy]:
    return [action for action in plan(planner, world, now) if isinstance(action, Copy)]


def test_a_short_absence_is_no_reason_to_copy() -> None:
    world = World.of(1, 2, 3, 4)
    key = world.seal(1, 1, 2, 3)
    planner = ControllerPlanner(RULES)
    world.leave(3)
    assert plan(planner, world, 0) == plan(planner, world, 59) == []
    world.join(3)
    assert plan(planner, world, 60) == []
    world.leave(3)
    assert plan(planner, world, 61) == []
    settle(planner, world, 121)
    assert replicas(world, key) == stores(1, 2, 4)


def test_a_lost_store_is_replaced_at_once() -> None:
    world = World.of(1, 2, 3, 4)
    key = world.seal(1, 1, 2, 3)
    world.mark(3, StoreState.LOST)
    settle(ControllerPlanner(RULES), world, 0)
    assert replicas(world, key) == stores(1, 2, 4)


def test_the_dead_stay_listed_until_somebody_took_their_place() -> None:
    world = World.of(1, 2, 3, 4)
    key = world.seal(1, 1, 2, 3)
    planner = ControllerPlanner(RULES)
    world.leave(2)
    world.leave(3)
    plan(planner, world, 0)
    settle(planner, world, 100)
    assert set(replicas(world, key)) in ({*stores(1, 2, 4)}, {*stores(1, 3, 4)})


def test_without_a_living_copy_nothing_is_done() -> None:
    world = World.of(1, 2, 3, 4)
    key = world.seal(1, 1, 2)
    planner = ControllerPlanner(RULES)
    world.leave(1)
    world.mark(2, StoreState.LOST)
    world.leave(2)
    assert plan(planner, world, 0) == plan(planner, world, 1000) == []
    assert replicas(world, key) == stores(1, 2)


def test_a_drained_store_gives_away_its_replicas_and_is_copied_from() -> None:
    world = World.of(1, 2, 3, replication_factor=1)
    held = [world.seal(number, 1) for number in range(8)]
    world.mark(1, StoreState.DRAINING)
    settle(ControllerPlanner(RULES), world, 0)
    assert {replicas(world, key) for key in held} == {stores(2), stores(3)}


def test_a_drained_store_keeps_what_has_no_other_place() -> None:
    world = World.of(1, 2, replication_factor=2)
    key = world.seal(1, 1, 2)
    world.mark(1, StoreState.DRAINING)
    assert plan(ControllerPlanner(RULES), world, 0) == []
    world.join(3)
    settle(ControllerPlanner(RULES), world, 0)
    assert replicas(world, key) == stores(2, 3)


def test_a_copy_whose_driver_died_is_resumed() -> None:
    world = World.of(1, 2, 3)
    key = world.seal(1, 1, 2, adding=(3,))
    settle(ControllerPlanner(RULES), world, 0)
    assert replicas(world, key) == stores(1, 2, 3)


@pytest.mark.parametrize("state", [StoreState.DRAINING, StoreState.LOST])
def test_a_copy_to_a_store_that_must_not_get_it_is_given_up(state: StoreState) -> None:
    world = World.of(1, 2, 3, 4)
    key = world.seal(1, 1, 2, adding=(3,))
    world.mark(3, state)
    planner = ControllerPlanner(RULES)
    (given_up,) = plan(planner, world, 0)
    assert isinstance(given_up, GiveUpCopy)
    world.carry_out([given_up])
    settle(planner, world, 0)
    assert replicas(world, key) == stores(1, 2, 4)


@pytest.mark.parametrize("state", [StoreState.DRAINING, StoreState.LOST])
def test_a_copy_that_was_done_on_a_store_that_is_no_longer_sound_replaces_nobody(state: StoreState) -> None:
    world = World.of(1, 2, replication_factor=1)
    key = world.seal(1, 1)
    world.mark(1, StoreState.DRAINING)
    planner = ControllerPlanner(RULES)
    world.carry_out(plan(planner, world, 0))
    (copy,) = plan_copies(planner, world, 0)
    planner.copies.started(copy, 0)
    planner.copies.finished(copy)
    world.mark(2, state)
    (given_up,) = plan(planner, world, 0)
    assert isinstance(given_up, GiveUpCopy)
    world.carry_out([given_up])
    assert replicas(world, key) == stores(1)


def test_a_copy_to_a_store_that_nobody_knows_is_given_up() -> None:
    world = World.of(1, 2)
    world.seal(1, 1, adding=(77,))
    (given_up,) = plan(ControllerPlanner(RULES), world, 0)
    assert isinstance(given_up, GiveUpCopy)


def test_a_copy_that_is_no_longer_needed_is_given_up() -> None:
    world = World.of(1, 2, 3, 4)
    key = world.seal(1, 1, 2, 3, adding=(4,))
    (given_up,) = plan(ControllerPlanner(RULES), world, 0)
    world.carry_out([given_up])
    assert replicas(world, key) == stores(1, 2, 3)


def test_a_store_that_failed_is_passed_over_for_a_while() -> None:
    world = World.of(1, 2, 3, 4)
    key = world.seal(1, 1, 2)
    planner = ControllerPlanner(RULES)
    world.carry_out(plan(planner, world, 0))
    (copy,) = plan_copies(planner, world, 0)
    planner.copies.started(copy, 0)
    planner.copies.failed(copy, 0)
    world.carry_out(plan(planner, world, 0))
    assert replicas(world, key) == stores(1, 2)
    (other,) = plan(planner, world, 1)
    assert isinstance(other, AnnounceCopy)
    assert other.target != copy.target
    assert other.target not in world.sealed[key].value.replicas


def test_replicas_that_are_too_many_go_where_they_are_crowded_and_others_bear_witness() -> None:
    world = World.of(replication_factor=2)
    for node, rack in ((1, "x"), (2, "x"), (3, "y")):
        world.join(node, rack)
    key = world.seal(1, 1, 2, 3)
    (drop,) = plan(ControllerPlanner(RULES), world, 0)
    assert isinstance(drop, DropReplicas)
    assert store_of(3) in drop.replicas
    assert drop.witnesses == drop.replicas
    world.carry_out([drop])
    assert len(replicas(world, key)) == 2


def test_segments_of_a_deleted_topic_are_left_alone() -> None:
    world = World.of(1, 2, 3)
    world.seal(1, 1, adding=(2,))
    world.topics.clear()
    assert plan(ControllerPlanner(RULES), world, 0) == []


def test_what_was_not_read_is_not_decided_on() -> None:
    world = World.of(1, 2, 3)
    world.seal(1, 1)
    assert ControllerPlanner(RULES).plan(replace(world.view(), sealed=None), 0) == []


def test_a_reassignment_moves_every_segment_and_is_then_complete() -> None:
    world = World.of(1, 2, 3, 4, 5, 6)
    old = [world.seal(number, 1, 2, 3) for number in range(5)]
    world.lead(0, 4, on=(4, 5, 6))
    world.reassignments[partition()] = world.written(Reassignment((4, 5, 6)))
    view = world.view()
    segments = [item.value for item in world.sealed.values()]
    assert progress(view, partition(), segments) == ReassignmentProgress((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    planner = ControllerPlanner(RULES)
    settle(planner, world, 0)
    assert {frozenset(replicas(world, key)) for key in old} == {frozenset(stores(4, 5, 6))}
    assert world.reassignments[partition()].value.is_complete
    assert progress(world.view(), partition(), []) is None


def test_a_reassignment_waits_for_the_open_segment() -> None:
    world = World.of(1, 2)
    world.lead(0, 2, on=(1, 2))
    world.reassignments[partition()] = world.written(Reassignment((2,)))
    planner = ControllerPlanner(RULES)
    assert plan(planner, world, 0) == []
    assert world.view().leaving_stores(partition()) == frozenset(stores(1))
    world.publish(partition(), on=(2,))
    (done,) = plan(planner, world, 0)
    assert isinstance(done, FinishReassignment)


def test_what_was_placed_by_hand_keeps_as_many_replicas_as_it_was_given() -> None:
    world = World.of(1, 2, 3, replication_factor=3)
    world.seal(1, 1, 2)
    world.reassignments[partition()] = world.written(Reassignment((1, 2), is_complete=True))
    assert plan(ControllerPlanner(RULES), world, 0) == []


NODES = range(1, 7)


@settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_no_sequence_of_events_takes_away_the_last_copy_and_a_healed_cluster_has_all_copies(
    data: st.DataObject,
) -> None:
    """Stores hold what was copied to them until it was taken off the key; those that are marked lost hold nothing."""
    factor = data.draw(st.integers(1, 3), "replication factor")
    world = World.of(*NODES, replication_factor=factor)
    held: dict[SealedKey, set[StoreId]] = {}
    for number in range(4):
        key = world.seal(number, *data.draw(st.permutations(NODES))[: data.draw(st.integers(1, 3))])
        held[key] = set(world.sealed[key].value.replicas)

    def copies(key: SealedKey) -> set[StoreId]:
        return held[key].intersection(world.sealed[key].value.replicas)

    copies_left = [partial(copies, key) for key in held]
    planners = [ControllerPlanner(RULES), ControllerPlanner(RULES)]
    now = 0.0
    running: list[tuple[ControllerPlanner, Copy]] = []
    for _ in range(data.draw(st.integers(1, 25), "steps")):
        now += data.draw(st.sampled_from([0.1, 10, 70]))
        match data.draw(st.sampled_from(["plan", "plan", "copy", "copy", "fail", "die", "join", "mark", "reassign"])):
            case "plan":
                planner = data.draw(st.sampled_from(planners))
                actions = plan(planner, world, now)
                seen = {**{key: item.version for key, item in world.sealed.items()}}
                for action in actions:
                    if not isinstance(action, FinishReassignment | MoveLeader):
                        assert action.version == seen[action.partition, action.sealed.id]
                for copy in world.carry_out(data.draw(st.permutations(actions))):
                    planner.copies.started(copy, now)
                    running.append((planner, copy))
                for key, item in world.sealed.items():
                    held[key] &= {*item.value.replicas, *item.value.adding}
            case "copy" if running:
                planner, copy = running.pop(0)
                key = copy.partition, copy.sealed.id
                if held[key].intersection(copy.donors) and copy.target in world.sealed[key].value.adding:
                    held[key].add(copy.target)
                    planner.copies.finished(copy)
                else:
                    planner.copies.failed(copy, now)
            case "fail" if running:
                planner, copy = running.pop(0)
                planner.copies.failed(copy, now)
            case "die" if len(world.nodes) > 1:
                world.leave(data.draw(st.sampled_from(sorted(world.nodes))))
            case "join":
                world.join(data.draw(st.sampled_from(NODES)))
            case "mark":
                node = data.draw(st.sampled_from(NODES))
                state = data.draw(st.sampled_from(StoreState))
                if world.records[store_of(node)].state is StoreState.LOST:
                    continue  # its word is not taken back: only who finds it with all its data may do that
                if state is StoreState.LOST and any(listed() <= {store_of(node)} for listed in copies_left):
                    continue
                world.mark(node, state)
                if state is StoreState.LOST:
                    for stores_with_it in held.values():
                        stores_with_it.discard(store_of(node))
            case "reassign":
                wanted = data.draw(st.permutations(NODES))[: data.draw(st.integers(1, 3))]
                world.reassignments[partition()] = world.written(Reassignment(tuple(wanted)))
        assert all(listed() for listed in copies_left), "a copy of each segment is left, and listed"
    for planner, copy in running:
        planner.copies.failed(copy, now)
    world.reassignments.clear()
    for node in NODES:
        world.join(node)
        if world.records[store_of(node)].state is StoreState.DRAINING:
            world.mark(node, StoreState.ACTIVE)
    usable = sum(record.state is StoreState.ACTIVE for record in world.records.values())
    settle(planners[0], world, now + RULES.copy_retry_s)
    for item in world.sealed.values():
        assert len(item.value.replicas) == min(factor, usable)
