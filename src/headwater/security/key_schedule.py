"""When the keys of an issuer are fetched, and which are in force.

- Once an hour. After a fetch that failed, again after a minute; while there are no keys at all, after a second, then
  two, four, and so on up to that minute.
- For a token whose key is not known, at once: the issuer may have a new one. But anyone can make up such a token, so no
  two fetches for unknown keys begin within a minute of one another, or of any other fetch. For that minute the keys
  that were not in the set are known to be none.
- Keys stay in force until others are fetched, however often that fails: an issuer that is away, or a stranger who cuts
  it off, must not lock out everyone.

The time is monotonic, in seconds.
"""

from typing import Final

from headwater.security.key_set import KeySet

REFRESH_S: Final = 3600.0
MIN_INTERVAL_S: Final = 60.0
"""Between fetches for unknown keys, and after one that failed."""
FIRST_RETRY_S: Final = 1.0
MAX_DOUBLINGS: Final = 10


class KeySchedule:
    def __init__(self) -> None:
        self.keys: KeySet | None = None
        """None before the first success: no token can be verified."""
        self.fetched_at_s: float | None = None
        """The last success."""
        self.failures = 0
        """In all."""
        self._failures_in_a_row = 0
        self._began_at_s: float | None = None

    def wait_s(self, now_s: float) -> float:
        """Until the next fetch that does not wait for a token."""
        if self._began_at_s is None:
            return 0.0
        interval_s = REFRESH_S
        if self._failures_in_a_row:
            interval_s = MIN_INTERVAL_S
        if self.keys is None:
            doublings = min(self._failures_in_a_row - 1, MAX_DOUBLINGS)
            interval_s = min(FIRST_RETRY_S * 2**doublings, MIN_INTERVAL_S)
        return max(0.0, self._began_at_s + interval_s - now_s)

    def may_look(self, now_s: float) -> bool:
        """Whether a token whose key is not known is a reason to fetch now."""
        return self._began_at_s is None or now_s - self._began_at_s >= MIN_INTERVAL_S

    def begun(self, now_s: float) -> None:
        self._began_at_s = now_s

    def fetched(self, keys: KeySet, now_s: float) -> None:
        self.keys, self.fetched_at_s, self._failures_in_a_row = keys, now_s, 0

    def failed(self) -> None:
        self.failures += 1
        self._failures_in_a_row += 1
