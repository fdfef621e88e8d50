"""Fetch sessions (KIP-227): a consumer names its partitions once, and later only what changed.

A session remembers what was asked of each partition and what was last said of it, so that an idle partition costs no
byte in the response. Sessions are a courtesy: there is a limit to them, the least recently used one goes first, and a
client whose session is gone starts a new one. A session is its user's: others cannot learn by its number what is in it,
nor end it.
"""

import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import Offset, TopicId
from headwater.security.principal import Principal
from headwater.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest

MAX_SESSIONS = 1_000
NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_MAX_EPOCH = 2**31 - 1

TopicName: TypeAlias = "tuple[str | None, TopicId | None]"
"""By name or by id, as the client's version has it."""


@dataclass(slots=True)
class SessionPartition:
    topic: TopicName
    asked: FetchPartition
    said: tuple[Offset, Offset] | None = None
    """High watermark and log start of the last answer that named this partition."""

    def is_news(self, result: FetchPartitionResult) -> bool:
        return (
            bool(result.records)
            or result.error_code != ErrorCode.NONE
            or result.diverging_epoch is not None
            or self.said != (result.high_watermark, result.log_start_offset)
        )


class FetchSession:
    def __init__(self, session_id: int, owner: Principal) -> None:
        self.id = session_id
        self.owner = owner
        self.epoch = 1
        self._partitions: dict[tuple[TopicName, int], SessionPartition] = {}

    def __iter__(self) -> Iterator[SessionPartition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def update(self, request: FetchRequest) -> None:
        for partition in asked_partitions(request):
            key = (partition.topic, partition.asked.index)
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = partition
            else:
                known.asked = partition.asked
        for forgotten in request.forgotten:
            for index in forgotten.partitions:
                self._partitions.pop(((forgotten.name, forgotten.topic_id), index), None)

    def answered(self, named: Iterable[tuple[SessionPartition, FetchPartitionResult]]) -> None:
        """Remember what was said. Partitions that gave data go to the back, so that all get their turn."""
        for partition, result in named:
            partition.said = (result.high_watermark, result.log_start_offset)
            if result.records:
                key = (partition.topic, partition.asked.index)
                if self._partitions.pop(key, None) is not None:
                    self._partitions[key] = partition

    def next_epoch(self) -> None:
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1


class FetchSessions:
    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._limit = limit
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, user: Principal) -> tuple[FetchSession | None, bool]:
        """The session of a request, if it has one, and whether its answer names changes only."""
        session = self._sessions.get(request.session_id)
        if session is not None and session.owner is not user and session.owner != user:
            session = None
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                del self._sessions[session.id]
            if request.session_epoch == FINAL_EPOCH:
                return None, False
            return self._new(request, user), False
        if session is None:
            raise RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise RequestError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.next_epoch()
        session.update(request)
        self._sessions.move_to_end(session.id)
        return session, True

    def give_up(self, session: FetchSession) -> None:
        """Its client was not told of it."""
        self._sessions.pop(session.id, None)

    def _new(self, request: FetchRequest, user: Principal) -> FetchSession | None:
        if not request.topics:
            return None
        while len(self._sessions) >= self._limit:
            self._sessions.popitem(last=False)
        session_id = random.randrange(1, _MAX_EPOCH)
        while session_id in self._sessions:
            session_id = random.randrange(1, _MAX_EPOCH)
        session = FetchSession(session_id, user)
        session.update(request)
        self._sessions[session_id] = session
        return session


def asked_partitions(request: FetchRequest) -> Iterator[SessionPartition]:
    for topic in request.topics:
        name = (topic.name, topic.topic_id)
        for partition in topic.partitions:
            yield SessionPartition(name, partition)
