"""One share group: its members, and which partitions each of them reads (KIP-932).

The server alone assigns, and no member has to give a partition up before another gets it: partitions are shared. So a
member always gets the newest assignment, and its epoch is the epoch of the group at that moment.

- The group's epoch rises whenever a member comes, goes, changes its subscription, or a topic that it reads changes.
- A member that names neither its own epoch nor the one before is fenced, and joins again with epoch 0.
- Only members and the epoch are logged. The assignment follows from them; after a restart it is made anew, and the
  members' epochs are taken from what they say, as far as the group has had such an epoch.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from headwater.groups import share_assignor
from headwater.groups.departures import DepartureReason, Departures, MemberDeparture
from headwater.groups.effects import GroupEffects, ShareHeartbeatAnswer
from headwater.groups.events import ShareGroupDeleted, ShareGroupStored, ShareMemberDeleted, ShareMemberStored
from headwater.groups.rebalance import GroupState
from headwater.groups.settings import MAX_NAME_CHARS
from headwater.model.deadlines import Deadlines
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionName, TopicId
from headwater.model.moment import Moment

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
MAX_TOPICS = 1_000
"""Topics that one member may subscribe to."""

TopicView: TypeAlias = Callable[[str], tuple[TopicId, int] | None]
"""The id of a topic and how many partitions it has, if it exists."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The limits of one share group, from its own configuration or the broker's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_members: int = 200


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    member_id: str
    epoch: int
    rack_id: str | None
    topics: tuple[str, ...] | None
    """None: unchanged."""
    client_id: str
    client_host: str

    def check(self) -> None:
        """Raise RequestError for what no group would accept."""
        if not self.member_id or len(self.member_id) > MAX_NAME_CHARS:
            raise RequestError(ErrorCode.INVALID_REQUEST, "MemberId is empty or too long.")
        if self.rack_id is not None and not 0 < len(self.rack_id.strip()) <= MAX_NAME_CHARS:
            raise RequestError(ErrorCode.INVALID_REQUEST, "RackId can be left out, but not be empty or long.")
        if self.epoch < LEAVE_EPOCH:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"MemberEpoch {self.epoch} is invalid.")
        if self.epoch == JOIN_EPOCH and not self.topics:
            raise RequestError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in the first request.")
        topics = self.topics or ()
        if len(topics) > MAX_TOPICS or any(not 0 < len(topic) <= MAX_NAME_CHARS for topic in topics):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"At most {MAX_TOPICS} topics with proper names are allowed.")
        if len(self.client_id) > MAX_NAME_CHARS:
            raise RequestError(ErrorCode.INVALID_REQUEST, "The client id is too long.")


@dataclass(slots=True)
class ShareMember:
    stored: ShareMemberStored
    epoch: int | None = None
    """None: the member has sent nothing since the coordinator started."""
    previous_epoch: int = -1

    @property
    def member_id(self) -> str:
        return self.stored.member_id


class ShareGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.members: dict[str, ShareMember] = {}
        self._sessions: Deadlines[str] = Deadlines()
        self._assignment: share_assignor.Assignment = {}
        self._assigned_epoch = -1
        self._seen_topics: dict[str, tuple[TopicId, int]] | None = None
        self._subscribed: Counter[str] = Counter()
        """How many members subscribe to each topic. Kept beside the members, because every heartbeat needs it."""
        self.size_bytes = 0
        self.departures = Departures()

    # What is remembered

    def apply(self, event: ShareGroupStored | ShareMemberStored | ShareMemberDeleted) -> None:
        match event:
            case ShareGroupStored(epoch=epoch):
                self.epoch = epoch
            case ShareMemberStored(member_id=member_id):
                member = self.members.get(member_id)
                if member is None:
                    self.members[member_id] = ShareMember(event)
                else:
                    self._count(member.stored, -1)
                    member.stored = event
                self._count(event, 1)
            case ShareMemberDeleted(member_id=member_id):
                member = self.members.pop(member_id, None)
                if member is not None:
                    self._count(member.stored, -1)
                self._sessions.clear(member_id)

    def resume(self, now: Moment) -> None:
        """The log has been replayed: each member gets a whole session."""
        for member_id in self.members:
            self._sessions.set(member_id, now.monotonic_ms + ShareSettings().session_timeout_ms)

    # Requests of members

    def heartbeat(
        self, request: ShareHeartbeat, settings: ShareSettings, topics: TopicView, now: Moment
    ) -> tuple[ShareHeartbeatAnswer, GroupEffects]:
        if request.epoch == LEAVE_EPOCH:
            return self._leave(request, now)
        effects = GroupEffects()
        member = self._admit(request, settings, effects)
        self._look_at_topics(topics, effects)
        self._sessions.set(member.member_id, now.monotonic_ms + settings.session_timeout_ms)
        is_news = member.epoch != self.epoch or request.epoch != member.epoch
        assignment = self.assigned(member.member_id)
        if member.epoch != self.epoch:
            member.previous_epoch = request.epoch if member.epoch is None else member.epoch
            member.epoch = self.epoch
        news = assignment if is_news or request.topics is not None else None
        return ShareHeartbeatAnswer(member.member_id, self.epoch, settings.heartbeat_interval_ms, news), effects

    def doubt(self, member_id: str, settings: ShareSettings, now: Moment) -> None:
        """The member's connection was lost. If it lives, its next heartbeat comes in time; otherwise there is no need
        to wait for the end of its session before others read in its place."""
        if member_id in self._sessions:
            overdue_ms = now.monotonic_ms + settings.heartbeat_interval_ms * 3 // 2
            self._sessions.set(member_id, min(overdue_ms, now.monotonic_ms + settings.session_timeout_ms))

    def assigned(self, member_id: str) -> frozenset[PartitionName]:
        """What the member reads, by the newest assignment."""
        if self._assigned_epoch != self.epoch:
            subscriptions = {each: frozenset(member.stored.topics) for each, member in self.members.items()}
            counts = {topic: count for topic, (_, count) in (self._seen_topics or {}).items()}
            self._assignment = share_assignor.assign(subscriptions, counts, self._assignment)
            self._assigned_epoch = self.epoch
        return self._assignment.get(member_id, frozenset())

    def next_deadline_ms(self) -> int | None:
        return self._sessions.next_ms()

    def tick(self, now: Moment) -> tuple[list[str], GroupEffects]:
        """Remove the members whose session has ended, and return their ids."""
        effects = GroupEffects()
        gone = []
        while (member_id := self._sessions.take_due(now.monotonic_ms)) is not None:
            gone.append(member_id)
            self._note_departure(member_id, DepartureReason.SESSION_EXPIRED, now, effects)
            self._log(ShareMemberDeleted(self.group_id, member_id), effects)
        if gone:
            self._bump(effects)
        return gone, effects

    def deleted(self) -> Iterator[ShareMemberDeleted | ShareGroupDeleted]:
        """What to log to forget the group."""
        for member_id in self.members:
            yield ShareMemberDeleted(self.group_id, member_id)
        yield ShareGroupDeleted(self.group_id)

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    # Inside

    def _admit(self, request: ShareHeartbeat, settings: ShareSettings, effects: GroupEffects) -> ShareMember:
        member = self.members.get(request.member_id)
        if request.epoch == JOIN_EPOCH:
            if member is None and len(self.members) >= settings.max_members:
                raise RequestError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has its limit of {settings.max_members} members."
                )
        elif member is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not known in the group.")
        else:
            self._check_epoch(member, request.epoch)
        stored = self._as_stored(member, request)
        if member is None or member.stored != stored:
            is_known = member is not None and member.stored.topics == stored.topics
            self._log(stored, effects)
            if not is_known:
                self._bump(effects)
        return self.members[request.member_id]

    def _check_epoch(self, member: ShareMember, epoch: int) -> None:
        if member.epoch is None:
            if epoch <= self.epoch:
                return
        elif epoch in (member.epoch, member.previous_epoch):
            return
        raise RequestError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member's epoch is {member.epoch if member.epoch is not None else self.epoch}, not {epoch}.",
        )

    def _as_stored(self, member: ShareMember | None, request: ShareHeartbeat) -> ShareMemberStored:
        topics = tuple(sorted(set(request.topics))) if request.topics is not None else None
        if member is None:
            return ShareMemberStored(
                self.group_id, request.member_id, request.rack_id, request.client_id, request.client_host, topics or ()
            )
        return replace(
            member.stored,
            rack_id=request.rack_id if request.rack_id is not None else member.stored.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=topics if topics is not None else member.stored.topics,
        )

    def _leave(self, request: ShareHeartbeat, now: Moment) -> tuple[ShareHeartbeatAnswer, GroupEffects]:
        if request.member_id not in self.members:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not known in the group.")
        effects = GroupEffects()
        self._note_departure(request.member_id, DepartureReason.LEFT, now, effects)
        self._log(ShareMemberDeleted(self.group_id, request.member_id), effects)
        self._bump(effects)
        return ShareHeartbeatAnswer(request.member_id, LEAVE_EPOCH, 0), effects

    def _note_departure(self, member_id: str, reason: DepartureReason, now: Moment, effects: GroupEffects) -> None:
        stored = self.members[member_id].stored
        departure = MemberDeparture(
            group_id=self.group_id,
            at_ms=now.wall_ms,
            member_id=member_id,
            instance_id=None,
            client_id=stored.client_id,
            client_host=stored.client_host,
            reason=reason,
        )
        self.departures.note(departure)
        effects.departures.append(departure)

    def _look_at_topics(self, topics: TopicView, effects: GroupEffects) -> None:
        """Begin an epoch if a subscribed topic was created, deleted or got more partitions."""
        found = {name: view for name in self._subscribed if (view := topics(name)) is not None}
        if found != self._seen_topics:
            if self._seen_topics is not None and self._assigned_epoch == self.epoch:
                self._bump(effects)
            self._assigned_epoch = -1
            self._seen_topics = found

    def _count(self, stored: ShareMemberStored, sign: int) -> None:
        self.size_bytes += sign * _size_bytes(stored)
        for topic in stored.topics:
            self._subscribed[topic] += sign
            if not self._subscribed[topic]:
                del self._subscribed[topic]

    def _bump(self, effects: GroupEffects) -> None:
        self._log(ShareGroupStored(self.group_id, self.epoch + 1), effects)

    def _log(self, event: ShareGroupStored | ShareMemberStored | ShareMemberDeleted, effects: GroupEffects) -> None:
        effects.events.append(event)
        self.apply(event)


def _size_bytes(stored: ShareMemberStored) -> int:
    texts = (stored.member_id, stored.rack_id or "", stored.client_id, stored.client_host, *stored.topics)
    return sum(map(len, texts))
