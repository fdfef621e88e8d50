"""Share sessions (KIP-932): a consumer names the partitions it fetches once, and later only what changed.

A session belongs to a member of a group, and to the connection that opened it: when that is lost, the session ends, and
what the member holds is given back. Epochs are as in fetch sessions: 0 opens, each request brings the next, -1 ends.

Opening a session anew does not give anything back: a consumer does so after an error, and goes on with what it holds.
Unlike fetch sessions none is put out for another: at the limit a new one is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
MAX_PARTITIONS = 100_000
"""Of one session."""

SessionKey: TypeAlias = tuple[str, str]
"""Group and member."""


@dataclass(slots=True)
class ShareSession:
    group_id: str
    member_id: str
    epoch: int = 1
    partitions: dict[PartitionId, None] = field(default_factory=dict)
    """Those to look at first come first."""
    reported_errors: dict[PartitionId, ErrorCode] = field(default_factory=dict)
    """Errors of the last response."""

    @property
    def key(self) -> SessionKey:
        return self.group_id, self.member_id

    def update(self, added: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        for partition in added:
            self.partitions.setdefault(partition)
        for partition in forgotten:
            self.partitions.pop(partition, None)
        if len(self.partitions) > MAX_PARTITIONS:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"A session has at most {MAX_PARTITIONS} partitions.")

    def gave(self, partition: PartitionId) -> None:
        """The partition gave records: the others come before it in the next fetch."""
        if partition in self.partitions:
            del self.partitions[partition]
            self.partitions[partition] = None


class ShareSessions:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def open(self, group_id: str, member_id: str) -> ShareSession:
        """A new session, in place of the one that the member may have had."""
        key = (group_id, member_id)
        if key not in self._sessions and len(self._sessions) >= self.limit:
            raise RequestError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"There are {self.limit} share sessions already.")
        session = self._sessions[key] = ShareSession(group_id, member_id)
        return session

    def use(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a request that is not its first. The final epoch is always the right one."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise RequestError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if session.epoch != epoch:
            raise RequestError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def close(self, session: ShareSession) -> bool:
        """Whether it was still there: a session that was opened anew is another one."""
        if self._sessions.get(session.key) is not session:
            return False
        del self._sessions[session.key]
        return True


def checked_names(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Every request of a session names both. Raises RequestError."""
    if not group_id or not member_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "A group and a member must be named.")
    return group_id, member_id
