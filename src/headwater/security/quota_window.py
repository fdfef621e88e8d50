"""What is used per second, and how long a client waits that is over its limit: Kafka's windows and buckets.

A rate is a sum over samples of one second: ten whole ones and the present one. It is divided by the time since the
oldest of them began, and what is missing to ten whole samples counts as time without usage: a client that begins may
use ten seconds' worth at once. With O the rate, T the limit and W that time, the client waits

    X = (O - T) / T * W          after which O would be T, if nothing were used

A bucket is filled with T tokens per second up to its burst. A client that has taken more than there were waits until
the bucket is at nothing again.

`now_ms` is monotonic time and must not run backwards. The limit is passed in with each call, and may change between
two: it holds from then on.
"""

import math
from collections import deque
from typing import Final

SAMPLE_MS: Final = 1_000
SAMPLES: Final = 11
WINDOW_MS: Final = SAMPLES * SAMPLE_MS
WHOLE_SAMPLES: Final = SAMPLES - 1
WHOLE_WINDOW_S: Final = WHOLE_SAMPLES * SAMPLE_MS / 1_000
LONGEST_WAIT_MS: Final = 2**31 - 1
"""What a response has room for."""


class SampledRate:
    __slots__ = ("_before", "_before_sum", "_last_ms", "_start_ms", "_sum")

    def __init__(self) -> None:
        self._before: deque[tuple[int, int, float]] = deque()
        """Complete samples: when each began, when something was last recorded in it, and the sum."""
        self._before_sum = 0.0
        self._start_ms: int | None = None
        self._last_ms = 0
        self._sum = 0.0

    def record(self, value: float, now_ms: int) -> None:
        """A negative value takes back what was recorded."""
        if self._start_ms is None or now_ms - self._start_ms >= SAMPLE_MS:
            self._begin(self._start_ms, now_ms)
        self._sum += value
        self._last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        window_ms = self._window_ms(now_ms)
        return (self._before_sum + self._sum) * 1_000 / window_ms

    def wait_ms(self, limit: float, now_ms: int) -> float:
        """Until the rate would be the limit; 0 if it is not above."""
        window_ms = self._window_ms(now_ms)
        rate = (self._before_sum + self._sum) * 1_000 / window_ms
        return (rate - limit) / limit * window_ms if rate > limit else 0.0

    def room(self, limit: float, now_ms: int) -> float:
        """How much more could be used now without a wait; negative if nothing."""
        return limit * self._window_ms(now_ms) / 1_000 - self._before_sum - self._sum

    def safe_room(self, limit: float, now_ms: int) -> tuple[float, int]:
        """What can be used until a moment, whenever and in as many pieces as it comes, and the rate is not above the
        limit. All of it falls into one sample: it may be recorded together."""
        self._window_ms(now_ms)
        if self._start_ms is None or now_ms - self._start_ms >= SAMPLE_MS:
            return 0.0, now_ms
        return limit * WHOLE_WINDOW_S - self._before_sum - self._sum, self._start_ms + SAMPLE_MS

    def _window_ms(self, now_ms: int) -> int:
        """Over what time the rate is, once what is too old has been forgotten."""
        if self._start_ms is None:
            return WHOLE_SAMPLES * SAMPLE_MS
        self._forget(now_ms)
        elapsed_ms = now_ms - (self._before[0][0] if self._before else self._start_ms)
        return elapsed_ms + max(WHOLE_SAMPLES - elapsed_ms // SAMPLE_MS, 0) * SAMPLE_MS

    def _begin(self, start_ms: int | None, now_ms: int) -> None:
        """Begin a sample, behind the one that began at `start_ms`."""
        if start_ms is not None:
            self._before.append((start_ms, self._last_ms, self._sum))
            self._before_sum += self._sum
        self._start_ms = self._last_ms = now_ms
        self._sum = 0.0
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        before = self._before
        if before and now_ms - before[0][1] >= WINDOW_MS:
            while before and now_ms - before[0][1] >= WINDOW_MS:
                before.popleft()
            self._before_sum = sum(each[2] for each in before)
        if now_ms - self._last_ms >= WINDOW_MS:
            self._start_ms = self._last_ms = now_ms
            self._sum = 0.0


class TokenBucket:
    """Full when it is made."""

    __slots__ = ("burst_s", "filled_ms", "level")

    def __init__(self, burst_s: float) -> None:
        self.burst_s: Final = burst_s
        self.level = math.inf
        """The tokens when they were last looked at; not above the burst of the limit of that time, once they were."""
        self.filled_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """Below zero what has to be made up for."""
        self.level = min(limit * self.burst_s, self.level + limit * (now_ms - self.filled_ms) / 1_000)
        self.filled_ms = now_ms
        return self.level

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """A negative count gives tokens back."""
        self.level = min(self.tokens(limit, now_ms) - count, limit * self.burst_s)

    def wait_ms(self, limit: float, now_ms: int) -> float:
        """Until nothing has to be made up for."""
        return max(-self.tokens(limit, now_ms), 0.0) / limit * 1_000


def whole_wait_ms(wait_ms: float, most_ms: int = LONGEST_WAIT_MS) -> int:
    """A wait as a response tells it."""
    return int(min(wait_ms + 0.5, most_ms))
