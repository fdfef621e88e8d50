"""One reading of both clocks, passed into every decision.

Deadlines are kept in monotonic time, so that a step of the wall clock expires nothing; what is logged and shown
carries wall-clock time.
"""

from dataclasses import dataclass

from headwater.model.clock import Clock


@dataclass(frozen=True, slots=True)
class Moment:
    wall_ms: int
    monotonic_ms: int


def moment(clock: Clock) -> Moment:
    """Read both clocks. Only the shell around a state machine does; the machine is passed the moment."""
    return Moment(clock.now_ms(), int(clock.monotonic() * 1000))
