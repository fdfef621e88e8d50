"""Who leads: failover, slow recoveries, balance, draining, and being asked."""

import uuid
from collections import Counter
from dataclasses import replace

from headwater.model.cluster import NO_LEADER, Reassignment, Role, StoreState, TopicRecord
from headwater.model.ids import PartitionId
from headwater.model.segments import Head
from headwater.replication.actions import MoveLeader
from headwater.replication.controller import ControllerPlanner, ControllerRules
from tests.replication.cluster_world import World, leaders, partition, stores

RULES = ControllerRules()


def moves(planner: ControllerPlanner, world: World, now: float) -> list[MoveLeader]:
    found = planner.plan(world.view(), now)
    assert found == planner.plan(world.view(), now), "the same view at the same moment gives the same actions"
    return [action for action in found if isinstance(action, MoveLeader)]


def where(found: list[MoveLeader]) -> dict[PartitionId, int]:
    return {move.partition: move.to_node for move in found}


def test_a_dead_leader_is_followed_by_a_broker_that_has_the_open_segment() -> None:
    world = World.of(1, 2, 3)
    world.lead(0, 1, on=(1, 3))
    world.leave(1)
    (move,) = moves(ControllerPlanner(RULES), world, 0)
    assert (move.to_node, move.version, move.new_head.epoch) == (3, world.heads[partition()].version, 2)
    assert move.new_head.open == move.head.open


def test_a_suspected_leader_is_followed_at_once_and_gets_nothing_itself() -> None:
    world = World.of(1, 2, 3)
    for index in range(6):
        world.lead(index, 1 + index % 3, on=(1, 2, 3))
    world.suspected = frozenset({1})
    found = moves(ControllerPlanner(RULES), world, 0)
    assert {move.partition.index for move in found} == {0, 3}
    assert {move.to_node for move in found} == {2, 3}


def test_a_partition_without_a_leader_gets_one() -> None:
    world = World.of(1, 2)
    world.heads[partition()] = world.written(Head(NO_LEADER, 0, 0, None))
    assert len(moves(ControllerPlanner(RULES), world, 0)) == 1


def test_a_broker_in_doubt_about_its_replica_comes_after_one_that_is_not() -> None:
    world = World.of(1, 2, 3)
    world.lead(0, 1, on=(1, 2, 3))
    world.lead(1, 3, on=(3,))
    world.leave(1)
    doubtful = world.nodes[2]
    world.nodes[2] = replace(doubtful, stores=(replace(doubtful.stores[0], in_doubt=True),))
    assert where(moves(ControllerPlanner(RULES), world, 0)) == {partition(0): 3}


def test_a_node_that_is_no_broker_never_leads() -> None:
    world = World.of(1, 2)
    world.join(3, roles=(Role.STORE, Role.CONTROLLER))
    world.lead(0, 1, on=(1, 3))
    world.leave(1)
    assert where(moves(ControllerPlanner(RULES), world, 0)) == {partition(0): 2}


def test_the_partitions_of_a_dead_leader_are_shared_by_the_others() -> None:
    world = World.of(1, 2, 3, 4)
    for index in range(40):
        world.lead(index, 1 + index % 4, on=(1, 2, 3, 4))
    world.leave(1)
    world.carry_out(moves(ControllerPlanner(RULES), world, 0))
    assert sorted(Counter(leaders(world.heads)).values()) == [13, 13, 14]


def test_nobody_left_to_lead_is_no_reason_to_act() -> None:
    world = World.of(1)
    world.lead(0, 1)
    world.leave(1)
    assert moves(ControllerPlanner(RULES), world, 0) == []


def test_a_deleted_topic_gets_no_leaders() -> None:
    world = World.of(1, 2)
    world.lead(0, 1)
    world.leave(1)
    world.topics.clear()
    assert moves(ControllerPlanner(RULES), world, 0) == []


def test_a_recovery_that_takes_too_long_goes_to_another_and_each_gets_more_time() -> None:
    world = World.of(1, 2, 3, 4)
    world.lead(0, 1, on=(1, 2, 3, 4))
    world.leave(1)
    planner = ControllerPlanner(RULES)
    now, turns, waits = 0.0, [], []
    for _ in range(7):
        begun = now
        while not (found := moves(planner, world, now)):
            now += 0.5
        waits.append(now - begun)
        turns.append(found[0].to_node)
        world.carry_out(found)
    assert waits == [0, 5, 10, 20, 40, 40, 40]
    assert all(set(turns[at : at + 3]) == {2, 3, 4} for at in range(5)), "everybody gets a turn before anybody's second"


