"""Gives memory that many TLS connections have left back to the system.

uvloop has a buffer of 256 KiB for each, and writes into its beginning only. The allocator keeps what is freed, and
makes the next buffers of it at other places: after each storm of connections more of it was written to once, and stays
resident.
"""

from typing import Final

MANY_CONNECTIONS: Final = 1_000
INTERVAL_S: Final = 10.0
"""At least, from one time to the next: it takes some milliseconds, in which nothing is allocated."""


class FreedMemory:
    def __init__(self) -> None:
        self._connections = 0
        self._given_back_at: float | None = None

    def left_by_connection(self) -> None:
        self._connections += 1

    def is_worth_it(self, now: float) -> bool:
        """Whether to give it back now; the next answer is about what is freed from now on."""
        if self._connections < MANY_CONNECTIONS:
            return False
        if self._given_back_at is not None and now - self._given_back_at < INTERVAL_S:
            return False
        self._connections, self._given_back_at = 0, now
        return True

    def give_back(self) -> None:
        """Not for an event loop."""
        import ctypes  # most brokers never come here

        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc's; other allocators have none
            trim(0)
