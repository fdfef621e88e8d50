"""Where a source begins that has no checkpoint yet: earliest, latest, a time, or an age (15m)."""

from dataclasses import dataclass
from datetime import UTC, datetime

from headwater.pipelines.spec.durations import duration_ms
from headwater.pipelines.spec.keys import NotAccepted

HELP = '"earliest", "latest", a time ("2026-01-31T12:00") or an age ("15m")'


@dataclass(frozen=True, slots=True)
class Start:
    """One of the three is set, or none: that is the end of the topic."""

    is_earliest: bool = False
    time_ms: int | None = None
    """Milliseconds since the epoch."""
    age_ms: int | None = None

    def resolved(self, now_ms: int) -> "Start":
        """An age is one from `now` on: it becomes a time."""
        return self if self.age_ms is None else Start(time_ms=max(0, now_ms - self.age_ms))


EARLIEST = Start(is_earliest=True)
LATEST = Start()


def read_start(value: object) -> Start:
    """A time without a zone is one of this machine's zone. Raises NotAccepted."""
    if isinstance(value, datetime):
        return Start(time_ms=_ms(value))
    if not isinstance(value, str):
        raise NotAccepted(HELP)
    if value in ("earliest", "beginning"):
        return EARLIEST
    if value in ("latest", "end"):
        return LATEST
    if (age_ms := duration_ms(value)) is not None:
        return Start(age_ms=age_ms)
    try:
        return Start(time_ms=_ms(datetime.fromisoformat(value)))
    except (ValueError, OverflowError, OSError):
        raise NotAccepted(HELP) from None


def _ms(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp() * 1000)
