"""Requests of members of a classic group, without wire versions: fields that a version lacks are filled in."""

from dataclasses import dataclass

from headwater.groups.members import MemberProtocol, size_bytes
from headwater.groups.settings import MAX_NAME_CHARS, MAX_PROTOCOLS, MAX_STRING_BYTES, GroupSettings
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class JoinRequest:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    needs_known_id: bool = True
    """The client understands MEMBER_ID_REQUIRED and comes back with the id in it (KIP-394, JoinGroup 4)."""
    can_skip_assignment: bool = True
    """A static leader that comes back understands that nothing has to be assigned (KIP-814, JoinGroup 9)."""

    @property
    def size_bytes(self) -> int:
        return size_bytes(self.protocols)

    @property
    def protocols_by_name(self) -> tuple[tuple[str, bytes], ...]:
        return tuple((protocol.name, protocol.metadata) for protocol in self.protocols)

    @property
    def asks_for_id(self) -> bool:
        """It has no member id yet, and understands MEMBER_ID_REQUIRED."""
        return self.member_id == "" and self.instance_id is None and self.needs_known_id

    def check(self, settings: GroupSettings) -> None:
        """Raise RequestError for what no group would accept."""
        if not settings.min_session_timeout_ms <= self.session_timeout_ms <= settings.max_session_timeout_ms:
            raise RequestError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"The session timeout must be between {settings.min_session_timeout_ms} "
                f"and {settings.max_session_timeout_ms} ms.",
            )
        if not self.protocol_type or not self.protocols:
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "A member must offer at least one protocol.")
        if len(self.protocols) > MAX_PROTOCOLS:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"A member may offer at most {MAX_PROTOCOLS} protocols.")
        if self.size_bytes > settings.max_member_metadata_bytes:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"The member's metadata has {self.size_bytes} bytes, more than {settings.max_member_metadata_bytes}.",
            )
        names = (self.instance_id or "", self.client_id, self.protocol_type, *(each.name for each in self.protocols))
        if any(len(name) > MAX_NAME_CHARS for name in names) or self.instance_id == "":
            raise RequestError(ErrorCode.INVALID_REQUEST, "A name is empty or too long.")


@dataclass(frozen=True, slots=True)
class SyncRequest:
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]
    """By member id; only the leader sends any."""


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    member_id: str
    instance_id: str | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    topic: str
    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str


@dataclass(frozen=True, slots=True)
class CommitRequest:
    member_id: str
    instance_id: str | None
    generation: int
    offsets: tuple[OffsetToCommit, ...]
    retention_ms: int | None = None
    """Set by old clients only; None: the broker's retention."""
    knows_member_epochs: bool = True
    """The request's version has member epochs, so that members of a consumer group can commit (OffsetCommit 9)."""

    @property
    def is_anonymous(self) -> bool:
        """It names neither member, instance nor generation."""
        return self.generation < 0 and self.member_id == "" and self.instance_id is None


def fits_string(text: str) -> bool:
    return len(text) <= MAX_STRING_BYTES and len(text.encode(errors="replace")) <= MAX_STRING_BYTES
