"""Classic members of a consumer group: they still send JoinGroup, SyncGroup and Heartbeat.

To such a member the broker is a leader that needs no SyncGroup of others: a join is answered at once with the member's
epoch for a generation, and a sync with what the member has. A heartbeat tells it to join again when the target has
moved, when it has to give something up, or when what it waits for has come free. A join says what the member still
owns, which is nothing if its assignor gives everything up before a join.
"""

from headwater.groups.consumer_events import ClassicPart, ConsumerMemberStored, CurrentStored, MemberState
from headwater.groups.consumer_membership import ConsumerMembership, ConsumerTimer
from headwater.groups.consumer_protocol import ConsumerSubscription, read_subscription, with_ids, write_assignment
from headwater.groups.effects import GroupEffects, JoinAnswer, ReplyTo, SyncAnswer
from headwater.groups.requests import JoinRequest, SyncRequest
from headwater.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment

MAX_GIVEN_OUT = 1_000
"""Member ids that are remembered before they are used; a client with an older one has to get another."""


class ClassicMembers:
    def __init__(self, membership: ConsumerMembership) -> None:
        self._membership = membership
        self._stored = membership.stored
        self._given_out: dict[str, None] = {}
        """Member ids that no client has joined with yet (KIP-394), the oldest first."""

    def join(self, request: JoinRequest, unique: str, to: ReplyTo, now: Moment) -> GroupEffects:
        request.check(self._membership.settings)
        before = self._joining(request)
        subscription = self._subscription(request)
        protocol = self.shared_protocol(request.protocols_by_name, before)
        out = GroupEffects()
        fresh_id = f"{request.instance_id or request.client_id}-{unique}"
        if request.asks_for_id:
            self._give_out(fresh_id)
            out.reply(to, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, fresh_id))
            return out
        member = ConsumerMemberStored(
            group_id=self._stored.group_id,
            member_id=request.member_id or fresh_id,
            instance_id=request.instance_id,
            rack_id=None,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=subscription.topics,
            topic_regex=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicPart(request.session_timeout_ms, request.protocols_by_name),
        )
        self._given_out.pop(member.member_id, None)
        self._membership.update(member, before, now, out)
        owned = with_ids(subscription.owned, self._membership.topics)
        current = self._membership.reconcile(member, owned, now, out, joins=True)
        self._membership.unwatch(ConsumerTimer.REJOIN, member.member_id)
        self._membership.watch(ConsumerTimer.SYNC, member, member.rebalance_timeout_ms, now)
        out.reply(to, JoinAnswer(ErrorCode.NONE, member.member_id, current.epoch, CONSUMER_PROTOCOL_TYPE, protocol))
        return out

    def sync(self, request: SyncRequest, to: ReplyTo, now: Moment) -> GroupEffects:
        member, classic, current = self._known(request.member_id, request.instance_id, request.generation)
        protocol = self.shared_protocol(classic.protocols, member)
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol not in (None, protocol):
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        out = GroupEffects()
        self._membership.unwatch(ConsumerTimer.SYNC, member.member_id)
        self._membership.heard_of(member, now)
        if self._stored.epoch > current.epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_rejoin(member, now)
            out.reply(to, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
            return out
        assignment = write_assignment(current.assigned, self._membership.topics)
        out.reply(to, SyncAnswer(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocol, assignment))
        return out

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Moment) -> ErrorCode:
        member, _, current = self._known(member_id, instance_id, generation)
        self._membership.heard_of(member, now)
        if not self._has_to_rejoin(current):
            return ErrorCode.NONE
        self._expect_rejoin(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def shared_protocol(self, protocols: tuple[tuple[str, bytes], ...], besides: ConsumerMemberStored | None) -> str:
        """The first of these protocols that all other classic members support, too."""
        others = [
            {name for name, _ in member.classic.protocols}
            for member in self._stored.members.values()
            if member.classic is not None and (besides is None or member.member_id != besides.member_id)
        ]
        for name, _ in protocols:
            if all(name in names for names in others):
                return name
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _give_out(self, member_id: str) -> None:
        self._given_out[member_id] = None
        if len(self._given_out) > MAX_GIVEN_OUT:
            del self._given_out[next(iter(self._given_out))]

    def _joining(self, request: JoinRequest) -> ConsumerMemberStored | None:
        """The member that sent the request, or the static member that it replaces; None for a new member."""
        if request.member_id != "":
            present = self._stored.members.get(request.member_id)
            if present is not None or request.instance_id is not None:
                return self._membership.known(request.member_id, request.instance_id)
            if request.member_id not in self._given_out:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        elif request.instance_id is not None:
            holder = self._membership.holder(request.instance_id)
            if holder is not None:
                return holder
        self._membership.check_room()
        return None

    def _subscription(self, request: JoinRequest) -> ConsumerSubscription:
        """The subscription in the metadata. Only members of type `consumer` can be assigned by the broker."""
        subscription = read_subscription(request.protocols[0].metadata)
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or subscription is None:
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return subscription

    def _known(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMemberStored, ClassicPart, CurrentStored]:
        member = self._membership.known(member_id, instance_id)
        if member.classic is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, "The member does not speak the classic protocol.")
        current = self._stored.current(member_id)
        if generation != current.epoch:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        return member, member.classic, current

    def _has_to_rejoin(self, current: CurrentStored) -> bool:
        if current.epoch < self._stored.epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return current.state is MemberState.UNRELEASED_PARTITIONS and not self._waits_for_others(current)

    def _waits_for_others(self, current: CurrentStored) -> bool:
        """Whether every partition that the member lacks is still owned by another member."""
        for topic_id, indexes in self._stored.target(current.member_id).items():
            for index in indexes - current.assigned.get(topic_id, frozenset()):
                if self._stored.owner(topic_id, index) is None:
                    return False
        return True

    def _expect_rejoin(self, member: ConsumerMemberStored, now: Moment) -> None:
        if (ConsumerTimer.REJOIN, member.member_id) not in self._membership.deadlines:
            self._membership.watch(ConsumerTimer.REJOIN, member, member.rebalance_timeout_ms, now)
