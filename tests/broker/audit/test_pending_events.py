"""Events that wait to be written: counted together, bounded, and none lost without being counted."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.audit.audit_event import AuditEvent, AuditKind, AuditRecord, AuditVerdict
from headwater.broker.audit.pending_events import MAX_OF_SOURCE, WINDOW_MS, PendingEvents
from headwater.model.moment import Moment
from tests.support.effort import amount

ALL = 1_000_000
REFUSED = AuditEvent(
    kind=AuditKind.AUTHORIZATION, verdict=AuditVerdict.REFUSED, address="10.0.0.7", principal="User:a", name="orders"
)
MANAGED = AuditEvent(kind=AuditKind.MANAGEMENT, verdict=AuditVerdict.DONE, principal="User:admin", operation="delete")
FAILED = AuditEvent(kind=AuditKind.AUTHENTICATION, verdict=AuditVerdict.FAILED, address="10.0.0.7")


def at(ms: int) -> Moment:
    return Moment(wall_ms=1_000_000 + ms, monotonic_ms=ms)


def counts(records: list[AuditRecord]) -> list[int]:
    return [record.count for record in records]


def test_the_first_is_due_at_once_and_equal_ones_together_when_the_minute_ends() -> None:
    pending = PendingEvents(1)
    pending.offer(REFUSED, at(0))
    (first,) = pending.take(at(1), ALL)
    assert (first.event, first.count, first.time_ms, first.node) == (REFUSED, 1, 1_000_000, 1)
    for ms in (10, 20, 30):
        pending.offer(REFUSED, at(ms))
    assert pending.take(at(WINDOW_MS - 1), ALL) == [] and pending.next_due_ms() == WINDOW_MS
    (others,) = pending.take(at(WINDOW_MS), ALL)
    assert (others.count, others.time_ms, others.until_ms) == (3, 1_000_010, 1_000_030)


def test_a_flood_of_one_event_is_one_record_a_minute() -> None:
    pending = PendingEvents(1)
    records = []
    for second in range(600):
        for _ in range(100):
            pending.offer(REFUSED, at(second * 1000))
        records += pending.take(at(second * 1000), ALL)
    assert len(records) == 10 and sum(counts(records)) > 50_000


def test_a_minute_without_it_ends_the_counting() -> None:
    pending = PendingEvents(1)
    pending.offer(REFUSED, at(0))
    assert counts(pending.take(at(0), ALL)) == [1]
    assert pending.take(at(WINDOW_MS), ALL) == [] and len(pending) == 0 and pending.next_due_ms() is None
    pending.offer(REFUSED, at(WINDOW_MS + 1))
    assert counts(pending.take(at(WINDOW_MS + 1), ALL)) == [1]


def test_one_source_is_told_apart_in_a_hundred_refusals_and_hides_no_other() -> None:
    pending = PendingEvents(1)
    for n in range(100_000):
        pending.offer(replace(REFUSED, name=f"t{n}"), at(0))
    pending.offer(replace(REFUSED, principal="User:b"), at(0))
    pending.offer(replace(REFUSED, address="10.0.0.8"), at(0))
    records = pending.take(at(0), ALL)
    (others,) = (record for record in records if record.event.is_others)
    assert others.count == 100_000 - MAX_OF_SOURCE and others.event.name == "" and others.event.principal == "User:a"
    assert len(records) == MAX_OF_SOURCE + 3 and pending.dropped_total == 0


def test_names_that_logins_fail_with_make_no_sources() -> None:
    pending = PendingEvents(1)
    for n in range(10_000):
        pending.offer(replace(FAILED, principal=f"User:u{n}"), at(0))
    assert len(pending) == MAX_OF_SOURCE + 1


def test_a_source_is_told_apart_again_when_its_minute_is_over() -> None:
    pending = PendingEvents(1)
    for n in range(MAX_OF_SOURCE):
        pending.offer(replace(REFUSED, name=f"t{n}"), at(0))
    pending.take(at(0), ALL)
    pending.take(at(WINDOW_MS), ALL)
    pending.offer(replace(REFUSED, name="another"), at(WINDOW_MS))
    assert [record.event.name for record in pending.take(at(WINDOW_MS), ALL)] == ["another"]


def test_refusals_of_many_addresses_leave_room_for_what_administrators_do() -> None:
    pending = PendingEvents(1, max_events=100, reserved=10)
    for n in range(1_000):
        pending.offer(replace(REFUSED, address=f"10.0.{n // 250}.{n % 250}"), at(0))
    assert len(pending) == 90 and pending.dropped_total == 910
    for n in range(20):
        pending.offer(replace(MANAGED, name=f"t{n}"), at(0))
    assert len(pending) == 100 and pending.dropped_total == 920
    records = pending.take(at(0), ALL)
    assert [record.count for record in records if record.event.kind is AuditKind.OVERFLOW] == [920]
    assert sum(record.event.kind is AuditKind.MANAGEMENT for record in records) == 10


def test_what_is_told_of_an_overflow_is_told_once_a_minute() -> None:
    pending = PendingEvents(1, max_events=1, reserved=0)
    told = []
    for second in range(121):
        pending.offer(MANAGED, at(second * 1000))
        pending.offer(replace(MANAGED, name=str(second)), at(second * 1000))
        told += [each.count for each in pending.take(at(second * 1000), ALL) if each.event.kind is AuditKind.OVERFLOW]
    assert len(told) == 3 and sum(told) == 121


def test_a_stop_takes_what_is_counted_before_its_minute_is_over() -> None:
    pending = PendingEvents(1)
    for _ in range(3):
        pending.offer(REFUSED, at(0))
        pending.take(at(0), ALL)
    assert counts(pending.take(at(1), ALL, is_last=True)) == [2] and len(pending) == 0


STEPS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3), st.booleans(), st.integers(0, 40_000), st.integers(0, 4)),
    max_size=120,
)


@settings(max_examples=amount(2_000, 200))
@given(STEPS)
def test_every_event_is_taken_pending_or_counted_as_dropped(steps: list[tuple[int, int, bool, int, int]]) -> None:
    pending = PendingEvents(1, max_events=12, reserved=4)
    offered = taken = overflow = now_ms = 0
    for name, address, is_refusal, passed_ms, most in steps:
        now_ms += passed_ms
        event = replace(REFUSED if is_refusal else MANAGED, name=str(name), address=str(address))
        pending.offer(event, at(now_ms))
        offered += 1
        records = pending.take(at(now_ms), most)
        assert len(records) <= most and len(pending) <= 12
        overflow += sum(each.count for each in records if each.event.kind is AuditKind.OVERFLOW)
        taken += sum(each.count for each in records if each.event.kind is not AuditKind.OVERFLOW)
    while records := pending.take(at(now_ms), 3, is_last=True):
        overflow += sum(each.count for each in records if each.event.kind is AuditKind.OVERFLOW)
        taken += sum(each.count for each in records if each.event.kind is not AuditKind.OVERFLOW)
    assert taken == offered - pending.dropped_total and overflow == pending.dropped_total
    assert len(pending) == 0 and not pending._sources and pending._denials == 0
