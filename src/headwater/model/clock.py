"""Time is passed in: every reader of a clock takes one of these, so that a simulator can run the system."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch. May step; never used for safety."""

    def monotonic(self) -> float:
        """Seconds that only grow."""
