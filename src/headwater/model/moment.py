"""One reading of both clocks, passed into every decision.

Deadlines are kept in monotonic time, so that a step of the wall clock expires nobody; what is logged and shown
carries wall-clock time.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    wall_ms: int
    monotonic_ms: int
