"""The checker accepts what one register explains, and refuses what none does."""

import random

import pytest

from headwater.testing.oracles.linearizability import (
    RegisterCall,
    RegisterCompareAndSet,
    RegisterRead,
    RegisterWrite,
    Timed,
    is_linearizable,
    register,
)

History = list[Timed[RegisterCall]]


def check(history: History, initial: int = 0) -> bool:
    return is_linearizable(history, initial, register)


def test_nothing_happened_is_linearizable() -> None:
    assert check([])


def test_a_read_may_see_either_side_of_an_overlapping_write() -> None:
    for seen in (0, 1):
        assert check([Timed(RegisterWrite(1), 0, 10), Timed(RegisterRead(seen), 4, 5)])


def test_a_read_after_a_write_must_see_it() -> None:
    assert not check([Timed(RegisterWrite(1), 0, 1), Timed(RegisterRead(0), 2, 3)])


def test_a_read_must_not_see_a_write_that_has_not_begun() -> None:
    assert not check([Timed(RegisterRead(1), 0, 1), Timed(RegisterWrite(1), 2, 3)])


def test_two_reads_must_not_go_back_in_time() -> None:
    assert not check([Timed(RegisterWrite(1), 0, 10), Timed(RegisterRead(1), 1, 2), Timed(RegisterRead(0), 3, 4)])


def test_two_clients_must_not_both_win_one_compare_and_set() -> None:
    assert not check([Timed(RegisterCompareAndSet(0, 1, True), 0, 9), Timed(RegisterCompareAndSet(0, 2, True), 0, 9)])


def test_a_compare_and_set_must_not_fail_without_a_reason() -> None:
    assert not check([Timed(RegisterCompareAndSet(0, 1, False), 0, 1)])


def test_a_write_without_an_outcome_may_happen_late_or_never() -> None:
    lost_write: Timed[RegisterCall] = Timed(RegisterWrite(1), 0)
    assert check([lost_write, Timed(RegisterRead(0), 5, 6)])
    assert check([lost_write, Timed(RegisterRead(0), 5, 6), Timed(RegisterRead(1), 7, 8)])
    assert not check([lost_write, Timed(RegisterRead(1), 5, 6), Timed(RegisterRead(0), 7, 8)])


def test_a_compare_and_set_without_an_outcome_still_obeys_the_register() -> None:
    lost_call: Timed[RegisterCall] = Timed(RegisterCompareAndSet(7, 8, None), 0)
    assert not check([lost_call, Timed(RegisterRead(8), 5, 6)])


@pytest.mark.parametrize("seed", range(20))
def test_histories_of_a_real_register_pass_and_fail_once_a_read_is_falsified(seed: int) -> None:
    chance = random.Random(seed)
    state, history = 0, History()
    for at in range(60):
        # The call takes effect at `at`; its client sees it start earlier and end later.
        began, ended = at - chance.random() * 3, at + chance.random() * 3
        kind = chance.randrange(3)
        if kind == 0:
            history.append(Timed(RegisterRead(state), began, ended))
        elif kind == 1:
            state = at + 1
            history.append(Timed(RegisterWrite(state), began, ended))
        else:
            expected = chance.choice([state, -1])
            history.append(Timed(RegisterCompareAndSet(expected, at + 1, expected == state), began, ended))
            state = at + 1 if expected == state else state
    assert check(history)
    assert not check([*history, Timed(RegisterRead(-5), 100, 101)])
