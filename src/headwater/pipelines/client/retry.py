"""How long to go on trying, and how long to wait between two tries."""

import time

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Patience:
    """Pauses grow up to a second, until the time is over."""

    def __init__(self, timeout_ms: int) -> None:
        self._deadline_s = time.monotonic() + timeout_ms / 1000
        self._pause_s = FIRST_PAUSE_S

    def pause(self) -> bool:
        """Wait before the next try. False, and at once, if there is no time for one."""
        if time.monotonic() + self._pause_s > self._deadline_s:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True
