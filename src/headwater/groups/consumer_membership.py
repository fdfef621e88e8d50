"""The members of a consumer group, consumer and classic ones alike: they come, change, advance, and go.

- The group's epoch rises when a member comes or goes, when a subscription changes, and when a topic that the group
  reads does. The target is computed at the next request of any member, and each member then moves towards it
    (`reconciliation`).
  - A member that sends nothing, or does not give up partitions or rejoin in time, is removed; the reason is noted.
"""

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from headwater.groups.assignment import NOTHING, Assignment
from headwater.groups.assignors import ASSIGNORS, UNIFORM, Subscriber
from headwater.groups.consumer_events import (
    LEFT_STATIC_EPOCH,
    ConsumerEvent,
    ConsumerGroupStored,
    ConsumerMemberStored,
    CurrentStored,
    MemberState,
    TargetEpochStored,
    TargetStored,
)
from headwater.groups.consumer_state import ConsumerState
from headwater.groups.consumer_topics import ConsumerTopics
from headwater.groups.departures import MAX_EXPLANATION_CHARS, DepartureReason, Departures, MemberDeparture
from headwater.groups.effects import GroupEffects
from headwater.groups.reconciliation import reconcile
from headwater.groups.settings import GroupSettings
from headwater.groups.topics import TopicTable
from headwater.groups.visible_topics import TopicRights
from headwater.model.deadlines import Deadlines
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import TopicId
from headwater.model.moment import Moment

MAX_EPOCH = 2**31 - 1


class ConsumerTimer(enum.Enum):
    SESSION = enum.auto()
    """A member that sends nothing until then is removed."""
    REVOCATION = enum.auto()
    """A member has to give partitions up, and others wait for them."""
    REJOIN = enum.auto()
    """A classic member has to join again."""
    SYNC = enum.auto()
    """A classic member joined, and has to send SyncGroup."""


_REASONS = {
    ConsumerTimer.SESSION: DepartureReason.SESSION_EXPIRED,
    ConsumerTimer.REVOCATION: DepartureReason.REVOCATION_TIMEOUT,
    ConsumerTimer.REJOIN: DepartureReason.REBALANCE_TIMEOUT,
    ConsumerTimer.SYNC: DepartureReason.SYNC_TIMEOUT,
}


