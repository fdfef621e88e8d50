"""The leader of a partition: what it sends, what it takes for committed, and when it leaves a replica behind."""

import itertools

import pytest

from headwater.model.ids import SegmentId, StoreId
from headwater.model.segments import OpenSegment
from headwater.replication.effects import Append, Create, Effect, Entry, Publish, Refusal, Rules, StepDown
from headwater.replication.leader import Leader

A, B, C, D = (StoreId(letter * 32) for letter in "abcd")
FIRST = SegmentId("0" * 32)
RULES = Rules(replication_factor=3, min_insync=2)


class Driven:
    """A leader, and a clock that the test moves."""

    def __init__(self, *replicas: StoreId, rules: Rules = RULES, stores: tuple[StoreId, ...] = (A, B, C, D)) -> None:
        self.now = 100.0
        self.stores = list(stores)
        numbers = itertools.count(1)
        self.leader = Leader(
            OpenSegment(FIRST, 0, 1, 0, replicas or (A, B, C)), 0, 0, rules,
            lambda count, avoid, salt: tuple(store for store in self.stores if store not in avoid)[:count],
            lambda: SegmentId(f"{next(numbers):032x}"), self.now,
        )  # fmt: skip

    def append(self, count: int = 1, size: int = 10) -> list[Effect]:
        base = self.leader.log_end
        return self.leader.append(Entry(base, base + count, bytes(size), 5), self.now)

    def ack(self, store: StoreId, end: int) -> list[Effect]:
        return self.leader.acknowledged(store, self.leader.segment.id, end, self.now)

    def refuse(self, store: StoreId, refusal: Refusal = Refusal.UNREACHABLE) -> list[Effect]:
        return self.leader.refused(store, self.leader.segment.id, refusal, self.now)

    def roll(self, effects: list[Effect]) -> Publish:
        """Every store that was asked creates the segment; what is to be published."""
        published: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Create):
                published += self.leader.created(effect.store, effect.segment.id, self.now)
        (publish,) = published
        assert isinstance(publish, Publish)
        return publish

    def tick(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.leader.tick(self.now)


def stores_of(effects: list[Effect]) -> list[StoreId]:
    return [effect.store for effect in effects if isinstance(effect, Append | Create)]


def test_a_batch_goes_to_every_replica_and_is_committed_when_all_have_it() -> None:
    driven = Driven()
    assert stores_of(driven.append()) == [A, B, C]
    driven.ack(A, 1)
    driven.ack(B, 1)
    assert (driven.leader.high_watermark, driven.leader.stored) == (0, 1)
    driven.ack(C, 1)
    assert driven.leader.high_watermark == 1


def test_what_comes_while_an_append_is_under_way_goes_together_in_the_next() -> None:
    driven = Driven()
    driven.append()
    assert driven.append() == [] and driven.append() == []
    (append,) = driven.ack(A, 1)
    assert isinstance(append, Append)
    assert (append.store, append.first, append.end, len(append.batches)) == (A, 1, 3, 2)


def test_an_append_carries_no_more_than_the_window() -> None:
    driven = Driven(rules=Rules(3, 2, window_bytes=25))
    driven.append()
    for _ in range(5):
        driven.append()
    (append,) = driven.ack(A, 1)
    assert isinstance(append, Append) and (append.end, len(append.batches)) == (3, 2)


def test_one_refusal_of_a_fenced_segment_ends_the_lead() -> None:
    driven = Driven()
    driven.append()
    (effect,) = driven.refuse(B, Refusal.FENCED)
    assert isinstance(effect, StepDown)
    assert driven.ack(A, 1) == [] and driven.leader.deadline is None


def test_a_replica_that_fails_is_left_behind_and_what_was_not_committed_is_sent_again() -> None:
    driven = Driven()
    driven.append()
    for store in (A, B, C):
        driven.ack(store, 1)
    driven.append()
    driven.ack(A, 2)
    effects = driven.refuse(C)
    assert stores_of(effects) == [A, B, D]
    publish = driven.roll(effects)
    assert publish.sealed is not None and (publish.sealed.base, publish.sealed.end) == (0, 1)
    assert publish.open.base == 1 and publish.open.replicas == (A, B, D)
    sent = driven.leader.published(publish.open.id, driven.now)
    assert [(effect.store, effect.first, effect.end) for effect in sent if isinstance(effect, Append)] == [
        (A, 1, 2),
        (B, 1, 2),
        (D, 1, 2),
    ]
    for store in (A, B, D):
        driven.ack(store, 2)
    assert driven.leader.high_watermark == 2


def test_nothing_is_committed_to_the_old_segment_once_a_roll_has_begun() -> None:
    driven = Driven()
    driven.append()
    effects = driven.refuse(C)
    driven.leader.acknowledged(A, FIRST, 1, driven.now)
    driven.leader.acknowledged(B, FIRST, 1, driven.now)
    driven.leader.acknowledged(C, FIRST, 1, driven.now)
    assert driven.leader.high_watermark == 0
    assert driven.roll(effects).open.base == 0


def test_a_roll_that_could_not_be_published_leaves_the_old_segment_as_it_was() -> None:
    driven = Driven()
    driven.append()
    publish = driven.roll(driven.refuse(C))
    for store in (A, B, C):
        driven.leader.acknowledged(store, FIRST, 1, driven.now)
    driven.leader.publish_failed(publish.open.id, driven.now)
    assert (driven.leader.segment.id, driven.leader.high_watermark) == (FIRST, 1)


def test_a_silent_replica_is_left_behind_after_its_time() -> None:
    driven = Driven()
    driven.append()
    driven.ack(A, 1)
    driven.ack(B, 1)
    assert driven.leader.deadline == pytest.approx(101.0)
    assert stores_of(driven.tick(0.9)) == []
    assert stores_of(driven.tick(0.2)) == [A, B, D]


def test_a_store_that_does_not_create_is_done_without_if_enough_others_do() -> None:
    driven = Driven()
    driven.append()
    creates = [effect for effect in driven.refuse(C) if isinstance(effect, Create)]
    new = creates[0].segment.id
    assert driven.leader.created(A, new, driven.now) == []
    assert driven.leader.created(B, new, driven.now) == []
    (publish,) = driven.leader.create_failed(D, new, Refusal.NO_SPACE, driven.now)
    assert isinstance(publish, Publish) and publish.open.replicas == (A, B)


def test_with_too_few_stores_nothing_is_taken_until_one_comes_back() -> None:
    driven = Driven(A, B, stores=(A, B))
    driven.append()
    driven.ack(A, 1)
    assert driven.refuse(B) == []
    starving = [driven.leader.is_starving]
    again = driven.tick(RULES.retry_s)
    assert stores_of(again) == [B], "the one that failed is tried again"
    driven.ack(B, 1)
    starving.append(driven.leader.is_starving)
    assert starving == [True, False] and driven.leader.high_watermark == 1


def test_a_store_whose_replica_is_broken_is_chosen_for_the_next_segment_when_there_is_no_other() -> None:
    """Its replica lost its tail in a power cut and refuses whatever it is asked; a new one on it is fine."""
    driven = Driven(A, B, C, stores=(A, B, C))
    driven.append()
    driven.ack(A, 1)
    without_b = [effect for effect in driven.refuse(B, Refusal.BROKEN) if isinstance(effect, Create)]
    assert stores_of(list(without_b)) == [A, C]
    driven.refuse(C, Refusal.BROKEN)
    driven.leader.create_failed(C, without_b[0].segment.id, Refusal.UNREACHABLE, driven.now)
    driven.leader.created(A, without_b[0].segment.id, driven.now)
    assert driven.leader.is_starving
    created: list[Effect] = []
    for _ in range(int(RULES.bad_store_s / RULES.retry_s) + 2):
        effects = driven.tick(RULES.retry_s)
        created = [effect for effect in effects if isinstance(effect, Create)]
        if created:
            break
        for effect in effects:
            if isinstance(effect, Append) and effect.store != A:
                driven.refuse(effect.store, Refusal.BROKEN)
    assert stores_of(created) == [A, B, C]
    publish = driven.roll(created)
    driven.leader.published(publish.open.id, driven.now)
    for store in (A, B, C):
        driven.ack(store, 1)
    assert driven.leader.high_watermark == 1 and not driven.leader.is_starving


def test_stores_that_appear_end_the_wait() -> None:
    driven = Driven(A, B, stores=(A, B))
    driven.append()
    driven.ack(A, 1)
    driven.refuse(B)
    driven.stores.append(C)
    publish = driven.roll(driven.leader.reconsider(driven.now))
    assert publish.open.replicas == (A, C)


def test_a_segment_that_is_short_of_replicas_is_rolled_when_there_are_more_stores() -> None:
    driven = Driven(A, B, stores=(A, B))
    assert driven.leader.reconsider(driven.now) == []
    driven.stores.append(C)
    assert stores_of(driven.leader.reconsider(driven.now)) == [A, B, C]


def test_a_segment_on_a_store_that_is_to_be_emptied_is_rolled() -> None:
    driven = Driven()
    driven.stores.remove(C)
    assert stores_of(driven.leader.reconsider(driven.now, frozenset({C}))) == [A, B, D]


def test_a_roll_for_size_waits_until_all_have_what_they_were_given() -> None:
    driven = Driven()
    driven.append()
    assert driven.leader.ask_roll(driven.now) == []
    driven.append()
    assert driven.ack(A, 1) == [] and driven.ack(B, 1) == []
    publish = driven.roll(driven.ack(C, 1))
    assert publish.sealed is not None and publish.sealed.end == 1
    assert stores_of(driven.leader.published(publish.open.id, driven.now)) == [A, B, C]


def test_replicas_are_told_what_is_committed_when_nothing_more_comes() -> None:
    driven = Driven()
    driven.append()
    for store in (A, B, C):
        driven.ack(store, 1)
    told = driven.tick(RULES.heartbeat_s)
    assert [(effect.store, effect.lac, effect.batches) for effect in told if isinstance(effect, Append)] == [
        (A, 1, ()),
        (B, 1, ()),
        (C, 1, ()),
    ]
    for store in (A, B, C):
        driven.ack(store, 1)
    assert driven.leader.deadline is None


def test_on_a_full_disk_what_no_replica_has_is_dropped_and_its_offsets_are_free() -> None:
    driven = Driven(A, rules=Rules(1, 1), stores=(A,))
    driven.append(3)
    driven.refuse(A, Refusal.NO_SPACE)
    assert [entry.base for entry in driven.leader.drop_unstored()] == [0]
    assert driven.leader.log_end == 0 and not driven.leader.is_starving
    assert stores_of(driven.append()) == [A]


@pytest.mark.parametrize("refusal", [Refusal.UNREACHABLE, Refusal.BROKEN])
def test_what_a_replica_may_have_is_never_dropped(refusal: Refusal) -> None:
    driven = Driven(A, rules=Rules(1, 1), stores=(A,))
    driven.append()
    driven.refuse(A, refusal)
    assert driven.leader.drop_unstored() == [] and driven.leader.log_end == 1


def test_what_another_replica_has_is_not_dropped_for_one_full_disk() -> None:
    driven = Driven(A, B, stores=(A, B))
    driven.append()
    driven.ack(A, 1)
    driven.refuse(B, Refusal.NO_SPACE)
    assert driven.leader.drop_unstored() == []


def test_a_lone_replica_may_be_given_a_batch_directly_unless_something_is_before_it() -> None:
    driven = Driven(A, rules=Rules(1, 1), stores=(A,))
    assert driven.leader.lone_replica == A
    driven.leader.took(Entry(0, 2, bytes(7), 9))
    assert (driven.leader.high_watermark, driven.leader.log_end, driven.leader.total_bytes) == (2, 2, 7)
    driven.append()
    lone: StoreId | None = driven.leader.lone_replica
    assert lone is None
    assert Driven().leader.lone_replica is None


def test_late_answers_of_an_older_segment_change_nothing() -> None:
    driven = Driven()
    driven.append()
    publish = driven.roll(driven.refuse(C))
    driven.leader.published(publish.open.id, driven.now)
    for store in (A, B, C):
        assert driven.leader.acknowledged(store, FIRST, 1, driven.now) == []
        assert driven.leader.refused(store, FIRST, Refusal.FENCED, driven.now) == []
    assert driven.leader.high_watermark == 0


def test_what_a_given_up_append_brought_after_all_is_not_sent_again() -> None:
    driven = Driven(stores=(A, B))
    driven.append()
    driven.ack(A, 1)
    driven.ack(B, 1)
    effects = driven.tick(RULES.replica_timeout_s)
    publish = driven.roll(effects)
    driven.ack(C, 1)
    effects = driven.leader.publish_failed(publish.open.id, driven.now)
    assert (driven.leader.high_watermark, effects) == (1, [])
    effects = driven.append()
    appends = [effect for effect in effects if isinstance(effect, Append)]
    assert [(append.store, append.first, append.end) for append in appends] == [(A, 1, 2), (B, 1, 2), (C, 1, 2)]
    assert [len(append.batches) for append in appends] == [1, 1, 1]


def test_the_late_answer_to_one_append_says_nothing_of_the_next() -> None:
    driven = Driven(A, rules=Rules(1, 1), stores=(A,))
    driven.append()
    driven.refuse(A)
    driven.append()
    driven.tick(RULES.retry_s)
    driven.refuse(A)
    driven.ack(A, 1)
    driven.refuse(A, Refusal.NO_SPACE)
    assert driven.leader.drop_unstored() == [], "the second append may have arrived"


def test_no_time_runs_while_a_create_waits_for_its_turn() -> None:
    driven = Driven()
    driven.append()
    creates = [effect for effect in driven.refuse(C) if isinstance(effect, Create)]
    segment = creates[0].segment.id
    driven.leader.created(A, segment, driven.now)
    driven.leader.create_waits(segment)
    assert driven.leader.deadline is None
    assert driven.tick(10 * RULES.replica_timeout_s) == [] and driven.leader.is_rolling
    assert driven.leader.create_begins(segment, driven.now)
    assert driven.leader.created(B, segment, driven.now) == []
    (publish,) = driven.tick(RULES.replica_timeout_s)
    assert isinstance(publish, Publish) and publish.open.replicas == (A, B)


def test_a_create_whose_roll_is_over_does_not_begin() -> None:
    driven = Driven()
    driven.append()
    effects = driven.refuse(C)
    publish = driven.roll(effects)
    driven.leader.create_waits(publish.open.id)
    assert not driven.leader.create_begins(publish.open.id, driven.now)
    driven.leader.published(publish.open.id, driven.now)
    assert not driven.leader.create_begins(publish.open.id, driven.now)
