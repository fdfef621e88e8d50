"""What a group has still to read, in one place for the commands, HTTP, the console and the metrics.

A group reads the partitions in which it has a position, and those that its members are assigned. One that is stopped
has no assignment, but its members will share out whole topics again when they come back: so every partition of the
topics that it has a position in counts, and of the topic that it is subscribed to. Not so for a group that only keeps
offsets (Kafka's simple group): its reader names partitions itself.

Where it begins in a partition without a position is a setting of its consumers (`auto.offset.reset`), which no broker
knows. Everything in the log is counted there, and the total says how many such partitions there are. Where a queue
begins is known: at the start of the log or at its end.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headwater.model.ids import PartitionName


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition, and how much it has still to read there."""

    topic: str
    partition: int
    position: int | None
    """None: the group has no position there."""
    end_offset: int | None
    """None: no node leads the partition."""
    lag: int | None


@dataclass(frozen=True, slots=True)
class TotalLag:
    records: int | None
    """The sum of the known lags; None if none is known."""
    unknown_partitions: int
    """Without a position, or without a known lag."""


def partitions_read(
    positions: Collection[PartitionName],
    assigned: Collection[PartitionName],
    partitions: Mapping[str, int],
    *,
    is_simple: bool = False,
    subscribed: str = "",
) -> list[PartitionName]:
    """The partitions that a group reads, sorted. `partitions` is how many each topic has; others do not exist."""
    named = {*positions, *assigned}
    topics = {topic for topic, _ in named} if not assigned and not is_simple else set()
    if subscribed:
        topics.add(subscribed)
    named |= {(topic, index) for topic in topics for index in range(partitions.get(topic, 0))}
    return sorted((topic, index) for topic, index in named if index < partitions.get(topic, 0))


def partition_lag(
    partition: PartitionName, position: int | None, start: int | None, end: int | None, *, begins_at_end: bool = False
) -> PartitionLag:
    """`begins_at_end`: where it has no position, the group is known to skip what the log holds."""
    begin = position if position is not None else end if begins_at_end else start
    lag = max(end - begin, 0) if begin is not None and end is not None else None
    return PartitionLag(*partition, position, end, lag)


def total(lags: Iterable[PartitionLag]) -> TotalLag:
    known: list[int] = []
    unknown = 0
    for each in lags:
        if each.lag is not None:
            known.append(each.lag)
        unknown += each.position is None or each.lag is None
    return TotalLag(sum(known) if known else None, unknown)
