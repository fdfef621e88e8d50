"""What the machines of replication ask to have done, and how it may be refused.

A machine does nothing itself: each input returns the effects that follow from it, and the runner carries them out and
reports their results to it. Results may come late, twice or never; the machine ignores results that no longer matter.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headwater.model.ids import Offset, SegmentId, StoreId
from headwater.model.replica import Buffer
from headwater.model.segments import OpenSegment, SealedSegment


class Refusal(enum.Enum):
    FENCED = "fenced"
    """The segment has a new owner."""
    UNREACHABLE = "unreachable"
    """No answer: the call may have taken effect or may yet."""
    NO_SPACE = "no space"
    """Nothing of the call was kept."""
    BROKEN = "broken"
    """Anything else that a store may say. It will say the same again."""


@dataclass(frozen=True, slots=True)
class Append:
    """Answered by `acknowledged` or `refused`."""

    store: StoreId
    segment: SegmentId
    first: Offset
    end: Offset
    lac: Offset
    batches: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class Create:
    """An empty replica that begins with a snapshot of the producers at its base. Answered by `created` or
    `create_failed`."""

    store: StoreId
    segment: OpenSegment


@dataclass(frozen=True, slots=True)
class Publish:
    """In one transaction, if the head is unchanged: the head names this leader, its epoch and the open segment, and the
    one before is sealed. Answered by `published`, `publish_lost` (another node changed the head) or `publish_failed`
    (certainly nothing was written). If the outcome is not known, the head is read until it tells."""

    sealed: SealedSegment | None
    open: OpenSegment


@dataclass(frozen=True, slots=True)
class StepDown:
    """The leader of this epoch stops leading."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fence:
    """Answered by `fenced` or `fence_failed`."""

    store: StoreId
    segment: SegmentId


@dataclass(frozen=True, slots=True)
class Replay:
    """Read the old segment up to `end` and learn its producers. Answered by `replayed` or `replay_failed`."""

    source: StoreId
    segment: OpenSegment
    committed: Offset
    """The next segment begins here."""
    end: Offset


@dataclass(frozen=True, slots=True)
class Plant:
    """A replica of the new segment with the old one's tail [committed, end) in it, unchanged. Answered by `planted` or
    `plant_failed`."""

    store: StoreId
    segment: OpenSegment
    committed: Offset
    end: Offset


Effect: TypeAlias = Append | Create | Publish | StepDown | Fence | Replay | Plant

Choose: TypeAlias = Callable[[int, frozenset[StoreId], SegmentId], tuple[StoreId, ...]]
"""(how many, whom to avoid, for which segment) -> that many live stores, or as many as there are."""

NewSegmentId: TypeAlias = Callable[[], SegmentId]
"""Chance and time are not the core's to read."""


class Entry(NamedTuple):
    """A batch that has its offsets."""

    base: Offset
    end: Offset
    batch: Buffer
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class Rules:
    replication_factor: int = 1
    min_insync: int = 1
    replica_timeout_s: float = 1.0
    """A replica that does not answer for so long is left behind."""
    plant_timeout_s: float = 5.0
    """How long the tail of the segment before may take to a replica of a new leader's first one."""
    heartbeat_s: float = 0.2
    """So long after the last append the leader sends the replicas what was committed."""
    retry_s: float = 0.5
    grace_s: float = 0.05
    """How long a new leader waits for more answers than it needs: for a longer tail, not for safety."""
    bad_store_s: float = 5.0
    """How long a store that failed is not chosen again."""
    window_bytes: int = 8 * 1024 * 1024
    """What one append carries at most."""
