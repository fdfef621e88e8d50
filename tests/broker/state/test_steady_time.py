"""Time for leases: forward with the wall clock, and on without it."""

from headwater.broker.state.steady_time import SteadyTime


class Clocks:
    """A wall clock and a monotonic one that can part."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000
        self.monotonic_ms = 0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.monotonic_ms / 1000

    def pass_(self, ms: int) -> None:
        self.wall_ms += ms
        self.monotonic_ms += ms


def test_it_is_the_wall_clocks_time() -> None:
    clocks = Clocks()
    time = SteadyTime(clocks)
    for _ in range(10):
        clocks.pass_(7)
        assert time.now_ms() == clocks.wall_ms


def test_a_step_forward_is_followed_at_once() -> None:
    clocks = Clocks()
    time = SteadyTime(clocks)
    clocks.wall_ms += 3_600_000
    assert time.now_ms() == clocks.wall_ms


def test_a_step_back_slows_time_until_the_wall_clock_has_caught_up() -> None:
    clocks = Clocks()
    time = SteadyTime(clocks)
    clocks.pass_(100)
    before_ms = time.now_ms()
    clocks.wall_ms -= 1_000
    readings = []
    for _ in range(2_100):
        clocks.pass_(1)
        readings.append(time.now_ms())
    assert readings == sorted(readings) and readings[0] >= before_ms
    assert readings[999] == before_ms + 500
    assert readings[-1] == clocks.wall_ms
