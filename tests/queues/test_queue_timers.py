from headwater.queues.timers import RangeTimers


def test_what_is_due_comes_by_its_time() -> None:
    timers = RangeTimers()
    timers.push(30, 0, 0)
    timers.push(10, 1, 5)
    timers.push(20, 6, 6)
    assert timers.pop_due(20) == [(10, 1, 5), (20, 6, 6)]
    assert timers.pop_due(29) == []


def test_the_next_time_is_that_of_a_timer_that_still_is_true() -> None:
    timers = RangeTimers()
    timers.push(10, 1, 1)
    timers.push(20, 2, 2)
    assert timers.next_ms(lambda timer: timer[1] == 2) == 20
    assert timers.next_ms(lambda timer: False) is None


def test_stale_timers_are_thrown_away() -> None:
    timers = RangeTimers()
    for at_ms in range(10_000):
        timers.push(at_ms, at_ms, at_ms)
        timers.prune(1, lambda: [(7, 7, 7)])
        assert len(timers) < 100
    assert timers.next_ms(lambda timer: True) == 7
