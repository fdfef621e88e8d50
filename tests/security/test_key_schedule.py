from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.security.key_schedule import MIN_INTERVAL_S, REFRESH_S, KeySchedule
from headwater.security.key_set import KeySet
from tests.support.effort import amount

KEYS, OTHERS = KeySet({}, None), KeySet({}, None)
START_S = 1_000.0


def fetched(at_s: float = START_S) -> KeySchedule:
    schedule = KeySchedule()
    schedule.begun(at_s)
    schedule.fetched(KEYS, at_s)
    return schedule


def test_keys_are_fetched_at_the_start_and_once_an_hour() -> None:
    assert KeySchedule().wait_s(START_S) == 0
    assert KeySchedule().keys is None
    schedule = fetched()
    assert [schedule.wait_s(START_S + later) for later in (0, 10, REFRESH_S, 2 * REFRESH_S)] == [
        REFRESH_S, REFRESH_S - 10, 0, 0,
    ]  # fmt: skip
    assert (schedule.keys, schedule.fetched_at_s) == (KEYS, START_S)


def test_the_first_fetch_is_tried_again_soon_and_then_less_often() -> None:
    schedule, waits = KeySchedule(), []
    for _ in range(20):
        schedule.begun(START_S)
        schedule.failed()
        waits.append(schedule.wait_s(START_S))
    assert waits == [1, 2, 4, 8, 16, 32] + [MIN_INTERVAL_S] * 14
    assert schedule.failures == 20
    schedule.fetched(KEYS, START_S)
    assert schedule.wait_s(START_S) == REFRESH_S
    schedule.failed()
    assert schedule.wait_s(START_S) == MIN_INTERVAL_S, "there are keys to go on with"


def test_keys_are_kept_while_fetches_fail() -> None:
    schedule = fetched()
    for _ in range(100):
        schedule.begun(START_S)
        schedule.failed()
    assert (schedule.keys, schedule.fetched_at_s) == (KEYS, START_S)
    schedule.fetched(OTHERS, START_S + 1)
    assert schedule.keys is OTHERS


@pytest.mark.parametrize("fails", [False, True])
def test_an_unknown_key_is_looked_for_once_a_minute(fails: bool) -> None:
    assert KeySchedule().may_look(START_S)
    schedule = fetched()
    if fails:
        schedule.failed()
    assert not schedule.may_look(START_S)
    assert not schedule.may_look(START_S + MIN_INTERVAL_S - 0.001)
    assert schedule.may_look(START_S + MIN_INTERVAL_S)


@settings(max_examples=amount(1_000, 50))
@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=60))
def test_however_many_tokens_come_fetches_for_them_are_a_minute_apart(asked: list[tuple[float, bool]]) -> None:
    schedule, now_s, began_s = fetched(), START_S, [START_S]
    for later_s, fails in asked:
        now_s += later_s
        if schedule.may_look(now_s):
            began_s.append(now_s)
            schedule.begun(now_s)
            if fails:
                schedule.failed()
            else:
                schedule.fetched(OTHERS, now_s)
    assert all(after - before >= MIN_INTERVAL_S for before, after in pairwise(began_s))
