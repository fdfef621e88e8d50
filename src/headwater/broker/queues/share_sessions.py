"""Share sessions (KIP-932): a consumer names the partitions it fetches once, and later only what changed.

A session belongs to a member of a group, and to the connection that opened it: when that is lost, the session ends, and
what the member holds is given back. Epochs are as in fetch sessions: 0 opens, each request brings the next, -1 ends.

Opening a session anew does not give anything back: a consumer does so after an error, and goes on with what it holds.
Unlike fetch sessions none is put out for another: at a limit a new one, or more partitions, are refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
MAX_OF_SESSION = 100_000
"""Partitions."""
MAX_PARTITIONS = 1_000_000
"""Of all sessions: what clients name need not exist, and they need not be allowed to read it."""

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

    def gave(self, partition: PartitionId) -> None:
        """The partition gave records: the others come before it in the next fetch."""
        if partition in self.partitions:
            del self.partitions[partition]
            self.partitions[partition] = None


class ShareSessions:
    def __init__(
        self, limit: int, *, max_of_session: int = MAX_OF_SESSION, max_partitions: int = MAX_PARTITIONS
    ) -> None:
        self.limit = limit
        self._max_of_session = max_of_session
        self._max_partitions = max_partitions
        self._sessions: dict[SessionKey, ShareSession] = {}
        self.partitions = 0
        """Of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def open(self, group_id: str, member_id: str) -> ShareSession:
        """A new session, in place of the one that the member may have had."""
        key = (group_id, member_id)
        if key not in self._sessions and len(self._sessions) >= self.limit:
            raise RequestError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"There are {self.limit} share sessions already.")
        before = self._sessions.get(key)
        if before is not None:
            self.close(before)
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

    def update(self, session: ShareSession, added: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        """Raises RequestError, and leaves the session as it is then."""
        partitions = session.partitions
        new = dict.fromkeys(each for each in added if each not in partitions)
        gone: set[PartitionId] = set()
        for each in forgotten:
            if each in partitions:
                gone.add(each)
            else:
                new.pop(each, None)
        change = len(new) - len(gone)
        if new and len(partitions) + change > self._max_of_session:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"A session has at most {self._max_of_session} partitions.")
        if new and self.partitions + change > self._max_partitions:
            raise RequestError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"All share sessions have at most {self._max_partitions} partitions.",
            )
        partitions.update(new)
        for each in gone:
            del partitions[each]
        self.partitions += change

    def close(self, session: ShareSession) -> bool:
        """Whether it was still there: a session that was opened anew is another one."""
        if self._sessions.get(session.key) is not session:
            return False
        del self._sessions[session.key]
        self.partitions -= len(session.partitions)
        return True


def checked_names(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Every request of a session names both. Raises RequestError."""
    if not group_id or not member_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "A group and a member must be named.")
    return group_id, member_id