def test_a_published_recovery_ends_the_back_off() -> None:
    world = World.of(1, 2, 3)
    world.lead(0, 1, on=(1, 2, 3))
    planner = ControllerPlanner(RULES)
    world.leave(1)
    world.carry_out(moves(planner, world, 0))
    assert moves(planner, world, 1) == []
    world.carry_out(moves(planner, world, 6))
    world.publish(partition(), on=(2, 3))
    assert moves(planner, world, 7) == []
    world.leave(world.heads[partition()].value.leader)
    world.join(1)
    world.carry_out(moves(planner, world, 8))
    assert moves(planner, world, 8) == moves(planner, world, 12.9) == []
    assert len(moves(planner, world, 13)) == 1


def test_a_leader_that_waits_for_the_only_replica_keeps_its_turn() -> None:
    world = World.of(1, 2, 3)
    world.lead(0, 1, on=(1,))
    world.leave(1)
    planner = ControllerPlanner(RULES)
    world.carry_out(moves(planner, world, 0))
    assert all(moves(planner, world, now) == [] for now in range(1, 100, 7))


def test_leaders_are_evened_out_when_all_is_quiet_a_few_at_a_time() -> None:
    world = World.of(1, 2)
    for index in range(60):
        world.lead(index, 1 + index % 2, on=(1, 2, 3))
    planner = ControllerPlanner(RULES)
    assert moves(planner, world, 0) == []
    world.join(3)
    now = 10.0
    while now < 10.0 + RULES.calm_s:
        assert moves(planner, world, now) == [], "a broker that has just come may be gone again"
        now += 5
    rounds = 0
    while (now := now + 5) < 200:
        found = moves(planner, world, now)
        assert len(found) <= RULES.even_moves
        rounds += bool(found)
        world.carry_out(found)
        assert moves(planner, world, now + 1) == [], "not before those that moved have settled"
        for move in found:
            world.publish(move.partition, on=(1, 2, 3))
    assert Counter(leaders(world.heads)) == {1: 20, 2: 20, 3: 20}
    assert rounds == 4


def test_each_trouble_begins_the_calm_before_leaders_are_evened_out_anew() -> None:
    world = World.of(1, 2, 3)
    for index in range(30):
        world.lead(index, 1, on=(1, 2, 3))
    planner = ControllerPlanner(RULES)
    now = 0.0
    assert moves(planner, world, now) == []
    for _ in range(5):  # a node is killed and comes back, again and again
        now += RULES.calm_s / 2
        world.leave(3)
        assert moves(planner, world, now) == []
        now += RULES.calm_s / 2
        world.join(3)
        assert moves(planner, world, now) == []
    assert moves(planner, world, now + RULES.calm_s - 1) == []
    world.lead(7, NO_LEADER, on=(1, 2))
    (found,) = moves(planner, world, now := now + RULES.calm_s - 0.5)
    world.carry_out([found])
    world.publish(found.partition, on=(1, 2, 3))
    assert moves(planner, world, now + RULES.stable_s + 1) == [], "a leader was missed"
    assert len(moves(planner, world, now + RULES.calm_s)) == RULES.even_moves


def test_coordinators_move_last() -> None:
    world = World.of(1, 2)
    offsets = uuid.UUID(int=2)
    world.topics[offsets] = TopicRecord(offsets, "__consumer_offsets", 16, 2)
    for index in range(16):
        world.lead(index, 1, on=(1,), topic=offsets)  # no data at the receiver, as of all others
    for index in range(4):
        world.lead(index, 1)
    planner = ControllerPlanner(RULES)
    assert moves(planner, world, 0) == []
    now, order = RULES.calm_s, list[bool]()
    while found := moves(planner, world, now):
        order += [move.partition.topic_id == offsets for move in found]
        world.carry_out(found)
        for move in found:
            world.publish(move.partition)
        now += 1
    assert order == [False] * 4 + [True] * 6


def test_brokers_that_differ_by_one_are_even() -> None:
    world = World.of(1, 2, 3)
    for index in range(7):
        world.lead(index, 1 + index % 3)
    planner = ControllerPlanner(RULES)
    assert moves(planner, world, 0) == moves(planner, world, 100) == []


def test_leaders_stay_where_they_are_if_nobody_wants_them_evened_out() -> None:
    world = World.of(1, 2, 3)
    for index in range(9):
        world.lead(index, 1, on=(1, 2, 3))
    planner = ControllerPlanner(replace(RULES, evens_out_leaders=False))
    assert moves(planner, world, 0) == moves(planner, world, 100) == []
    world.mark(1, StoreState.DRAINING)
    assert [move.reason for move in moves(planner, world, 200)] == ["node is emptied"]


def test_nothing_is_balanced_while_a_leader_is_missing() -> None:
    world = World.of(1, 2, 3)
    for index in range(20):
        world.lead(index, 1, on=(1, 2))
    world.lead(20, 3, on=(2, 3))
    planner = ControllerPlanner(RULES)
    moves(planner, world, 0)
    world.suspected = frozenset({3})
    assert [move.reason for move in moves(planner, world, 100)] == ["leader gone"]


