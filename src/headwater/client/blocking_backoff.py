"""`retry.Backoff` for calls that block: it waits itself."""

import time

from headwater.client.retry import FIRST_PAUSE_S, LONGEST_PAUSE_S, Backoff


class BlockingBackoff:
    def __init__(
        self, patience_s: float, *, first_pause_s: float = FIRST_PAUSE_S, longest_pause_s: float = LONGEST_PAUSE_S
    ) -> None:
        self._backoff = Backoff(
            time.monotonic(), patience_s, first_pause_s=first_pause_s, longest_pause_s=longest_pause_s
        )

    def pause(self) -> bool:
        """Wait before the next try. Returns False at once if the patience leaves no time for one."""
        pause_s = self._backoff.next_pause_s(time.monotonic())
        if pause_s is None:
            return False
        time.sleep(pause_s)
        return True
