"""A clock that moves only when a test says so."""


class ManualClock:
    """Implements `headwater.model.clock.Clock`. Wall clock and monotonic clock advance together; only the wall clock
    can be stepped, as on a real machine."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_s: float = 1_000.0) -> None:
        self._wall_s = now_ms / 1000
        self._monotonic_s = monotonic_s

    def now_ms(self) -> int:
        return round(self._wall_s * 1000)

    def monotonic(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "a monotonic clock never runs backwards"
        self._wall_s += seconds
        self._monotonic_s += seconds

    def step_wall_clock(self, seconds: float) -> None:
        """What an administrator or NTP does: the wall clock jumps, in either direction."""
        self._wall_s += seconds