class ConsumerMembership:
    def __init__(self, group_id: str, settings: GroupSettings, topics: TopicTable) -> None:
        self.group_id = group_id
        self.settings = settings
        self.topics = topics
        self.stored = ConsumerState(group_id)
        self.reads = ConsumerTopics(self.stored, settings, topics)
        self.departures = Departures()
        self.deadlines: Deadlines[tuple[ConsumerTimer, str]] = Deadlines()

    def resume(self, now: Moment) -> None:
        """After a replay: each member gets a whole session, and the whole time to give up partitions."""
        for member in self.stored.members.values():
            self.heard_of(member, now)
            self._watch_revocation(member, self.stored.current(member.member_id), now)

    # Looking up

    def known(self, member_id: str, instance_id: str | None) -> ConsumerMemberStored:
        if instance_id is not None:
            present_id = self.stored.id_of_instance(instance_id)
            if present_id is None:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"No member has the instance id {instance_id}.")
            if present_id != member_id:
                raise RequestError(ErrorCode.FENCED_INSTANCE_ID, f"Instance {instance_id} has another member id now.")
        member = self.stored.members.get(member_id)
        if member is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in the group.")
        return member

    def holder(self, instance_id: str | None) -> ConsumerMemberStored | None:
        """The member that has this instance id."""
        member_id = self.stored.id_of_instance(instance_id) if instance_id is not None else None
        return self.stored.members.get(member_id) if member_id is not None else None

    def check_room(self) -> None:
        limit = self.settings.consumer_max_members
        if len(self.stored.members) >= limit:
            raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has its limit of {limit} members.")

    # Coming and changing

    def update(
        self,
        member: ConsumerMemberStored,
        before: ConsumerMemberStored | None,
        now: Moment,
        out: GroupEffects,
        rights: TopicRights | None = None,
    ) -> None:
        """Store a member as it describes itself now. `before` is its former state, or the member that it replaces."""
        has_new_topics = self.reads.may_have_changed()
        sees_others = self.reads.look(member, before, rights)
        if before is not None and before.member_id != member.member_id:
            self._replace(before, member, now, out)
        elif member is not before and member != before:
            self.log(member, out)
        has_new_subscription = sees_others or before is None or _subscription(before) != _subscription(member)
        self._advance(has_new_topics, has_new_subscription, out)

    def reconcile(
        self, member: ConsumerMemberStored, owned: Assignment | None, now: Moment, out: GroupEffects, *, joins: bool
    ) -> CurrentStored:
        """Move the member one step towards its target, and begin its session anew."""
        member_id = member.member_id

        def is_free(topic_id: TopicId, index: int) -> bool:
            return self.stored.owner(topic_id, index) in (None, member_id)

        before = self.stored.current(member_id)
        current = reconcile(
            before, self.stored.target_epoch, self.stored.target(member_id), owned, is_free, joins=joins
        )
        if current != before:
            self.log(current, out)
            self._watch_revocation(member, current, now)
        self.heard_of(member, now)
        return current

    def heard_of(self, member: ConsumerMemberStored, now: Moment) -> None:
        timeout_ms = self.settings.consumer_times(self.group_id).session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.watch(ConsumerTimer.SESSION, member, timeout_ms, now)

    # Going

    def remove(
        self, member: ConsumerMemberStored, reason: DepartureReason, explanation: str, now: Moment, out: GroupEffects
    ) -> None:
        """Take a member out. The caller then calls `lost_members`, once for all that it removed."""
        self._depart(member, reason, explanation, now, out)
        for event in list(self.stored.member_deletions(member.member_id)):
            self.log(event, out)
        self.reads.forget(member.member_id)

    def let_away(self, member: ConsumerMemberStored, now: Moment, out: GroupEffects) -> None:
        """A static member leaves for a while: what it had to give up is given up, and the rest is kept for it."""
        current = self.stored.current(member.member_id)
        self.log(
            replace(
                current,
                epoch=LEFT_STATIC_EPOCH,
                previous_epoch=current.epoch,
                state=MemberState.STABLE,
                revoking=NOTHING,
            ),
            out,
        )
        self.unwatch(ConsumerTimer.REVOCATION, member.member_id)
        self.heard_of(member, now)

    def lost_members(self, out: GroupEffects) -> None:
        """Begin an epoch: the partitions of removed members are assigned with the next request of any member."""
        self._begin_epoch(self.reads.hash() if self.stored.members else 0, out)

    def due(self, now: Moment) -> Iterator[tuple[ConsumerMemberStored, DepartureReason]]:
        """The members whose deadlines have passed, and the reason to remove each."""
        while (due := self.deadlines.take_due(now.monotonic_ms)) is not None:
            timer, member_id = due
            yield self.stored.members[member_id], _REASONS[timer]

    def watch(self, timer: ConsumerTimer, member: ConsumerMemberStored, timeout_ms: int, now: Moment) -> None:
        self.deadlines.set((timer, member.member_id), now.monotonic_ms + timeout_ms)

    def unwatch(self, timer: ConsumerTimer, member_id: str) -> None:
        self.deadlines.clear((timer, member_id))

    def log(self, event: ConsumerEvent, out: GroupEffects) -> None:
        out.events.append(event)
        self.stored.apply(event)

    def assignor(self) -> str:
        """The assignor that most members ask for; the default if none asks for one."""
        votes = Counter(
            member.server_assignor for member in self.stored.members.values() if member.server_assignor in ASSIGNORS
        )
        return max(sorted(name for name in votes if name), key=votes.__getitem__, default=UNIFORM)

    # Inside

    def _replace(
        self, before: ConsumerMemberStored, member: ConsumerMemberStored, now: Moment, out: GroupEffects
    ) -> None:
        """An instance has a new member id, which takes over the old one's target and assignment, from epoch 0 on."""
        target, current = self.stored.target(before.member_id), self.stored.current(before.member_id)
        self.remove(before, DepartureReason.FENCED, "", now, out)
        self.log(member, out)
        self.log(TargetStored(self.group_id, member.member_id, target), out)
        self.log(CurrentStored(group_id=self.group_id, member_id=member.member_id, assigned=current.assigned), out)

    def _advance(self, has_new_topics: bool, has_new_subscription: bool, out: GroupEffects) -> None:
        """Begin an epoch if subscriptions or topics changed, and compute its target."""
        if has_new_topics or has_new_subscription:
            metadata_hash = self.reads.hash()
            if has_new_subscription or metadata_hash != self.stored.metadata_hash:
                self._begin_epoch(metadata_hash, out)
        if self.stored.target_epoch != self.stored.epoch:
            self._retarget(out)

    def _begin_epoch(self, metadata_hash: int, out: GroupEffects) -> None:
        assert self.stored.epoch < MAX_EPOCH, "a group does not live through 2**31 changes"
        self.log(ConsumerGroupStored(self.group_id, self.stored.epoch + 1, metadata_hash), out)

    def _retarget(self, out: GroupEffects) -> None:
        partitions: dict[TopicId, int] = {}
        subscribers = []
        known: dict[frozenset[str], frozenset[TopicId]] = {}
        for member in self.stored.members.values():
            names = self.reads.of_member(member)
            if names not in known:
                found = [topic for topic in map(self.topics.find, names) if topic is not None]
                partitions |= {topic.topic_id: topic.partitions for topic in found}
                known[names] = frozenset(topic.topic_id for topic in found)
            subscribers.append(Subscriber(member.member_id, member.instance_id, known[names]))
        shares = ASSIGNORS[self.assignor()](subscribers, partitions, self.stored.targets)
        for member_id, share in shares.items():
            if share != self.stored.targets.get(member_id):
                self.log(TargetStored(self.group_id, member_id, share), out)
        self.log(TargetEpochStored(self.group_id, self.stored.epoch), out)

    def _watch_revocation(self, member: ConsumerMemberStored, current: CurrentStored, now: Moment) -> None:
        if current.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self.watch(ConsumerTimer.REVOCATION, member, member.rebalance_timeout_ms, now)
        else:
            self.unwatch(ConsumerTimer.REVOCATION, member.member_id)

    def _depart(
        self, member: ConsumerMemberStored, reason: DepartureReason, explanation: str, now: Moment, out: GroupEffects
    ) -> None:
        for timer in ConsumerTimer:
            self.unwatch(timer, member.member_id)
        departure = MemberDeparture(
            group_id=self.group_id,
            at_ms=now.wall_ms,
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            reason=reason,
            explanation=explanation[:MAX_EXPLANATION_CHARS],
        )
        self.departures.note(departure)
        out.departures.append(departure)


def _subscription(member: ConsumerMemberStored) -> tuple[tuple[str, ...], str | None, str | None]:
    return member.topic_names, member.topic_regex, member.server_assignor
