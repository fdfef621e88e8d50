"""How fast segments are copied between stores, as each side wants it.

Each side waits until it may read, and says afterwards how much it read. The controller, which asks for copies, need
not know of it: a copy only takes longer.
"""

from typing import Final, Protocol

LONGEST_WAIT_S: Final = 20.0
"""The longest that `admit` waits, whatever is owed: the other side gives up on a call that takes longer."""


class CopyPace(Protocol):
    """The limit on copies in one direction."""

    async def admit(self, partition: str, most_bytes: int) -> int:
        """Wait until bytes of the partition may pass; return how many, at most `most_bytes`. One batch always may."""

    def passed(self, partition: str, size_bytes: int) -> None: ...


class _AtOnce:
    async def admit(self, partition: str, most_bytes: int) -> int:
        return most_bytes

    def passed(self, partition: str, size_bytes: int) -> None:
        pass


AT_ONCE: Final = _AtOnce()
