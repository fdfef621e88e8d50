"""A position in a topic, named before its partitions are known, and the offset that it means in each of them.

The words for it are up to its readers: the command line and HTTP differ in what they take for a time.
"""

import enum
from dataclasses import dataclass


class Anchor(enum.Enum):
    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    anchor: Anchor
    value: int = 0
    """The offset, the count from the end, or milliseconds since the epoch."""


ENDS = {
    "beginning": Position(Anchor.BEGINNING),
    "earliest": Position(Anchor.BEGINNING),
    "end": Position(Anchor.END),
    "latest": Position(Anchor.END),
}
"""Our words and Kafka's."""


def offset_in(position: Position, start: int, end: int, at_time: int | None) -> int:
    """The offset that a position means in a partition, never outside of what the partition holds. `at_time` is the
    offset of the first record that is not older than the position's time; negative or None if there is none."""
    offset = {
        Anchor.BEGINNING: start,
        Anchor.END: end,
        Anchor.OFFSET: position.value,
        Anchor.LAST: end - position.value,
        # Nothing is that young: a reader that begins there waits at the end.
        Anchor.TIME: end if at_time is None or at_time < 0 else at_time,
    }[position.anchor]
    return min(max(offset, start), end)
