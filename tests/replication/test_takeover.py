"""A new leader: whom it asks, what it believes, and in which order it takes the partition over."""

import itertools

from headwater.model.ids import SegmentId, StoreId
from headwater.model.replica import ReplicaState
from headwater.model.segments import Head, OpenSegment
from headwater.replication.effects import Effect, Fence, Plant, Publish, Refusal, Replay, Rules, StepDown
from headwater.replication.takeover import Takeover, next_epoch

A, B, C, D = (StoreId(letter * 32) for letter in "abcd")
OLD = OpenSegment(SegmentId("0" * 32), 10, 4, 10, (A, B, C))
RULES = Rules(replication_factor=3, min_insync=2)
NOW = 50.0


def state(end: int, lac: int = 10, *, in_doubt: bool = False) -> ReplicaState:
    return ReplicaState(
        segment=OLD.id,
        partition="p",
        base=10,
        end=end,
        epoch=4,
        lac=lac,
        size_bytes=(end - 10) * 100,
        max_timestamp=7,
        is_fenced=True,
        in_doubt=in_doubt,
        is_sealed=False,
        instance=1,
        header=b"",
    )


def takeover(head: Head = Head(2, 5, 3, OLD), stores: tuple[StoreId, ...] = (A, B, C, D)) -> Takeover:
    numbers = itertools.count(1)
    return Takeover(
        head, RULES,
        lambda count, avoid, salt: tuple(store for store in stores if store not in avoid)[:count],
        lambda: SegmentId(f"{next(numbers):032x}"),
    )  # fmt: skip


def kinds(effects: list[Effect]) -> list[type[Effect]]:
    return [type(effect) for effect in effects]


def planting(machine: Takeover) -> list[Plant]:
    """As far as the tail is being planted, with A at 15 and 12 committed."""
    machine.start(NOW)
    effects = machine.fenced(A, state(15, 12), NOW)
    effects += machine.fenced(B, state(15, 11), NOW) + machine.fenced(C, state(13, 11), NOW)
    assert effects == [Replay(A, OLD, 12, 15)]
    return [effect for effect in machine.replayed(NOW) if isinstance(effect, Plant)]


def test_the_order_is_fence_replay_plant_publish() -> None:
    machine = takeover()
    assert machine.start(NOW) == [Fence(A, OLD.id), Fence(B, OLD.id), Fence(C, OLD.id)]
    machine = takeover()
    plants = planting(machine)
    assert [(plant.store, plant.committed, plant.end) for plant in plants] == [(A, 12, 15), (B, 12, 15), (C, 12, 15)]
    new = plants[0].segment
    assert machine.planted(A, new.id, NOW) == [] and machine.planted(B, new.id, NOW) == []
    (publish,) = machine.planted(C, new.id, NOW)
    assert isinstance(publish, Publish)
    assert publish.sealed is not None and (publish.sealed.base, publish.sealed.end) == (10, 12)
    assert (publish.open.base, publish.open.epoch, publish.open.epoch_start) == (12, 5, 15)
    machine.published(publish.open.id, NOW)
    assert machine.result is not None and machine.result.end == 15


def test_one_sound_answer_is_enough_after_a_short_wait_for_more() -> None:
    machine = takeover()
    machine.start(NOW)
    assert machine.fenced(B, state(14), NOW) == []
    assert machine.deadline == NOW + RULES.grace_s
    assert machine.tick(NOW + RULES.grace_s) == [Replay(B, OLD, 10, 14)]


def test_doubtful_answers_are_believed_only_when_all_have_answered() -> None:
    machine = takeover()
    machine.start(NOW)
    machine.fenced(A, state(12, in_doubt=True), NOW)
    machine.fenced(B, state(14, in_doubt=True), NOW)
    machine.fence_failed(C, NOW)
    assert machine.tick(NOW + RULES.grace_s) == []
    assert machine.tick(NOW + RULES.retry_s) == [Fence(C, OLD.id)]
    assert machine.fenced(C, state(11, in_doubt=True), NOW + 1) == [Replay(B, OLD, 10, 14)]


def test_a_store_that_was_given_up_is_not_waited_for() -> None:
    machine = Takeover(
        Head(2, 5, 3, OLD),
        RULES,
        lambda count, avoid, salt: (A, B),
        lambda: SegmentId("1" * 32),
        lambda store: store == C,
    )
    machine.start(NOW)
    machine.fenced(A, state(12, in_doubt=True), NOW)
    assert machine.fenced(B, state(14, in_doubt=True), NOW) == [Replay(B, OLD, 10, 14)]


def test_a_partition_that_was_never_led_begins_with_an_empty_segment() -> None:
    machine = takeover(Head(2, 0, 0, None))
    plants = machine.start(NOW)
    assert kinds(plants) == [Plant, Plant, Plant]
    assert isinstance(plants[0], Plant)
    new = plants[0].segment
    assert (new.base, new.epoch) == (0, 0)
    for store in (A, B):
        machine.planted(store, new.id, NOW)
    (publish,) = machine.planted(C, new.id, NOW)
    assert isinstance(publish, Publish) and publish.sealed is None


def test_whoever_led_in_this_epoch_before_begins_the_next() -> None:
    assert next_epoch(Head(1, 4, 0, OLD)) == 5, "a leader that starts again"
    assert next_epoch(Head(1, 5, 0, OLD)) == 5, "one that the controller named"
    assert next_epoch(Head(1, 0, 0, None)) == 0


def test_nothing_of_an_old_segment_without_committed_records_is_sealed() -> None:
    machine = takeover()
    machine.start(NOW)
    machine.fenced(A, state(10), NOW)
    machine.fenced(B, state(10), NOW)
    machine.fenced(C, state(10), NOW)
    plants = [effect for effect in machine.replayed(NOW) if isinstance(effect, Plant)]
    for store in (A, B, C):
        effects = machine.planted(store, plants[0].segment.id, NOW)
    (publish,) = effects
    assert isinstance(publish, Publish) and publish.sealed is None and publish.open.base == 10


def test_stores_that_fail_to_take_the_tail_are_left_out_if_enough_others_have_it() -> None:
    machine = takeover()
    plants = planting(machine)
    new = plants[0].segment.id
    machine.planted(A, new, NOW)
    machine.plant_failed(B, new, Refusal.UNREACHABLE, NOW)
    (publish,) = machine.planted(C, new, NOW)
    assert isinstance(publish, Publish) and publish.open.replicas == (A, C)


def test_with_too_few_stores_it_waits_and_tries_others() -> None:
    machine = takeover()
    plants = planting(machine)
    new = plants[0].segment.id
    machine.planted(A, new, NOW)
    machine.plant_failed(B, new, Refusal.NO_SPACE, NOW)
    assert machine.plant_failed(C, new, Refusal.UNREACHABLE, NOW) == []
    again = machine.tick(NOW + RULES.retry_s)
    assert [effect.store for effect in again if isinstance(effect, Plant)] == [A, D]


def test_a_head_that_somebody_else_changed_ends_it() -> None:
    machine = takeover()
    (effect,) = machine.publish_lost(NOW)
    assert isinstance(effect, StepDown) and machine.is_over and machine.result is None


def test_metadata_that_is_away_is_asked_again() -> None:
    machine = takeover()
    plants = planting(machine)
    new = plants[0].segment.id
    machine.planted(A, new, NOW)
    machine.planted(B, new, NOW)
    (publish,) = machine.planted(C, new, NOW)
    assert isinstance(publish, Publish)
    machine.publish_failed(publish.open.id, NOW)
    assert machine.tick(NOW + RULES.retry_s) == [publish]
