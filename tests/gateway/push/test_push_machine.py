"""The machine that pushes: deliveries, outcomes and the time go in, attempts and settlings come out."""

import heapq
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.gateway.push.machine import Answer, Attempt, Outcome, PushMachine, attempts_made
from headwater.gateway.push.window import Window
from headwater.gateway.subscriptions.members.deliveries import Delivery
from headwater.gateway.subscriptions.push_settings import PushSettings

TAKEN = Outcome(Answer.TAKEN)
FAILED = Outcome(Answer.FAILED, "no")


def delivery(offset: int, key: bytes | None = None, partition: int = 0, count: int = 1) -> Delivery:
    return Delivery("t", partition, offset, 0, key, b"v", (), count)


def machine(**options: object) -> PushMachine:
    return PushMachine(PushSettings("http://x.example/", **options), lambda: 1.0)  # type: ignore[arg-type]


def sent(pushing: PushMachine, now_s: float = 0.0) -> list[Attempt]:
    return list(pushing.attempts(now_s))


def offsets(attempts: list[Attempt]) -> list[int]:
    return [each.offset for attempt in attempts for each in attempt.deliveries]


def test_no_more_requests_are_under_way_than_the_window_has_room_for() -> None:
    pushing = machine(concurrency=2)
    pushing.add([delivery(offset) for offset in range(5)])
    first = sent(pushing)
    assert offsets(first) == [0, 1]
    assert sent(pushing) == []
    pushing.finished(first[0], TAKEN, 0.0)
    assert offsets(sent(pushing)) == [2]


def test_a_record_that_failed_rests_twice_as_long_each_time() -> None:
    pushing = machine(backoff_ms=1000, max_backoff_ms=3000)
    pushing.add([delivery(0)])
    now_s, rests = 0.0, []
    for _ in range(4):
        (attempt,) = sent(pushing, now_s)
        pushing.finished(attempt, FAILED, now_s)
        due_s = pushing.due_s()
        assert due_s is not None
        rests.append(due_s - now_s)
        assert sent(pushing, due_s - 0.001) == []
        now_s = due_s
    assert rests == [1.0, 2.0, 3.0, 3.0]


def test_a_record_is_rejected_after_its_last_attempt() -> None:
    pushing = machine(attempts=3, backoff_ms=1)
    record = delivery(0)
    pushing.add([record])
    for number in (1, 2, 3):
        (attempt,) = sent(pushing, number * 10.0)
        settles = pushing.finished(attempt, FAILED, number * 10.0)
        assert settles.rejected == ((record,) if number == 3 else ())
    assert pushing.held == []


def test_deliveries_that_ended_in_a_crash_count_as_attempts() -> None:
    pushing = machine(attempts=3)
    pushing.add([delivery(0, count=3)])
    (attempt,) = sent(pushing)
    assert pushing.finished(attempt, FAILED, 0.0).rejected == attempt.deliveries


def test_a_stream_is_sent_until_it_is_taken() -> None:
    pushing = machine(attempts=None, backoff_ms=1, max_backoff_ms=1)
    pushing.add([delivery(0)])
    for number in range(100):
        (attempt,) = sent(pushing, number * 1.0)
        assert pushing.finished(attempt, FAILED, number * 1.0).rejected == ()


def test_a_receiver_that_says_when_to_come_again_is_left_alone_until_then() -> None:
    pushing = machine(backoff_ms=1)
    pushing.add([delivery(0), delivery(1)])
    first, _ = sent(pushing)
    pushing.finished(first, Outcome(Answer.FAILED, "503", retry_after_s=30.0), 100.0)
    pushing.add([delivery(2)])
    assert sent(pushing, 129.9) == []
    assert pushing.due_s() == 130.0
    assert offsets(sent(pushing, 130.0)) == [0], "one is still under way, and the window is two"


def test_records_of_a_key_wait_for_the_one_before() -> None:
    pushing = machine(order="key", concurrency=10)
    pushing.add([delivery(0, b"a"), delivery(1, b"a"), delivery(2, b"b"), delivery(3, None), delivery(4, None)])
    first = sent(pushing)
    assert sorted(offsets(first)) == [0, 2, 3, 4]
    pushing.finished(first[0], FAILED, 0.0)
    for attempt in first[1:]:
        pushing.finished(attempt, TAKEN, 0.0)
    assert sent(pushing, 0.1) == [], "the second record of the key waits for the first"
    (again,) = sent(pushing, 10.0)
    assert offsets([again]) == [0]
    pushing.finished(again, TAKEN, 10.0)
    assert offsets(sent(pushing, 10.0)) == [1]


