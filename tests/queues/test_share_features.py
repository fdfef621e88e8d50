"""Delay, time to live, filter and key order of a share partition."""

from functools import partial

from headwater.queues.events import DeadLetterReason
from headwater.queues.log_read import CandidateBatch, DeliveryTerms, LogRead
from headwater.queues.outcomes import AcknowledgedBatch, DeadLetter
from headwater.queues.settings import QueueSettings, RedeliveryBackoff, ShareOrder
from headwater.queues.share_partition import SharePartition
from tests.queues.driven_partition import ACCEPT, RELEASE, START_MS, DrivenPartition


def keyed(keys: str) -> list[DeliveryTerms]:
    """A record for each letter; a dot has no key."""
    return [DeliveryTerms(offset, None if key == "." else key.encode()) for offset, key in enumerate(keys)]


def by_key(keys: str, **settings: object) -> DrivenPartition:
    return DrivenPartition(len(keys), keyed(keys), order=ShareOrder.KEY, **settings)


def test_a_delayed_record_holds_nobody_up_and_takes_no_lock() -> None:
    terms = [DeliveryTerms(each, deliver_at_ms=START_MS + 500 if each < 5 else None) for each in range(10)]
    driven = DrivenPartition(10, terms, max_record_locks=5)
    assert driven.fetch("ann", 10) == [(5, 9, 1)]
    assert driven.queue.waiting_count == 5
    driven.ack("ann", 5, 9, ACCEPT)
    assert driven.queue.start_offset == 0
    assert driven.queue.next_deadline_ms() == START_MS + 500
    driven.wait(500)
    assert driven.fetch("ann", 10) == [(0, 4, 1)]
    driven.ack("ann", 0, 4, ACCEPT)
    assert driven.queue.start_offset == 10
    assert driven.facts_read == 1, "what is known of a record that waits is not read again"


def test_delayed_records_are_found_again_after_a_restart() -> None:
    terms = [DeliveryTerms(each, deliver_at_ms=START_MS + 500 if each < 5 else None) for each in range(10)]
    driven = DrivenPartition(10, terms)
    driven.fetch("ann", 10)
    driven.ack("ann", 5, 9, ACCEPT)
    driven.restart()
    assert driven.fetch("ann", 10) == []
    driven.wait(500)
    assert driven.fetch("ann", 10) == [(0, 4, 1)]


def test_reading_stops_when_too_many_records_wait() -> None:
    terms = [DeliveryTerms(each, deliver_at_ms=START_MS + each) for each in range(1, 31)]
    driven = DrivenPartition(31, terms, max_waiting_records=8)
    assert driven.fetch("ann", 100) == []
    assert driven.queue.waiting_count == 8
    assert driven.queue.next_fetch_offset(driven.now_ms) is None
    taken = 0
    for _ in range(31):
        driven.wait(1)
        while ranges := driven.fetch("ann", 100):
            for first, last, _ in ranges:
                driven.ack("ann", first, last, ACCEPT)
                taken += last - first + 1
        driven.fetch("ann", 100)
        assert driven.queue.waiting_count <= 8
    assert taken == 30
    assert driven.queue.start_offset == 31


def test_ten_thousand_delayed_records_are_each_ready_when_they_are_due() -> None:
    count = 10_000
    dues = [START_MS + 1_000 + offset * 7_919 % 5_000 for offset in range(count)]
    queue = SharePartition(QueueSettings())
    for first in range(0, count, 500):
        terms = [DeliveryTerms(offset, deliver_at_ms=dues[offset]) for offset in range(first, first + 500)]
        batch = CandidateBatch(first, first + 499, partial(list, terms))
        assert queue.acquire("ann", LogRead(first, first + 500, [batch]), 500, START_MS).ranges == ()
    assert queue.waiting_count == count
    delivered: list[int] = []
    while (deadline_ms := queue.next_deadline_ms()) is not None:
        queue.expire(deadline_ms)
        while queue.has_ready:
            ready = queue.next_fetch_offset(deadline_ms)
            assert ready is not None
            read = LogRead(ready, ready + 1, [CandidateBatch(ready, ready)])
            queue.acquire("ann", read, 1, deadline_ms)
            assert dues[ready] == deadline_ms
            assert queue.acknowledge("ann", [AcknowledgedBatch(ready, ready, [ACCEPT])], deadline_ms).error == 0
            delivered.append(ready)
    assert sorted(delivered) == list(range(count))
    assert queue.start_offset == count


def test_an_expired_record_is_not_delivered_and_becomes_a_dead_letter() -> None:
    terms = [DeliveryTerms(0, expires_at_ms=START_MS), DeliveryTerms(1, expires_at_ms=START_MS + 1), DeliveryTerms(2)]
    driven = DrivenPartition(3, terms, dead_letter_topic="dead")
    assert driven.fetch("ann") == [(1, 2, 1)]
    assert driven.dead_letters == [DeadLetter(0, 0, DeadLetterReason.EXPIRED, 0)]
    driven.take(driven.queue.dead_letters_written([(0, 0)]))
    assert driven.queue.start_offset == 1


