"""What a redrive was asked for, and what it did."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RedriveOptions:
    topic: str
    to: str | None = None
    expression: str | None = None
    rate_per_s: int | None = None
    limit: int | None = None
    is_dry_run: bool = False


@dataclass(slots=True)
class Tally:
    targets: Counter[str] = field(default_factory=Counter)
    filtered: int = 0
    sent_before: int = 0
    gone: int = 0
    """Letters without a copy of their record, which is no longer there."""
    looked_at: int = 0
    total: int = 0
    may_repeat: bool = False
    """Not everything that a run before had sent could be looked at: single records may have been sent twice."""

    @property
    def redriven(self) -> int:
        return self.targets.total()
