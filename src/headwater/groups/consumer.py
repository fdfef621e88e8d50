"""One consumer group, whose members the broker assigns (KIP-848): their requests, and which effects are durable.

- `apply` is the only way in which durable state changes, and all of a group's state is durable except deadlines:
  after a restart members go on with the epochs they had, and their deadlines begin anew.
- Every request is answered at once. A member learns with its next heartbeat what it has to give up or may take.
- A request of another epoch or of an unknown member changes nothing, and neither does a method that raises
  RequestError.

Members of the classic protocol in such a group are served by `consumer_classic`.
"""

from collections.abc import Sequence
from dataclasses import replace

from headwater.groups.assignment import is_within
from headwater.groups.consumer_classic import ClassicMembers
from headwater.groups.consumer_events import (
    LEFT_STATIC_EPOCH,
    ConsumerEvent,
    ConsumerMemberStored,
    CurrentStored,
    MemberState,
)
from headwater.groups.consumer_membership import ConsumerMembership
from headwater.groups.consumer_requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    UNCHANGED_MS,
    ConsumerHeartbeat,
)
from headwater.groups.departures import DepartureReason, Departures
from headwater.groups.effects import ConsumerAnswer, GroupEffects, LeaveAnswer, ReplyTo
from headwater.groups.rebalance import GroupState
from headwater.groups.requests import CommitRequest, JoinRequest, LeaveRequest, SyncRequest
from headwater.groups.settings import GroupSettings
from headwater.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from headwater.groups.topic_patterns import TopicPattern
from headwater.groups.topics import TopicTable
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment

WAITING_HEARTBEAT_INTERVAL_MS = 200


