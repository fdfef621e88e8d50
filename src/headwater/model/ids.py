"""The names things have: small value types that every layer shares.

Topic names are never keys. A partition is (topic id, index), so that a topic deleted and created again
under one name cannot be taken for the old one.

Offsets, leader epochs and node ids are numbers at run time, and three types for mypy in `src`: none passes for
another, and a plain number passes for none of them. A number becomes one where it enters, from bytes or a constant.
The types end where clients begin: the commands, the gateway, the pipelines, the oracles of tests, `group_lag` and
`position` count with plain numbers, as which each of the three passes. So do the fields of messages that are none of
the three (`wire/typed/`).
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NewType, TypeAlias, overload

IDS_ARE_NUMBERS = True
"""Also for the type checker of tests (tests/mypy.toml); that of `src` takes this for false (pyproject.toml)."""

if IDS_ARE_NUMBERS:
    Offset: TypeAlias = int
    LeaderEpoch: TypeAlias = int
    NodeId: TypeAlias = int
    Offsets: TypeAlias = range
else:
    LeaderEpoch = NewType("LeaderEpoch", int)
    NodeId = NewType("NodeId", int)

    class Offset(int):
        """A position in a partition's log. Two offsets differ by a count; an offset and a count make an offset."""

        def __add__(self, count: int, /) -> "Offset":
            return Offset(int(self) + count)

        @overload
        def __sub__(self, other: "Offset", /) -> int: ...  # type: ignore[overload-overlap]
        @overload
        def __sub__(self, other: int, /) -> "Offset": ...
        def __sub__(self, other: int, /) -> int:
            return int(self) - other

    class Offsets:
        """A `range` of offsets."""

        def __init__(self, start: Offset, stop: Offset, /) -> None:
            self._numbers = range(start, stop)

        def __iter__(self) -> Iterator[Offset]:
            return map(Offset, self._numbers)


FIRST_OFFSET: Final = Offset(0)
NO_OFFSET: Final = Offset(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_NODE: Final = NodeId(-1)

TopicId: TypeAlias = uuid.UUID

SegmentId = NewType("SegmentId", str)
"""128 bits as 32 hex digits, time-ordered: later segments sort after earlier ones."""

StoreId = NewType("StoreId", str)
"""32 hex digits, drawn when a data directory is formatted. An emptied disk is a different store."""


PartitionName: TypeAlias = tuple[str, int]
"""A topic's name and the index of a partition: what clients call it. Never a key: see PartitionId."""


@dataclass(frozen=True, slots=True, order=True)
class PartitionId:
    topic_id: TopicId
    index: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex}.{self.index}"

    @classmethod
    def parse(cls, text: str) -> "PartitionId":
        topic_hex, _, index = text.partition(".")
        return cls(uuid.UUID(hex=topic_hex), int(index))


def segment_id(now_ms: int, random_bits: int) -> SegmentId:
    """48 bits of milliseconds, then 80 random bits."""
    return SegmentId(f"{now_ms & (1 << 48) - 1:012x}{random_bits & (1 << 80) - 1:020x}")


def random_part(segment: SegmentId) -> int:
    """The 80 random bits of a segment's id."""
    return int(segment[12:], 16)
