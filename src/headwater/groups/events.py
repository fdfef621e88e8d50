"""What the log of a shard remembers about its groups.

Each event is the newest state of one key, and a later one replaces an earlier one whole: the log may be compacted,
and replaying it twice, or from any compacted form, ends in the same state. `event_records` has their bytes.
"""

from dataclasses import dataclass
from typing import TypeAlias

from headwater.groups.consumer_events import ConsumerEvent
from headwater.model.ids import LeaderEpoch, Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """The member's metadata for the protocol that the group chose."""
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStored:
    """A generation was completed, or the group became empty, or a static member got a new member id."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    """When the group entered the stored state; for an empty group, when it became empty."""
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    group_id: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    """Set only by old clients, which may choose the retention themselves (OffsetCommit 2 to 4)."""


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


@dataclass(frozen=True, slots=True)
class OffsetDeleted:
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PendingOffsetStored:
    """A commit inside a transaction: it counts if the transaction commits."""

    producer_id: int
    producer_epoch: int
    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


@dataclass(frozen=True, slots=True)
class PendingOffsetDeleted:
    """The transaction has ended, or a later commit has replaced its offset."""

    producer_id: int
    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ShareGroupStored:
    """A share group exists, and has reached this epoch."""

    group_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ShareGroupDeleted:
    group_id: str


@dataclass(frozen=True, slots=True)
class ShareMemberStored:
    group_id: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareMemberDeleted:
    group_id: str
    member_id: str


PendingEvent: TypeAlias = PendingOffsetStored | PendingOffsetDeleted
OffsetEvent: TypeAlias = OffsetCommitted | OffsetDeleted | PendingEvent
ShareEvent: TypeAlias = ShareGroupStored | ShareGroupDeleted | ShareMemberStored | ShareMemberDeleted
Event: TypeAlias = GroupStored | GroupDeleted | OffsetEvent | ConsumerEvent | ShareEvent
