"""What a group has still to read, in one place for the commands, HTTP, the console and the metrics.

A group reads the partitions in which it has a position, and those that its members are assigned. One that is stopped
has no assignment, but its members will share out whole topics again when they come back: so every partition of the
topics that it has a position in counts, and of the topic that it is subscribed to. Not so for a group that only keeps
offsets (Kafka's simple group): its reader names partitions itself.

Where it begins in a partition without a position is a setting of its consumers (`auto.offset.reset`), which no broker
knows. Everything in the log is counted there, and it is told how many such partitions there are. A queue's is known: it
begins at the start of the log or at its end.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a group is in one partition."""

    topic: str
    partition: int
    position: int | None
    """None: it has none there."""
    end_offset: int | None
    """None: no node leads the partition."""
    lag: int | None


@dataclass(frozen=True, slots=True)
class TotalLag:
    records: int | None
    """The sum of what is known; None if nothing is."""
    unknown_partitions: int
    """Without a position, or without a known lag."""


def places_read(
    positions: Collection[Place],
    assigned: Collection[Place],
    partitions: Mapping[str, int],
    *,
    is_simple: bool = False,
    subscribed: str = "",
) -> list[Place]:
    """In order. `partitions` are how many each topic has; what does not exist is not read."""
    named = {*positions, *assigned}
    topics = {topic for topic, _ in named} if not assigned and not is_simple else set()
    if subscribed:
        topics.add(subscribed)
    named |= {(topic, index) for topic in topics for index in range(partitions.get(topic, 0))}
    return sorted((topic, index) for topic, index in named if index < partitions.get(topic, 0))


def standing(
    place: Place, position: int | None, start: int | None, end: int | None, *, begins_at_end: bool = False
) -> Standing:
    """`begins_at_end`: the group is known to skip what there is where it has no position."""
    begin = position if position is not None else end if begins_at_end else start
    lag = max(end - begin, 0) if begin is not None and end is not None else None
    return Standing(*place, position, end, lag)


def total(standings: Iterable[Standing]) -> TotalLag:
    lags: list[int] = []
    unknown = 0
    for each in standings:
        if each.lag is not None:
            lags.append(each.lag)
        unknown += each.position is None or each.lag is None
    return TotalLag(sum(lags) if lags else None, unknown)