def test_leaders_move_off_a_node_whose_store_is_drained_and_never_back() -> None:
    world = World.of(1, 2, 3)
    for index in range(9):
        world.lead(index, 1 + index % 3, on=(1, 2, 3))
    world.mark(1, StoreState.DRAINING)
    planner = ControllerPlanner(RULES)
    for now in range(0, 100, 5):
        found = moves(planner, world, now)
        assert len(found) <= 1
        world.carry_out(found)
        for move in found:
            world.publish(move.partition, on=(2, 3))
    assert sorted(Counter(leaders(world.heads)).items()) in ([(2, 4), (3, 5)], [(2, 5), (3, 4)])


def test_a_node_that_is_about_to_stop_gives_up_all_it_leads_at_once() -> None:
    world = World.of(1, 2, 3)
    for index in range(30):
        world.lead(index, 1 + index % 3, on=(1, 2, 3))
    world.join(1, is_leaving=True)
    found = moves(ControllerPlanner(RULES), world, 0)
    assert len(found) == 10
    assert {move.to_node for move in found} == {2, 3}


def test_a_reassigned_partition_is_led_by_the_first_node_it_was_given() -> None:
    world = World.of(1, 2, 3)
    world.lead(0, 1, on=(1, 2))
    world.lead(1, 3, on=(1, 2))
    world.reassignments[partition()] = world.written(Reassignment((3, 2)))
    planner = ControllerPlanner(RULES)
    moves(planner, world, 0)
    assert where(moves(planner, world, 5)) == {partition(0): 3}


def test_a_leader_that_will_do_is_not_replaced_on_request() -> None:
    world = World.of(1, 2)
    world.lead(0, 1, on=(1, 2))
    planner = ControllerPlanner(RULES)
    assert planner.elect(world.view(), [partition(0), partition(77)], 0) == []
    for index in (1, 2):
        world.lead(index, 1, on=(1, 2))
    (move,) = planner.elect(world.view(), [partition(0)], 0)
    assert move.to_node == 2


def test_a_request_does_not_wait_for_quiet() -> None:
    world = World.of(1, 2)
    world.lead(0, 1, on=(1, 2))
    world.join(1, is_leaving=True)
    (move,) = ControllerPlanner(RULES).elect(world.view(), [partition(0)], 0)
    assert (move.to_node, move.head.open.replicas if move.head.open else ()) == (2, stores(1, 2))


def test_ten_thousand_partitions_find_new_leaders_in_bounded_steps() -> None:
    world = World.of(1, 2, 3)
    for index in range(10_000):
        world.lead(index, 1 + index % 3, on=(1, 2, 3))
    world.leave(1)
    planner = ControllerPlanner(RULES)
    steps = 0
    while found := planner.plan(world.view(), 0.0):
        assert len(found) <= RULES.max_moves
        world.carry_out(found)
        steps += 1
    assert steps == 4
    assert Counter(leaders(world.heads)) == {2: 5000, 3: 5000}


def taken_over(count: int) -> World:
    """Node 1 has these partitions in a new epoch, and has recovered none yet."""
    world = World.of(1, 2, 3)
    for index in range(count):
        world.lead(index, 1, on=(1, 2, 3))
        world.heads[partition(index)] = world.written(replace(world.heads[partition(index)].value, epoch=2))
    return world


def overdue(planner: ControllerPlanner, world: World, now: float) -> list[int]:
    return [move.partition.index for move in moves(planner, world, now) if move.reason == "recovery overdue"]


def test_a_leader_that_gets_others_going_is_given_time_and_not_for_ever() -> None:
    world, planner, now = taken_over(40), ControllerPlanner(RULES), 0.0
    assert overdue(planner, world, now) == []
    for index in range(39):
        now += RULES.recovery_s - 1
        world.publish(partition(index), on=(1, 2, 3))
        if found := overdue(planner, world, now):
            break
    assert RULES.max_recovery_s <= now < 2 * RULES.max_recovery_s
    assert 39 in found


def test_a_leader_that_has_stopped_getting_others_going_is_overdue() -> None:
    world, planner = taken_over(3), ControllerPlanner(RULES)
    assert overdue(planner, world, 0) == []
    world.publish(partition(0), on=(1, 2, 3))
    assert overdue(planner, world, RULES.recovery_s) == []
    assert overdue(planner, world, 2 * RULES.recovery_s - 0.1) == []
    assert overdue(planner, world, 2 * RULES.recovery_s) == [1, 2]


def test_whoever_asks_for_all_gets_them_spread_and_not_moved_to_one() -> None:
    world = World.of(1, 2, 3)
    for index in range(9):
        world.lead(index, 1 + index % 2, on=(1, 2, 3))
    found = ControllerPlanner(RULES).elect(world.view(), [partition(index) for index in range(9)], 0)
    world.carry_out(found)
    assert Counter(leaders(world.heads)) == {1: 3, 2: 3, 3: 3}
