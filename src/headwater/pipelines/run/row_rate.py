"""How fast rows are read: over the last minute of a run, or over all of it while it is younger."""

from collections import deque
from dataclasses import dataclass, field

WINDOW_S = 60.0
MAX_BATCHES = 4_096
"""That are remembered: more than a query finishes in the window."""
SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True)
class _Batch:
    begun_s: float
    ended_s: float
    rows: int


@dataclass(slots=True)
class RowRate:
    """Times are those of any clock that only goes forward."""

    _begun_s: float | None = None
    _batches: deque[_Batch] = field(default_factory=lambda: deque(maxlen=MAX_BATCHES))

    def add(self, rows: int, ended_s: float, took_s: float) -> None:
        """A batch. Its rows count as evenly spread over the time that it took."""
        begun_s = ended_s - max(took_s, SHORTEST_S)
        self._begun_s = begun_s if self._begun_s is None else min(self._begun_s, begun_s)
        self._batches.append(_Batch(begun_s, ended_s, rows))
        while self._batches and self._batches[0].ended_s < ended_s - WINDOW_S:
            self._batches.popleft()

    def per_s(self, now_s: float) -> float | None:
        """None before the first batch."""
        if self._begun_s is None:
            return None
        since_s = max(self._begun_s, now_s - WINDOW_S)
        rows = 0.0
        for batch in self._batches:
            within_s = batch.ended_s - max(batch.begun_s, since_s)
            rows += batch.rows * max(0.0, within_s) / (batch.ended_s - batch.begun_s)
        return round(rows / max(now_s - since_s, SHORTEST_S), 1)
