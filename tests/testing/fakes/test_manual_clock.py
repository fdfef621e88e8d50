"""A clock that moves only when told."""

import pytest

from headwater.testing.fakes.clock import ManualClock


def test_time_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_s=10.0)
    assert (clock.now_ms(), clock.monotonic()) == (5_000, 10.0)
    clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (6_500, 11.5)


def test_the_wall_clock_may_step_back_and_the_other_one_not() -> None:
    clock = ManualClock(now_ms=5_000, monotonic_s=10.0)
    clock.step_wall_clock(-2)
    assert (clock.now_ms(), clock.monotonic()) == (3_000, 10.0)
    with pytest.raises(AssertionError, match="never runs backwards"):
        clock.advance(-1)


def test_many_small_steps_lose_nothing() -> None:
    clock = ManualClock(now_ms=0)
    for _ in range(10_000):
        clock.advance(0.001)
    assert clock.now_ms() == 10_000
