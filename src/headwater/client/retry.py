"""When a request is tried again, and how long before that. The connections wait; this only says how long.

A request is tried again after a lost connection, and after error codes that a little time cures
(`ErrorCode.is_retriable`). A caller that knows better names codes beyond those, or codes that are final for it.
"""

from collections.abc import Container
from typing import Final

from headwater.client.errors import BrokerRefused, ClientError, ConnectionLost
from headwater.model.errors import ErrorCode

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5


class Backoff:
    """Pauses between tries: each twice as long as the one before, up to a limit, until the time is up."""

    def __init__(
        self,
        now_s: float,
        patience_s: float,
        *,
        first_pause_s: float = FIRST_PAUSE_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self._deadline_s = now_s + patience_s
        self._pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s

    def next_pause_s(self, now_s: float) -> float | None:
        """How long to wait before the next try; None if that would be after the deadline."""
        pause_s = self._pause_s
        if now_s + pause_s > self._deadline_s:
            return None
        self._pause_s = min(2 * pause_s, self._longest_pause_s)
        return pause_s


def passes(error: ClientError, *, also: Container[int] = (), final: Container[int] = ()) -> bool:
    """Whether another try may succeed. `also` are further codes of which this is true for the request, `final` are
    codes of which it is not."""
    if isinstance(error, BrokerRefused):
        return error.code in also or (error.code not in final and ErrorCode.is_retriable_number(error.code))
    return isinstance(error, ConnectionLost)
