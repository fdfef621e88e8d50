"""How long a request is retried, and the pauses between the attempts."""

import time

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class RetryBackoff:
    """Pauses between attempts: each twice as long as the one before, up to a second, until the timeout."""

    def __init__(self, timeout_ms: int) -> None:
        self._deadline_s = time.monotonic() + timeout_ms / 1000
        self._pause_s = FIRST_PAUSE_S

    def pause(self) -> bool:
        """Wait before the next attempt. Returns False at once if the timeout leaves no time for one."""
        if time.monotonic() + self._pause_s > self._deadline_s:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True
