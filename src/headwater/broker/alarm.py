"""One task that sleeps until the earliest of many deadlines."""

import asyncio
import contextlib
from collections.abc import Callable

LONGEST_SLEEP_S = 3600.0
SHORTEST_SLEEP_S = 0.001
"""However close the next deadline is, waiting for it is never a busy loop."""


class Alarm:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the time in which deadlines are counted."""
        self._now_ms = now_ms
        self._armed_ms = 0
        self._sooner = asyncio.Event()

    def arm(self, at_ms: int) -> None:
        """There is a deadline at that time: be awake by then."""
        if at_ms < self._armed_ms:
            self._sooner.set()

    async def run(self, tick: Callable[[], int | None]) -> None:
        """Until cancelled. `tick` does everything whose time has come, and says when the next time is."""
        while True:
            self._sooner.clear()
            next_ms = tick()
            now_ms = self._now_ms()
            self._armed_ms = now_ms + int(LONGEST_SLEEP_S * 1000) if next_ms is None else next_ms
            sleep_s = min(max((self._armed_ms - now_ms) / 1000, SHORTEST_SLEEP_S), LONGEST_SLEEP_S)
            with contextlib.suppress(TimeoutError):
                # Not wait_for: before Python 3.12 it may swallow the cancellation that ends this task.
                async with asyncio.timeout(sleep_s):
                    await self._sooner.wait()
