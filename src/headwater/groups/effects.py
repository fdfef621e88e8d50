"""What a decision asks for: events to log, and replies to give once they are logged.

`ReplyTo` is the caller's own token for a request that waits; the core only hands it back. Every token passed to the
core comes back exactly once, unless the whole shard is dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from headwater.groups.assignment import Assignment
from headwater.groups.departures import MemberDeparture
from headwater.groups.events import Event
from headwater.model.errors import ErrorCode
from headwater.model.ids import PartitionName

ReplyTo: TypeAlias = object


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """All members of the generation in the leader's answer; empty in the others'."""


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    error: ErrorCode
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    error: ErrorCode
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ShareHeartbeatAnswer:
    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assignment: frozenset[PartitionName] | None = None
    """None: unchanged."""


@dataclass(frozen=True, slots=True)
class ConsumerAnswer:
    """The answer to ConsumerGroupHeartbeat."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assigned: Assignment | None = None
    """None: as in the last answer that had one."""


Answer: TypeAlias = (
    JoinAnswer
    | SyncAnswer
    | ErrorCode
    | Sequence[LeaveAnswer]
    | Sequence[OffsetAnswer]
    | ConsumerAnswer
    | ShareHeartbeatAnswer
)


@dataclass(frozen=True, slots=True)
class GroupReply:
    to: ReplyTo
    answer: Answer


@dataclass(slots=True)
class GroupEffects:
    events: list[Event] = field(default_factory=list)
    replies: list[GroupReply] = field(default_factory=list)
    departures: list[MemberDeparture] = field(default_factory=list)
    """Members that left, for logs and metrics."""

    def reply(self, to: ReplyTo, answer: Answer) -> None:
        self.replies.append(GroupReply(to, answer))

    def add(self, other: "GroupEffects") -> None:
        self.events += other.events
        self.replies += other.replies
        self.departures += other.departures
