"""One reading of both clocks, passed into every decision.

Deadlines are kept in monotonic time, so that a step of the wall clock expires nobody; what is logged and shown
carries wall-clock time.
"""

from dataclasses import dataclass

from headwater.model.clock import Clock


@dataclass(frozen=True, slots=True)
class Moment:
    wall_ms: int
    monotonic_ms: int


def moment(clock: Clock) -> Moment:
    """For whoever runs a state machine: the state machine itself is given the reading."""
    return Moment(clock.now_ms(), int(clock.monotonic() * 1000))
