"""How fast segments are copied between stores, as each side wants it.

A side waits for its turn before it reads, and says afterwards how much it was. What asks for copies need not know of
it: a copy only takes longer.
"""

from typing import Final, Protocol

LONGEST_TURN_S: Final = 20.0
"""A turn comes after so long, whatever is owed: the other side gives up on a call that takes longer than that."""


class Pace(Protocol):
    """Of one direction."""

    async def turn(self, partition: str, most_bytes: int) -> int:
        """Wait until bytes of the partition may pass; say how many, `most_bytes` or fewer. One batch always may."""

    def passed(self, partition: str, size_bytes: int) -> None: ...


class _AtOnce:
    async def turn(self, partition: str, most_bytes: int) -> int:
        return most_bytes

    def passed(self, partition: str, size_bytes: int) -> None:
        pass


AT_ONCE: Final = _AtOnce()