def test_what_was_taken_back_is_not_sent() -> None:
    pushing = machine(concurrency=1)
    records = [delivery(0), delivery(1), delivery(2)]
    pushing.add(records)
    (first,) = sent(pushing)
    pushing.drop([records[1]])
    pushing.finished(first, TAKEN, 0.0)
    assert offsets(sent(pushing)) == [2]


def test_a_batch_takes_records_of_several_keys_and_fails_as_one() -> None:
    pushing = machine(order="key", batch_records=3, backoff_ms=1)
    pushing.add([delivery(0, b"a"), delivery(1, b"a"), delivery(2, b"b"), delivery(3, b"c")])
    first = sent(pushing)
    assert [offsets([each]) for each in first] == [[0, 1, 2], [3]]
    pushing.finished(first[0], FAILED, 0.0)
    assert offsets(sent(pushing, 1.0)) == [0, 1, 2]


def test_a_receiver_that_is_gone_rejects_nothing() -> None:
    pushing = machine(attempts=1)
    pushing.add([delivery(0)])
    (attempt,) = sent(pushing)
    settles = pushing.finished(attempt, Outcome(Answer.GONE), 0.0)
    assert settles.rejected == () and settles.accepted == ()
    assert len(pushing.held) == 1


def test_a_failing_receiver_is_given_less_to_hold() -> None:
    pushing = machine(concurrency=64)
    at_first = pushing.room
    pushing.add([delivery(offset) for offset in range(4)])
    for attempt in sent(pushing):
        pushing.finished(attempt, FAILED, 0.0)
    assert pushing.room < at_first


def test_the_window_doubles_at_first_and_halves_once_for_failures_of_one_round() -> None:
    window = Window(64)
    for _ in range(3):
        rounds = [window.began() for _ in range(window.size)]
        for each in rounds:
            window.succeeded(each)
    grown = window.size
    assert grown > 4
    rounds = [window.began() for _ in range(grown)]
    for each in rounds:
        window.failed(each)
    assert window.size == grown // 2


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window = Window(64)
    before = window.size
    for _ in range(100):
        window.succeeded(window.began())
    assert window.size == before


@given(st.lists(st.booleans(), max_size=300), st.integers(1, 32))
def test_the_window_stays_between_one_and_its_limit(outcomes: list[bool], most: int) -> None:
    window = Window(most)
    for is_taken in outcomes:
        token = window.began()
        (window.succeeded if is_taken else window.failed)(token)
        assert 1 <= window.size <= most and window.in_flight == 0


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(["none", "key", "partition"]), st.integers(1, 4), st.integers(1, 5))
def test_every_record_is_settled_once_and_lanes_keep_their_order(
    data: st.DataObject, order: str, batch: int, limit: int
) -> None:
    """A receiver that fails at random, in virtual time: everything ends, once, and no lane is overtaken."""
    pushing = machine(order=order, batch_records=batch, attempts=limit, backoff_ms=10, concurrency=8)
    keys = st.sampled_from([None, b"a", b"b", b"c"])
    waiting = [delivery(offset, data.draw(keys), data.draw(st.integers(0, 1))) for offset in range(30)]
    ends: list[tuple[float, int, Attempt]] = []
    settled: list[Delivery] = []
    lanes: dict[object, list[int]] = defaultdict(list)
    now_s, count = 0.0, 0
    for _ in range(2_000):
        taken, waiting = waiting[: pushing.room], waiting[pushing.room :]
        pushing.add(taken)
        for attempt in pushing.attempts(now_s):
            count += 1
            heapq.heappush(ends, (now_s + data.draw(st.integers(1, 50)) / 1000, count, attempt))
        assert pushing.window.in_flight == len(ends) <= 8
        if ends:
            now_s, _, attempt = heapq.heappop(ends)
            outcome = TAKEN if data.draw(st.booleans()) else FAILED
            settles = pushing.finished(attempt, outcome, now_s)
            for each in (*settles.accepted, *settles.rejected):
                settled.append(each)
                lanes[_lane(order, each)].append(each.offset)
                assert attempts_made(each) <= limit
        elif (due_s := pushing.due_s()) is not None:
            now_s = max(now_s, due_s)
        elif not waiting:
            break
    assert len(settled) == 30 and len(set(map(id, settled))) == 30
    assert pushing.held == []
    if batch == 1:
        assert all(found == sorted(found) for lane, found in lanes.items() if lane is not None)


def _lane(order: str, each: Delivery) -> object:
    if order == "partition":
        return each.partition
    return (each.partition, each.key) if order == "key" and each.key is not None else None
