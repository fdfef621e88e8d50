"""What the log remembers of a consumer group (KIP-848).

Five kinds of keys: the group's epoch, each member as it described itself, the epoch of the target, each member's
target, and what each member has now. Each event replaces its key whole, and keys do not depend on each other's order.
"""

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

from headwater.groups.assignment import NOTHING, Assignment

LEFT_STATIC_EPOCH = -2
"""A static member that is away for a while: its partitions wait for it (KIP-345)."""


class MemberState(enum.IntEnum):
    """How far a member is on its way to its target; the numbers are those of the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions, and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others still have."""


@dataclass(frozen=True, slots=True)
class ClassicPart:
    """What a classic member said in JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names and metadata of the assignment protocols that it supports, the preferred one first."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupStored:
    group_id: str
    epoch: int
    metadata_hash: int
    """Hash of the topics that the group reads, as they were when the epoch began."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupDeleted:
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberStored:
    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    """Sorted."""
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicPart | None = None
    """Set while the member speaks the classic protocol."""


@dataclass(frozen=True, slots=True)
class ConsumerMemberDeleted:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochStored:
    """The targets of all members belong to this epoch of the group."""

    group_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TargetEpochDeleted:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetStored:
    group_id: str
    member_id: str
    partitions: Assignment


@dataclass(frozen=True, slots=True)
class TargetDeleted:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentStored:
    group_id: str
    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    """Still accepted from the member: it may have missed the answer that raised its epoch."""
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NOTHING)
    revoking: Assignment = field(default_factory=lambda: NOTHING)
    """Partitions that the member has to give up, and has not given up yet."""


@dataclass(frozen=True, slots=True)
class CurrentDeleted:
    group_id: str
    member_id: str


ConsumerStored: TypeAlias = (
    ConsumerGroupStored | ConsumerMemberStored | TargetEpochStored | TargetStored | CurrentStored
)
ConsumerDeleted: TypeAlias = (
    ConsumerGroupDeleted | ConsumerMemberDeleted | TargetEpochDeleted | TargetDeleted | CurrentDeleted
)
ConsumerEvent: TypeAlias = ConsumerStored | ConsumerDeleted