def test_a_record_that_expires_while_it_is_held_can_still_be_accepted_but_not_come_again() -> None:
    terms = [DeliveryTerms(each, expires_at_ms=START_MS + 10) for each in range(2)]
    driven = DrivenPartition(2, terms)
    driven.fetch("ann")
    driven.wait(10)
    assert driven.queue.acquired_count == 2
    driven.ack("ann", 0, 1, ACCEPT, RELEASE)
    assert driven.queue.start_offset == 2


def test_a_record_that_expires_while_it_waits_is_dropped_by_the_timer() -> None:
    driven = DrivenPartition(1, [DeliveryTerms(0, deliver_at_ms=START_MS + 100, expires_at_ms=START_MS + 50)])
    assert driven.fetch("ann") == []
    assert driven.queue.next_deadline_ms() == START_MS + 50
    driven.wait(50)
    assert driven.queue.start_offset == 1


def test_what_a_filter_leaves_out_is_passed_over_in_one_event() -> None:
    driven = DrivenPartition(10, [DeliveryTerms(each, matches=each in (3, 7)) for each in range(10)])
    before = len(driven.events)
    assert driven.fetch("ann") == [(3, 3, 1), (7, 7, 1)]
    assert len(driven.events) == before + 1
    assert driven.queue.start_offset == 3
    driven.ack("ann", 3, 3, ACCEPT)
    driven.ack("ann", 7, 7, ACCEPT)
    assert driven.queue.start_offset == 10


def test_records_of_one_key_go_to_one_member_at_a_time() -> None:
    driven = by_key("abab.b")
    assert driven.fetch("ann", 1) == [(0, 0, 1)]
    assert driven.fetch("bob", 10) == [(1, 1, 1), (3, 5, 1)]
    assert driven.fetch("cid", 10) == []
    driven.ack("ann", 0, 0, ACCEPT)
    assert driven.fetch("cid", 10) == [(2, 2, 1)]


def test_who_holds_a_key_may_have_more_of_it() -> None:
    driven = by_key("aaa")
    assert driven.fetch("ann", 1) == [(0, 0, 1)]
    assert driven.fetch("bob", 10) == []
    driven.ack("ann", 0, 0, ACCEPT)
    assert driven.fetch("bob", 10) == [(1, 2, 1)]


def test_a_resting_record_holds_its_own_key_up_and_no_other() -> None:
    driven = by_key("aba", backoff=RedeliveryBackoff(100, 100))
    driven.fetch("ann", 1)
    driven.ack("ann", 0, 0, RELEASE)
    assert driven.fetch("bob", 10) == [(1, 1, 1)]
    driven.wait(100)
    assert driven.fetch("bob", 10) == [(0, 0, 2), (2, 2, 1)]


def test_failed_records_of_a_key_come_again_in_order() -> None:
    driven = by_key("aaa")
    driven.fetch("ann", 3)
    driven.ack("ann", 2, 2, RELEASE)
    driven.ack("ann", 0, 0, RELEASE)
    assert driven.fetch("bob", 3) == [], "ann still holds one of the key"
    driven.ack("ann", 1, 1, RELEASE)
    assert driven.fetch("bob", 3) == [(0, 2, 2)]


def test_order_holds_across_a_restart() -> None:
    driven = by_key("aab", backoff=RedeliveryBackoff(100, 100))
    driven.fetch("ann", 1)
    driven.ack("ann", 0, 0, RELEASE)
    driven.restart()
    assert driven.fetch("bob", 10) == [(2, 2, 1)]
    driven.wait(100)
    assert driven.fetch("bob", 10) == [(0, 0, 2), (1, 1, 1)]


def test_a_delayed_record_takes_its_place_in_its_key_when_it_is_due() -> None:
    terms = [DeliveryTerms(0, b"a", deliver_at_ms=START_MS + 50), DeliveryTerms(1, b"a"), DeliveryTerms(2, b"a")]
    driven = DrivenPartition(3, terms, order=ShareOrder.KEY)
    assert driven.fetch("ann", 1) == [(1, 1, 1)]
    driven.wait(50)
    assert driven.fetch("bob", 10) == []
    driven.ack("ann", 1, 1, ACCEPT)
    assert driven.fetch("bob", 10) == [(0, 0, 1), (2, 2, 1)]


def test_long_keys_are_told_apart_without_being_kept() -> None:
    terms = [DeliveryTerms(0, b"x" * 100_000), DeliveryTerms(1, b"x" * 100_001), DeliveryTerms(2, b"x" * 100_000)]
    driven = DrivenPartition(3, terms, order=ShareOrder.KEY)
    assert driven.fetch("ann", 1) == [(0, 0, 1)]
    assert driven.fetch("bob", 10) == [(1, 1, 1)]
    assert max(len(known.key or b"") for known in driven.queue._state._known.values()) <= 64


def test_nothing_is_remembered_of_settled_records() -> None:
    terms = [DeliveryTerms(each, b"%d" % (each % 3), expires_at_ms=START_MS + 10**6) for each in range(100)]
    driven = DrivenPartition(100, terms, order=ShareOrder.KEY)
    for first, last, _ in driven.fetch("ann", 100):
        driven.ack("ann", first, last, ACCEPT)
    state = driven.queue._state
    assert driven.queue.start_offset == 100
    assert not state._known
    assert state.key_order is not None and len(state.key_order) == 0
    assert driven.queue.next_deadline_ms() is None
