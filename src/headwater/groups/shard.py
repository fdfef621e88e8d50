"""The groups whose state lives in one partition of the internal topic: finds the group, asks it, keeps its deadlines.

Decide, log, apply: a decision returns the events to log and has applied them already, in the order in which they
are to be logged. The runtime must not let a reply out before the events decided up to then are durable; if they cannot
be made durable, it must drop the shard and replay the log into a new one.

    shard = GroupShard(settings, topics)
    for event in log: shard.apply(event)
    shard.resume(now)                        then join, sync, commit, ..., tick
"""

from collections.abc import Iterable, Iterator, Sequence

from headwater.groups.classic import ClassicGroup
from headwater.groups.consumer import ConsumerGroup
from headwater.groups.consumer_events import ConsumerGroupDeleted
from headwater.groups.consumer_requests import JOIN_EPOCH, ConsumerHeartbeat
from headwater.groups.departures import MemberDeparture
from headwater.groups.effects import GroupEffects, LeaveAnswer, ReplyTo
from headwater.groups.events import Event, GroupDeleted
from headwater.groups.group_table import DurableState, Group, GroupTable
from headwater.groups.migration import can_upgrade, downgraded, emptied, protocols_of, upgraded
from headwater.groups.offset_table import FoundOffset
from headwater.groups.offsets import GroupOffsets
from headwater.groups.rebalance import GroupState
from headwater.groups.requests import CommitRequest, JoinRequest, LeaveRequest, SyncRequest, fits_string
from headwater.groups.settings import GroupSettings
from headwater.groups.share import ShareHeartbeat, ShareSettings, TopicView
from headwater.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from headwater.groups.topics import TopicTable
from headwater.groups.views import (
    DescribedConsumerGroup,
    DescribedGroup,
    ListedGroup,
)
from headwater.model.deadlines import Deadlines
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionName
from headwater.model.moment import Moment


