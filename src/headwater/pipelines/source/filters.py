"""Filters of a query that narrow what is fetched: on topic, partition, offset, and from a time on.

Offsets, partitions and topics are exact, and Spark need not look again. A time only says where to start: the records
before the first one at or after it cannot match, but of those behind it some may be older, because producers set the
time. For the same reason an upper bound on time says nothing about offsets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headwater.client.offsets import NOT_FOUND
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.client.offsets import OffsetRange

MAX_OFFSET = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a record must be to pass all filters that were understood."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    last_offset: int = MAX_OFFSET
    first_timestamp_ms: int | None = None

    def narrow(self, cluster: ClusterClient, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The parts of the ranges that can have such records."""
        narrowed = [
            replace(one, start=max(one.start, self.first_offset), end=min(one.end, self.last_offset + 1))
            for one in ranges
            if (self.topics is None or one.topic in self.topics)
            and (self.partitions is None or one.partition in self.partitions)
        ]
        narrowed = [one for one in narrowed if one.size > 0]
        if self.first_timestamp_ms is None or not narrowed:
            return narrowed
        asked = {one.topic_partition: self.first_timestamp_ms for one in narrowed}
        firsts = cluster.list_offsets(asked)
        return [
            replace(one, start=max(one.start, firsts[one.topic_partition]))
            for one in narrowed
            if NOT_FOUND < firsts[one.topic_partition] < one.end
        ]


def bounds(filters: Sequence[Filter]) -> tuple[Bounds, list[Filter]]:
    """What the filters say together, and the filters that Spark must still apply."""
    known = Bounds()
    left: list[Filter] = []
    for one in filters:
        narrower = _narrower(known, one)
        is_exact = isinstance(one, IsNotNull) or getattr(one, "attribute", None) != ("timestamp",)
        if narrower is None or not is_exact:
            left.append(one)
        known = narrower or known
    return known, left


def _narrower(known: Bounds, one: Filter) -> Bounds | None:
    """The bounds with one filter more, or None if it says nothing of them."""
    match one:
        case IsNotNull((name,)) if name in _NEVER_NULL:
            return known
        case EqualTo(("topic",), str() as topic):
            return replace(known, topics=_both(known.topics, {topic}))
        case In(("topic",), names):
            return replace(known, topics=_both(known.topics, set(names)))
        case EqualTo(("partition",), int() as number):
            return replace(known, partitions=_both(known.partitions, {number}))
        case In(("partition",), numbers):
            return replace(known, partitions=_both(known.partitions, set(numbers)))
        case EqualTo(("offset",), int() as offset):
            return _between(known, offset, offset)
        case GreaterThan(("offset",), int() as offset):
            return _between(known, offset + 1, MAX_OFFSET)
        case GreaterThanOrEqual(("offset",), int() as offset):
            return _between(known, offset, MAX_OFFSET)
        case LessThan(("offset",), int() as offset):
            return _between(known, 0, offset - 1)
        case LessThanOrEqual(("offset",), int() as offset):
            return _between(known, 0, offset)
        case EqualTo(("timestamp",), datetime() as moment):
            return _from(known, moment)
        case GreaterThan(("timestamp",), datetime() as moment):
            return _from(known, moment)
        case GreaterThanOrEqual(("timestamp",), datetime() as moment):
            return _from(known, moment)
    return None


_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_Value = TypeVar("_Value")


def _both(known: frozenset[_Value] | None, more: set[_Value]) -> frozenset[_Value]:
    return frozenset(more if known is None else known & more)


def _between(known: Bounds, first: int, last: int) -> Bounds:
    return replace(known, first_offset=max(known.first_offset, first), last_offset=min(known.last_offset, last))


def _from(known: Bounds, moment: datetime) -> Bounds | None:
    """From the millisecond of that moment on. Only a moment with a time zone is one."""
    if moment.tzinfo is None or moment < _EPOCH:
        return None
    timestamp_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    return replace(known, first_timestamp_ms=max(known.first_timestamp_ms or 0, timestamp_ms))
