"""Fetch sessions (KIP-227): a consumer names its partitions once, and later only what changed.

A session remembers what was asked of each partition and what was last said of it, so that an idle partition costs no
byte in the response. Sessions are a courtesy: there are limits to them and to their partitions, the least recently used
one goes first, and a client whose session is gone starts a new one. What is in a session need not exist, and the client
need not be allowed to read it, so the limits are what bounds its memory. A session is its user's: others cannot learn
by its number what is in it, nor end it.
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
MAX_PARTITIONS = 500_000
"""Of all sessions."""
MAX_OF_SESSION = 100_000
"""Partitions. A client that fetches more names all of them each time."""
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
    def __init__(
        self, limit: int = MAX_SESSIONS, *, max_partitions: int = MAX_PARTITIONS, max_of_session: int = MAX_OF_SESSION
    ) -> None:
        assert max_of_session <= max_partitions, "a session fits in"
        self._limit = limit
        self._max_partitions = max_partitions
        self._max_of_session = max_of_session
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.partitions = 0
        """Of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, user: Principal) -> tuple[FetchSession | None, bool]:
        """The session of a request, if it has one, and whether its answer names changes only."""
        session = self._sessions.get(request.session_id)
        if session is not None and session.owner is not user and session.owner != user:
            session = None
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self.give_up(session)
            if request.session_epoch == FINAL_EPOCH:
                return None, False
            return self._new(request, user), False
        if session is None:
            raise RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise RequestError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.next_epoch()
        self._sessions.move_to_end(session.id)
        if request.topics or request.forgotten:
            self._update(session, request)
        return session, True

    def give_up(self, session: FetchSession) -> None:
        """Its client was not told of it, or does not use it any more."""
        if self._sessions.pop(session.id, None) is not None:
            self.partitions -= len(session)

    def _update(self, session: FetchSession, request: FetchRequest) -> None:
        """Raises RequestError: the session is gone then."""
        before = len(session)
        session.update(request)
        self.partitions += len(session) - before
        if len(session) > self._max_of_session:
            self.give_up(session)
            raise RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._make_room()

    def _new(self, request: FetchRequest, user: Principal) -> FetchSession | None:
        if not request.topics:
            return None
        session_id = random.randrange(1, _MAX_EPOCH)
        while session_id in self._sessions:
            session_id = random.randrange(1, _MAX_EPOCH)
        session = FetchSession(session_id, user)
        session.update(request)
        if len(session) > self._max_of_session:
            return None
        self._sessions[session_id] = session
        self.partitions += len(session)
        self._make_room()
        return session

    def _make_room(self) -> None:
        while len(self._sessions) > self._limit or self.partitions > self._max_partitions:
            _, oldest = self._sessions.popitem(last=False)
            self.partitions -= len(oldest)


def asked_partitions(request: FetchRequest) -> Iterator[SessionPartition]:
    for topic in request.topics:
        name = (topic.name, topic.topic_id)
        for partition in topic.partitions:
            yield SessionPartition(name, partition)
