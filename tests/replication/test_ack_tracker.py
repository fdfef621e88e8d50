from hypothesis import given
from hypothesis import strategies as st

from headwater.model.ids import StoreId
from headwater.replication.ack_tracker import AckTracker

A, B, C = StoreId("a"), StoreId("b"), StoreId("c")


def test_the_watermark_waits_for_the_slowest_replica() -> None:
    tracker = AckTracker([A, B, C], 10)
    assert not tracker.acknowledged(A, 15)
    assert not tracker.acknowledged(B, 12)
    assert tracker.acknowledged(C, 14)
    assert tracker.high_watermark == 12
    assert tracker.behind(13) == [B]


def test_an_acknowledgement_that_comes_late_or_twice_changes_nothing() -> None:
    tracker = AckTracker([A], 0)
    assert tracker.acknowledged(A, 5)
    assert not tracker.acknowledged(A, 5)
    assert not tracker.acknowledged(A, 3)
    assert tracker.high_watermark == 5


def test_a_store_that_is_no_member_has_no_say() -> None:
    tracker = AckTracker([A], 0)
    assert not tracker.acknowledged(B, 100)
    assert tracker.high_watermark == 0


def test_a_frozen_watermark_stands_still_and_catches_up_afterwards() -> None:
    tracker = AckTracker([A], 0)
    assert tracker.freeze() == 0
    assert not tracker.acknowledged(A, 9)
    assert tracker.high_watermark == 0
    assert tracker.unfreeze()
    assert tracker.high_watermark == 9


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 100))))
def test_the_watermark_never_goes_back_and_never_passes_a_replica(acks: list[tuple[StoreId, int]]) -> None:
    tracker = AckTracker([A, B, C], 0)
    held = {A: 0, B: 0, C: 0}
    before = 0
    for store, end in acks:
        tracker.acknowledged(store, end)
        held[store] = max(held[store], end)
        assert before <= tracker.high_watermark == min(held.values())
        before = tracker.high_watermark