class GroupShard:
    def __init__(self, settings: GroupSettings, topics: TopicTable) -> None:
        self._settings = settings
        self._topics = topics
        self._table = GroupTable(settings, topics)
        self._groups = self._table.groups
        self._offsets = self._table.offsets
        self.share = self._table.share
        self._deadlines: Deadlines[str] = Deadlines()
        self._group_bytes: dict[str, int] = {}
        self._size_bytes = 0

    # What is remembered

    def apply(self, event: Event) -> None:
        self._table.apply(event)
        if isinstance(event, GroupDeleted | ConsumerGroupDeleted) and event.group_id not in self._groups:
            self._forget(event.group_id)

    def resume(self, now: Moment) -> None:
        """The log has been replayed: take up its groups."""
        for group in self._groups.values():
            group.resume(now)
            self._note(group)
        self.share.resume(now)

    def durable_state(self) -> DurableState:
        """What a replay of the log would bring back: groups, committed offsets, pending offsets."""
        return self._table.durable_state()

    # Requests of members

    def join(self, group_id: str, request: JoinRequest, unique: str, to: ReplyTo, now: Moment) -> GroupEffects:
        check_group_id(group_id)
        request.check(self._settings)
        if group_id in self.share:
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{group_id} is a share group.")
        group = self._groups.get(group_id)
        if self._size_bytes + request.size_bytes > self._settings.max_shard_bytes:
            raise RequestError(ErrorCode.POLICY_VIOLATION, "The broker has its limit of member metadata.")
        if group is not None and not (isinstance(group, ConsumerGroup) and group.is_idle):
            effects = group.join(request, unique, to, now)
            self._downgrade_if_due(group, now, effects)
            return effects
        if request.member_id != "":
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group is None:
            self._check_group_count(group_id)
        new, effects = ClassicGroup(group_id, self._settings), GroupEffects()
        if group is not None:
            effects.events.append(emptied(group, now))
            new.apply(emptied(group, now))
            new.resume(now)
        effects.add(new.join(request, unique, to, now))
        return self._replace(group, new, effects)

    def sync(self, group_id: str, request: SyncRequest, to: ReplyTo, now: Moment) -> GroupEffects:
        group = self._known(group_id)
        effects = group.sync(request, to, now)
        self._note(group)
        return effects

    def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat, to: ReplyTo, now: Moment) -> GroupEffects:
        """A member of a consumer group joins, stays or leaves. A classic group that it joins is upgraded."""
        check_group_id(group_id)
        request.check(self._settings)
        if group_id in self.share:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is a share group.")
        group = self._groups.get(group_id)
        if self._size_bytes + sum(map(len, request.topic_names or ())) > self._settings.max_shard_bytes:
            raise RequestError(ErrorCode.POLICY_VIOLATION, "The broker has its limit of member metadata.")
        if isinstance(group, ConsumerGroup):
            effects = group.consumer_heartbeat(request, to, now)
            self._downgrade_if_due(group, now, effects)
            return effects
        if request.epoch != JOIN_EPOCH:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} has no such member.")
        if group is None:
            self._check_group_count(group_id)
        new, effects = self._upgraded(group_id, group, now)
        effects.add(new.consumer_heartbeat(request, to, now))
        return self._replace(group, new, effects)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Moment
    ) -> ErrorCode:
        group = self._known(group_id)
        error = group.heartbeat(member_id, instance_id, generation, now)
        if error is not ErrorCode.NONE:
            self._note(group)  # A heartbeat alone moves deadlines later; the answer "join again" begins one.
        return error

    def leave(self, group_id: str, requests: Sequence[LeaveRequest], to: ReplyTo, now: Moment) -> GroupEffects:
        check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            effects = GroupEffects()
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            effects.reply(to, [LeaveAnswer(unknown, each.member_id, each.instance_id) for each in requests])
            return effects
        effects = group.leave(requests, to, now)
        self._downgrade_if_due(group, now, effects)
        return effects

    def share_heartbeat(
        self,
        group_id: str,
        request: ShareHeartbeat,
        settings: ShareSettings,
        topics: TopicView,
        to: ReplyTo,
        now: Moment,
    ) -> GroupEffects:
        check_group_id(group_id)
        self._check_share_group(group_id)
        if self._size_bytes + self.share.size_bytes > self._settings.max_shard_bytes:
            raise RequestError(ErrorCode.POLICY_VIOLATION, "The broker has its limit of member metadata.")
        return self.share.heartbeat(group_id, request, settings, topics, to, now)

    def create_share_group(self, group_id: str, to: ReplyTo) -> GroupEffects:
        """Create a share group without members, unless it exists."""
        check_group_id(group_id)
        self._check_share_group(group_id)
        return self.share.create(group_id, to)

    # Offsets

    def commit(self, group_id: str, request: CommitRequest, to: ReplyTo, now: Moment) -> GroupEffects:
        """Commit the valid offsets; the answer has an error code for each."""
        self._check_commit(group_id, request, now)
        return self._offsets.commit(group_id, request, to, now)

    def commit_in_transaction(
        self,
        group_id: str,
        request: CommitRequest,
        producer_id: int,
        producer_epoch: int,
        to: ReplyTo,
        now: Moment,
    ) -> GroupEffects:
        """Like `commit`, but the offsets are pending until the producer's transaction ends."""
        self._check_commit(group_id, request, now, is_transactional=True)
        return self._offsets.commit_in_transaction(group_id, request, producer_id, producer_epoch, to, now)

    def end_transaction(self, producer_id: int, producer_epoch: int, is_commit: bool, to: ReplyTo) -> GroupEffects:
        """The producer's transaction has ended: its pending offsets of all groups count or vanish. A second call does
        nothing. Raises INVALID_PRODUCER_EPOCH if the producer has a newer transaction here."""
        return self._offsets.end_transaction(producer_id, producer_epoch, is_commit, to)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise RequestError if this member may not fetch offsets. Only consumer groups check that."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.check_fetch(member_id, epoch)

    def offsets(self, group_id: str) -> GroupOffsets:
        """The offsets that count, for reading. An unknown group has none."""
        return self._offsets.committed(group_id)

    def found_offsets(self, group_id: str, partitions: Iterable[PartitionName] | None) -> list[FoundOffset]:
        """What is known of the partitions; None: of all, also of those in which everything is pending."""
        return self._offsets.find(group_id, partitions)

    def offset_topics(self) -> set[str]:
        """The topics in which any group has an offset, committed or pending."""
        return self._offsets.topics()

    def delete_offsets(self, group_id: str, partitions: Iterable[PartitionName], to: ReplyTo) -> GroupEffects:
        """Delete offsets of topics that the group does not read."""
        group = self._groups.get(group_id)
        if group is None and group_id not in self._offsets:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
        is_used = group is not None and group.state is not GroupState.EMPTY
        if group is not None and is_used and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP)
        subscribed = group.subscribed_topics if group is not None and is_used else frozenset()
        return self._offsets.delete(group_id, partitions, subscribed, to)

    def topics_read(self, group_id: str) -> frozenset[str]:
        """The topics that the members of a group subscribe to; empty without members, or if unknown."""
        group = self._groups.get(group_id)
        subscribed = group.subscribed_topics if group is not None and not group.is_idle else None
        return subscribed or frozenset()

    def forget_topic(self, topic: str) -> GroupEffects:
        """The topic was deleted: delete every offset in it."""
        return self._offsets.forget_topic(topic)

    # The life of groups

    def delete_group(self, group_id: str, to: ReplyTo) -> GroupEffects:
        if group_id in self.share:
            return self.share.delete(group_id, to)
        group = self._groups.get(group_id)
        if group is None and group_id not in self._offsets:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group is not None and group.state is not GroupState.EMPTY:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP)
        effects = self._offsets.forget_group(group_id)
        self._drop(group_id, effects)
        effects.reply(to, ErrorCode.NONE)
        return effects

    def expire(self, group_id: str, now: Moment) -> GroupEffects:
        """Delete offsets that outlived their retention, and an empty group with the last of them."""
        group = self._groups.get(group_id)
        effects = self._expire_offsets(group_id, group, now)
        if group is not None and group.is_idle and group_id not in self._offsets:
            self._drop(group_id, effects)
        return effects

    def next_deadline_ms(self) -> int | None:
        share_ms, next_ms = self.share.next_deadline_ms(), self._deadlines.next_ms()
        return min((at_ms for at_ms in (share_ms, next_ms) if at_ms is not None), default=None)

    def tick(self, now: Moment) -> GroupEffects:
        effects = GroupEffects()
        while (group_id := self._deadlines.take_due(now.monotonic_ms)) is not None:
            group = self._groups[group_id]
            effects.add(group.tick(now))
            self._downgrade_if_due(group, now, effects)
        effects.add(self.share.tick(now))
        return effects

    def kill(self, error: ErrorCode) -> GroupEffects:
        """Another node has the shard: answer every request that waits with the error."""
        effects = GroupEffects()
        for group in self._groups.values():
            effects.add(group.kill(error))
        return effects

    # Views

    def group_ids(self) -> list[str]:
        return self._table.group_ids()

    def listed(self) -> Iterator[ListedGroup]:
        return self._table.listed()

    def described(self, group_id: str) -> DescribedGroup:
        """A classic group; one that is unknown, or of another kind, is described as dead."""
        return self._table.described(group_id)

    def described_consumer(self, group_id: str) -> DescribedConsumerGroup:
        """A consumer group. Raises RequestError if it is none."""
        return self._table.described_consumer(group_id)

    def departures(self) -> Iterator[MemberDeparture]:
        """The departures of all groups, group by group, the oldest first."""
        return self._table.departures()

    # Inside

    def _known(self, group_id: str) -> Group:
        check_group_id(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _check_commit(self, group_id: str, request: CommitRequest, now: Moment, is_transactional: bool = False) -> None:
        check_group_id(group_id)
        if group_id in self.share:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is a share group, which commits no offsets.")
        group = self._groups.get(group_id)
        if group is not None:
            group.check_commit(request, now, is_transactional)
            self._note(group)
        elif request.generation >= 0:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        elif group_id not in self._offsets:
            self._check_group_count(group_id)

    def _check_share_group(self, group_id: str) -> None:
        """Raise RequestError unless the group is a share group, or may become one."""
        if group_id in self.share:
            return
        if group_id in self._groups or group_id in self._offsets:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        self._check_group_count(group_id)

    def _check_group_count(self, group_id: str) -> None:
        count = len(self._groups) + len(self._offsets) + len(self.share)
        if group_id not in self._offsets and count >= self._settings.max_groups:
            raise RequestError(ErrorCode.POLICY_VIOLATION, "The broker has its limit of groups.")

    def _upgraded(self, group_id: str, group: ClassicGroup | None, now: Moment) -> tuple[ConsumerGroup, GroupEffects]:
        """A new consumer group, or what a classic group would become. Not in the table yet: the join may be refused."""
        new, effects = ConsumerGroup(group_id, self._settings, self._topics), GroupEffects()
        if group is not None and len(group.members) and not can_upgrade(group, self._settings):
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if group is not None:
            for event in upgraded(group, self._topics):
                effects.events.append(event)
                new.apply(event)
            new.resume(now)
        return new, effects

    def _replace(self, group: Group | None, new: Group, effects: GroupEffects) -> GroupEffects:
        """Put a new group into the table, and delete the group of another kind that had its name."""
        before = GroupEffects()
        if group is not None:
            new.departures.take_over(group.departures)
            before.add(group.kill(ErrorCode.REBALANCE_IN_PROGRESS))
            self._drop(group.group_id, before)
        before.add(effects)
        self._groups[new.group_id] = new
        self._note(new)
        return before

    def _downgrade_if_due(self, group: Group, now: Moment, effects: GroupEffects) -> None:
        """After members came or went: a consumer group in which all members are classic becomes a classic group."""
        if isinstance(group, ConsumerGroup) and group.is_to_be_classic:
            stored, protocols = downgraded(group, self._topics, now), protocols_of(group)
            for event in list(group.stored.deletions()):
                self._log(event, effects)
            self._log(stored, effects)
            classic = self._table.classic_group(group.group_id)
            classic.departures.take_over(group.departures)
            effects.add(classic.take_over(protocols, now))
            group = classic
        self._note(group)

    def _expire_offsets(self, group_id: str, group: Group | None, now: Moment) -> GroupEffects:
        nothing: frozenset[str] = frozenset()
        if isinstance(group, ConsumerGroup):
            still_read = nothing if group.is_idle else group.subscribed_topics
            return self._offsets.expire(group_id, now, group.emptied_ms, still_read)
        if group is None or (group.is_idle and group.stored is None):
            return self._offsets.expire(group_id, now, 0, nothing)
        if group.is_idle and group.stored is not None:
            return self._offsets.expire(group_id, now, group.stored.state_timestamp_ms, nothing)
        if group.state is GroupState.STABLE and group.subscribed_topics is not None:
            return self._offsets.expire(group_id, now, 0, group.subscribed_topics)
        return GroupEffects()

    def _drop(self, group_id: str, effects: GroupEffects) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        effects.add(group.kill(ErrorCode.UNKNOWN_MEMBER_ID))
        if isinstance(group, ConsumerGroup):
            for event in list(group.stored.deletions()):
                self._log(event, effects)
            return
        if group.stored is not None:
            self._log(GroupDeleted(group_id), effects)
            return
        self._forget(group_id)

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._deadlines.clear(group_id)
        self._size_bytes -= self._group_bytes.pop(group_id, 0)

    def _log(self, event: Event, effects: GroupEffects) -> None:
        effects.events.append(event)
        self.apply(event)

    def _note(self, group: Group) -> None:
        """Update the shard's size and deadlines after a group has changed."""
        self._size_bytes += group.size_bytes - self._group_bytes.get(group.group_id, 0)
        self._group_bytes[group.group_id] = group.size_bytes
        at_ms = group.next_deadline_ms()
        if at_ms is None:
            self._deadlines.clear(group.group_id)
        else:
            self._deadlines.set(group.group_id, at_ms)


def check_group_id(group_id: str) -> None:
    """Raise RequestError for a name that no group may have."""
    if not group_id or not fits_string(group_id):
        raise RequestError(ErrorCode.INVALID_GROUP_ID)
