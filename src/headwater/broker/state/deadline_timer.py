"""One task that sleeps until the earliest of many deadlines."""

import asyncio
from collections.abc import Callable

LONGEST_SLEEP_MS = 3_600_000
SHORTEST_SLEEP_MS = 1
"""However close the next deadline is, waiting for it is never a busy loop."""


class DeadlineTimer:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the time in which deadlines are counted."""
        self._now_ms = now_ms
        self._armed_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_time = asyncio.Event()

    def arm(self, at_ms: int) -> None:
        """There is a deadline at that time: be awake by then."""
        if at_ms < self._armed_ms:
            self._set(at_ms)

    async def run(self, tick: Callable[[], int | None]) -> None:
        """Until cancelled. `tick` does everything whose time has come, and says when the next time is."""
        try:
            while True:
                self._is_time.clear()
                next_ms = tick()
                self._set(self._now_ms() + LONGEST_SLEEP_MS if next_ms is None else next_ms)
                await self._is_time.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _set(self, at_ms: int) -> None:
        self._armed_ms = at_ms
        if self._timer is not None:
            self._timer.cancel()
        sleep_ms = min(max(at_ms - self._now_ms(), SHORTEST_SLEEP_MS), LONGEST_SLEEP_MS)
        self._timer = asyncio.get_running_loop().call_later(sleep_ms / 1000, self._is_time.set)