class ConsumerGroup:
    def __init__(self, group_id: str, settings: GroupSettings, topics: TopicTable) -> None:
        self.group_id = group_id
        self.membership = ConsumerMembership(group_id, settings, topics)
        self.stored = self.membership.stored
        self.emptied_ms = 0
        """When the last member left, as far as this process knows."""
        self._settings = settings
        self._classic = ClassicMembers(self.membership)

    # What is remembered

    def apply(self, event: ConsumerEvent) -> None:
        self.stored.apply(event)

    def resume(self, now: Moment) -> None:
        self.membership.resume(now)

    # Members that send ConsumerGroupHeartbeat

    def consumer_heartbeat(self, request: ConsumerHeartbeat, to: ReplyTo, now: Moment) -> GroupEffects:
        """Join (epoch 0), stay (the member's epoch), leave (-1), or leave for a while (-2). `request` was checked."""
        out = GroupEffects()
        if request.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            self._leave_by_heartbeat(request, now, out)
            out.reply(to, ConsumerAnswer(request.member_id, request.epoch, 0))
            return out
        before = self._joining(request) if request.epoch == JOIN_EPOCH else self._staying(request)
        if request.topic_regex and (before is None or before.topic_regex != request.topic_regex):
            TopicPattern(request.topic_regex)
        member = _described(self.group_id, request, before)
        held = self.stored.current(request.member_id)
        self.membership.update(member, before, now, out, request.rights)
        current = self.membership.reconcile(member, request.owned, now, out, joins=request.epoch == JOIN_EPOCH)
        tells_all = (
            request.epoch == JOIN_EPOCH
            or request.is_full
            or request.epoch != held.epoch
            or held.assigned != current.assigned
            or request.owned not in (None, current.assigned)  # It may have missed an answer.
        )
        out.reply(
            to,
            ConsumerAnswer(
                member.member_id,
                current.epoch,
                self._heartbeat_interval_ms(current),
                current.assigned if tells_all else None,
            ),
        )
        return out

    def _heartbeat_interval_ms(self, current: CurrentStored) -> int:
        """Shorter for a member that waits for partitions of others: it learns with a heartbeat that they are free."""
        interval_ms = self._settings.consumer_times(self.group_id).heartbeat_interval_ms
        if current.state is MemberState.UNRELEASED_PARTITIONS:
            return min(interval_ms, WAITING_HEARTBEAT_INTERVAL_MS)
        return interval_ms

    # Members of the classic protocol

    def join(self, request: JoinRequest, unique: str, to: ReplyTo, now: Moment) -> GroupEffects:
        return self._classic.join(request, unique, to, now)

    def sync(self, request: SyncRequest, to: ReplyTo, now: Moment) -> GroupEffects:
        return self._classic.sync(request, to, now)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Moment) -> ErrorCode:
        return self._classic.heartbeat(member_id, instance_id, generation, now)

    def leave(self, requests: Sequence[LeaveRequest], to: ReplyTo, now: Moment) -> GroupEffects:
        """An administrator may name members of either protocol by instance id alone."""
        out = GroupEffects()
        answers = [self._leave_one(request, now, out) for request in requests]
        if out.events:
            self._lost_members(now, out)
        out.reply(to, answers)
        return out

    # Offsets

    def check_commit(self, request: CommitRequest, now: Moment, is_transactional: bool = False) -> None:
        """Raise RequestError if this member may not commit offsets. In a transaction the producer commits, and may
        leave the member out."""
        if request.generation < 0 and not self.stored.members:
            return
        if is_transactional and request.is_anonymous:
            return
        member = self.membership.known(request.member_id, request.instance_id)
        if member.classic is None and not request.knows_member_epochs:
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, "A generation is no member epoch.")
        self._check_same_epoch(member, request.generation)
        if member.classic is not None and not is_transactional:
            self.membership.heard_of(member, now)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise RequestError if this member may not fetch offsets. A request without a member may."""
        if not member_id and epoch < 0:
            return
        self._check_same_epoch(self.membership.known(member_id or "", None), epoch)

    # Time

    def next_deadline_ms(self) -> int | None:
        return self.membership.deadlines.next_ms()

    def tick(self, now: Moment) -> GroupEffects:
        out = GroupEffects()
        for member, reason in self.membership.due(now):
            self.membership.remove(member, reason, "", now, out)
        if out.events:
            self._lost_members(now, out)
        return out

    def kill(self, error: ErrorCode) -> GroupEffects:
        """Nothing to answer: no request ever waits."""
        return GroupEffects()

    # Views

    @property
    def state(self) -> GroupState:
        if not self.stored.members:
            return GroupState.EMPTY
        if self.stored.target_epoch != self.stored.epoch:
            return GroupState.ASSIGNING
        if all(self._has_arrived(self.stored.current(member_id)) for member_id in self.stored.members):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def departures(self) -> Departures:
        return self.membership.departures

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return self.membership.reads.of_group()

    @property
    def size_bytes(self) -> int:
        return self.stored.size_bytes

    @property
    def is_idle(self) -> bool:
        return not self.stored.members

    @property
    def is_to_be_classic(self) -> bool:
        """All members are classic, and the migration policy allows the downgrade."""
        is_all_classic = 0 < self.stored.classic_members == len(self.stored.members)
        return is_all_classic and self._settings.migration_policy.allows_downgrade

    # Inside

    def _joining(self, request: ConsumerHeartbeat) -> ConsumerMemberStored | None:
        """The member that joins again, or the static member that it replaces; None for a new member."""
        holder = self.membership.holder(request.instance_id)
        present = self.stored.members.get(request.member_id)
        if holder is None or holder is present:
            if present is None:
                self.membership.check_room()
            elif present.instance_id != request.instance_id:
                raise RequestError(ErrorCode.INVALID_REQUEST, "The member id belongs to another instance.")
            return present
        if present is not None:
            raise RequestError(ErrorCode.INVALID_REQUEST, "The member id belongs to another instance.")
        is_away = self.stored.current(holder.member_id).epoch == LEFT_STATIC_EPOCH
        if not is_away and holder.classic is None:
            raise RequestError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Instance {request.instance_id} is in use by member {holder.member_id}.",
            )
        return holder

    def _staying(self, request: ConsumerHeartbeat) -> ConsumerMemberStored:
        member = self.membership.known(request.member_id, request.instance_id)
        current = self.stored.current(member.member_id)
        if request.epoch == current.epoch:
            return member
        missed_an_answer = (
            0 < request.epoch == current.previous_epoch < current.epoch
            and request.owned is not None
            and is_within(request.owned, current.assigned)
        )
        if not missed_an_answer:
            raise RequestError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The member is at epoch {current.epoch}, not {request.epoch}; it must give up all and join again.",
            )
        return member

    def _leave_by_heartbeat(self, request: ConsumerHeartbeat, now: Moment, out: GroupEffects) -> None:
        member = self.membership.known(request.member_id, request.instance_id)
        if request.epoch == LEAVE_STATIC_EPOCH:
            self.membership.let_away(member, now, out)
            return
        self.membership.remove(member, DepartureReason.LEFT, "", now, out)
        self._lost_members(now, out)

    def _leave_one(self, request: LeaveRequest, now: Moment, out: GroupEffects) -> LeaveAnswer:
        error = ErrorCode.NONE
        try:
            holder = self.membership.holder(request.instance_id) if request.member_id == "" else None
            member_id = holder.member_id if holder is not None else request.member_id
            member = self.membership.known(member_id, request.instance_id)
            self.membership.remove(member, DepartureReason.LEFT, request.reason or "", now, out)
        except RequestError as refusal:
            error = refusal.code
        return LeaveAnswer(error, request.member_id, request.instance_id)

    def _lost_members(self, now: Moment, out: GroupEffects) -> None:
        if self.is_to_be_classic:
            return  # The shard downgrades the group, in the epoch that its members know.
        self.membership.lost_members(out)
        if not self.stored.members:
            self.emptied_ms = now.wall_ms

    def _check_same_epoch(self, member: ConsumerMemberStored, epoch: int) -> None:
        if epoch != self.stored.current(member.member_id).epoch:
            is_classic = member.classic is not None
            raise RequestError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH)

    def _has_arrived(self, current: CurrentStored) -> bool:
        if current.epoch == LEFT_STATIC_EPOCH:
            return True
        return current.epoch == self.stored.target_epoch and not current.state


def _described(group_id: str, request: ConsumerHeartbeat, before: ConsumerMemberStored | None) -> ConsumerMemberStored:
    """The member with the request's changes: omitted fields stay as they were. Most requests omit all."""
    if before is not None and request.says_nothing and before.classic is None and before.client_id == request.client_id:
        return before
    if before is None:
        before = ConsumerMemberStored(
            group_id=group_id,
            member_id=request.member_id,
            instance_id=request.instance_id,
            rack_id=None,
            client_id="",
            client_host="",
            topic_names=(),
            topic_regex=None,
            rebalance_timeout_ms=0,
            server_assignor=None,
        )
    elif request.epoch == JOIN_EPOCH:
        before = replace(before, rack_id=None, topic_names=(), topic_regex=None, server_assignor=None)
    has_timeout = request.rebalance_timeout_ms != UNCHANGED_MS
    return replace(
        before,
        member_id=request.member_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=before.topic_names if request.topic_names is None else request.topic_names,
        topic_regex=before.topic_regex if request.topic_regex is None else request.topic_regex or None,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else before.rebalance_timeout_ms,
        server_assignor=before.server_assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )
