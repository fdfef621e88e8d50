"""What the log remembers about one share partition. `event_bytes` has the bytes.

Events are applied in the order in which they were decided. `ShareSnapshot` replaces all before it, so a log that
begins with one is whole. Who holds a record is not remembered: after a restart it is available again, with the
deliveries that ended counted and the one under way forgotten, as in Kafka.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from headwater.model.ids import Offset


class RangeState(enum.IntEnum):
    """Kafka's states of a record, without Acquired, and with the way to the dead letters."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Never delivered again; archived when its dead letter is written."""
    ARCHIVED = 4


class DeadLetterReason(enum.IntEnum):
    REJECTED = 1
    DELIVERY_LIMIT = 2
    EXPIRED = 3


@dataclass(frozen=True, slots=True)
class StateRange:
    first: Offset
    last: Offset
    state: RangeState
    delivery_count: int = 0
    """Deliveries that ended, of AVAILABLE; all deliveries, of ARCHIVING; 0 otherwise."""
    available_at_ms: int = 0
    """Of AVAILABLE: not to be delivered before. 0: at once."""
    reason: DeadLetterReason | None = None
    """Of ARCHIVING."""


def merged(ranges: Iterable[StateRange]) -> tuple[StateRange, ...]:
    """Neighbours of equal state as one: what is logged is as small as can be."""
    found: list[StateRange] = []
    for each in ranges:
        before = found[-1] if found else None
        if before is not None and before.last + 1 == each.first and _alike(before, each):
            found[-1] = replace(before, last=each.last)
        else:
            found.append(each)
    return tuple(found)


def _alike(one: StateRange, other: StateRange) -> bool:
    return (
        one.state is other.state
        and one.delivery_count == other.delivery_count
        and one.available_at_ms == other.available_at_ms
        and one.reason is other.reason
    )


@dataclass(frozen=True, slots=True)
class ShareStateChanged:
    """The ranges have these states from now on. The start offset follows: it moves over what is resolved."""

    ranges: tuple[StateRange, ...]


@dataclass(frozen=True, slots=True)
class ShareStartMoved:
    """Everything below is archived, because the log does not hold it any more."""

    start_offset: Offset


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The whole state: a first one, one after a reset, or one that lets go of the events before it. What no range
    covers is available and was never delivered."""

    start_offset: Offset
    ranges: tuple[StateRange, ...] = ()


ShareEvent: TypeAlias = ShareStateChanged | ShareStartMoved | ShareSnapshot
