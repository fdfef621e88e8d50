"""The time of day for leases and delays: it never runs backwards, and never stands still.

A wall clock that is set back must neither revive a lease nor let all of them last as long as the step was. So this time
goes on from where it was, at half its speed, until the wall clock has caught up. A step forward is followed at once.
"""

from headwater.model.clock import Clock


class SteadyTime:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now_ms = float(clock.now_ms())
        self._read_s = clock.monotonic()

    def now_ms(self) -> int:
        wall_ms, read_s = self._clock.now_ms(), self._clock.monotonic()
        elapsed_ms = (read_s - self._read_s) * 1000
        self._read_s = read_s
        self._now_ms = max(float(wall_ms), self._now_ms + elapsed_ms / 2)
        return int(self._now_ms)
