"""One classic group: the requests of its members, and which of their effects are durable.

- `apply` is the only way in which durable state (`stored`) changes; all else is the course of a running rebalance,
  which a restart begins anew. The group is stored when the leader's assignment arrives, when the group becomes
  empty, and when a static member of a stable group gets a new member id.
- A request of another generation or of an unknown member changes nothing, and neither does a method that raises
  RequestError.
"""

from collections.abc import Mapping, Sequence

from headwater.groups.departures import DepartureReason, Departures
from headwater.groups.effects import GroupEffects, JoinAnswer, LeaveAnswer, ReplyTo
from headwater.groups.events import GroupDeleted, GroupStored, StoredMember
from headwater.groups.members import ClassicMember, MemberProtocol, Roster, size_bytes
from headwater.groups.rebalance import GroupState, Rebalance, Timer
from headwater.groups.requests import CommitRequest, JoinRequest, LeaveRequest, SyncRequest
from headwater.groups.settings import GroupSettings
from headwater.groups.subscriptions import subscribed_topics
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment


class ClassicGroup:
    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self.stored: GroupStored | None = None
        self._settings = settings
        self._rebalance = Rebalance(group_id, settings)

    # What is remembered

    def apply(self, event: GroupStored | GroupDeleted) -> None:
        self.stored = event if isinstance(event, GroupStored) else None

    def resume(self, now: Moment) -> None:
        """Take up the stored group: without a rebalance, its members have a whole session to send a request."""
        self._recall(now)
        for member in self.members:
            self._rebalance.recall(member, now)

    def _recall(self, now: Moment) -> None:
        stored = self.stored
        if stored is None:
            return
        for each in stored.members:
            instance_taken = each.instance_id is not None and self.members.id_of_instance(each.instance_id) is not None
            if each.member_id in self.members or instance_taken:
                continue  # We store no member twice, but these bytes may not be ours.
            member = _recalled(each, stored.protocol)
            self.members.add(member)
            self._rebalance.heard_of(member, now)
        if stored.leader is not None and stored.leader in self.members:
            self.members.leader = stored.leader
        self._rebalance.resume(stored.generation, stored.protocol_type, stored.protocol)

    def take_over(self, protocols: Mapping[str, tuple[tuple[str, bytes], ...]], now: Moment) -> GroupEffects:
        """Continue a consumer group, which has been stored as a classic one: with all protocols that its members
        support, and with a rebalance, because a member has just left."""
        out = GroupEffects()
        self._recall(now)
        for member in self.members:
            offered = tuple(MemberProtocol(name, metadata) for name, metadata in protocols[member.member_id])
            self.members.set_protocols(member, offered)
        self._rebalance.prepare(now, out)
        return out

    # Requests of members

    def join(self, request: JoinRequest, unique: str, to: ReplyTo, now: Moment) -> GroupEffects:
        """Enter the next generation. `unique` makes a new member id, should one be needed."""
        request.check(self._settings)
        member = self._joining_member(request)
        self._check_room(request, member)
        if not self._agrees(request, member):
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        out = GroupEffects()
        fresh_id = f"{request.instance_id or request.client_id}-{unique}"
        if request.asks_for_id:
            self._rebalance.pending.add(fresh_id)
            self._rebalance.deadlines.set((Timer.PENDING, fresh_id), now.monotonic_ms + request.session_timeout_ms)
            out.reply(to, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, fresh_id))
        elif member is None:
            self._enter(request, request.member_id or fresh_id, to, now, out)
        elif request.member_id == "":
            self._replace(member, request, fresh_id, to, now, out)
        else:
            self._rejoin(member, request, to, now, out)
        return out

    def sync(self, request: SyncRequest, to: ReplyTo, now: Moment) -> GroupEffects:
        """Bring (the leader) or wait for (the others) the assignment of the generation."""
        member = self._known(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (None, self.protocol):
            raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is GroupState.PREPARING:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)
        out = GroupEffects()
        self._rebalance.synced(member)
        if self.state is GroupState.STABLE:
            self._rebalance.heard_of(member, now)
            out.reply(to, self._rebalance.assigned(member))
            return out
        self._rebalance.wait_for_sync(member, to, out)
        if member.member_id == self.members.leader and self._rebalance.assign(request.assignments, now, out):
            self._store(now, out)
            self._rebalance.tell_assignments(now, out)
        return out

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Moment) -> ErrorCode:
        member = self._known(member_id, instance_id)
        self._check_generation(generation)
        self._rebalance.heard_of(member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, requests: Sequence[LeaveRequest], to: ReplyTo, now: Moment) -> GroupEffects:
        out = GroupEffects()
        answers = [self._leave_one(request, now, out) for request in requests]
        self._rebalance.continue_without_removed(now, out)
        self._store_if_emptied(now, out)
        out.reply(to, answers)
        return out

    def check_commit(self, request: CommitRequest, now: Moment, is_transactional: bool = False) -> None:
        """Raise RequestError if this member may not commit offsets. A commit is a sign of life. In a transaction the
        producer commits: it may leave the member out, and need not wait for a rebalance to end."""
        member_id, instance_id, generation = request.member_id, request.instance_id, request.generation
        if generation < 0 and self.state is GroupState.EMPTY:
            return  # No members, no generation to respect: an administrator, or a consumer that assigns itself.
        if request.is_anonymous:
            if is_transactional:
                return
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self._known(member_id, instance_id)
        self._check_generation(generation)
        if is_transactional:
            return
        if self.state is GroupState.COMPLETING:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance.heard_of(member, now)

    # Time

    def next_deadline_ms(self) -> int | None:
        """When to call `tick`: never after a deadline, perhaps before."""
        return self._rebalance.deadlines.next_ms()

    def tick(self, now: Moment) -> GroupEffects:
        out = GroupEffects()
        while (due := self._rebalance.deadlines.take_due(now.monotonic_ms)) is not None:
            timer, member_id = due
            match timer:
                case Timer.SESSION:
                    member = self.members.get(member_id)
                    assert member is not None, "a session belongs to a member"
                    is_back = member_id not in self._rebalance.unheard
                    reason = DepartureReason.SESSION_EXPIRED if is_back else DepartureReason.NOT_BACK
                    self._rebalance.remove(member, reason, "", now, out)
                case Timer.PENDING:
                    self._rebalance.forget_pending(member_id)
                case Timer.JOIN:
                    self._rebalance.join_time_is_up(now, out)
                case Timer.SYNC:
                    self._rebalance.sync_time_is_up(now, out)
            self._rebalance.continue_without_removed(now, out)
        self._store_if_emptied(now, out)
        return out

    def kill(self, error: ErrorCode) -> GroupEffects:
        """The group ends: every request that waits is answered with the error."""
        out = GroupEffects()
        self._rebalance.answer_all(error, out)
        return out

    # Views

    @property
    def state(self) -> GroupState:
        return self._rebalance.state

    @property
    def generation(self) -> int:
        return self._rebalance.generation

    @property
    def protocol_type(self) -> str:
        return self._rebalance.protocol_type

    @property
    def protocol(self) -> str | None:
        return self._rebalance.protocol

    @property
    def members(self) -> Roster:
        return self._rebalance.members

    @property
    def departures(self) -> Departures:
        return self._rebalance.departures

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the present generation reads; None if that cannot be known."""
        return self._rebalance.subscribed

    @property
    def size_bytes(self) -> int:
        """Size of the members' metadata and assignments."""
        return self.members.metadata_bytes + self._rebalance.assignment_bytes

    @property
    def is_idle(self) -> bool:
        """No members, and no member id given out that may still be used to join."""
        return self.state is GroupState.EMPTY and not self._rebalance.pending

    # Joining

    def _joining_member(self, request: JoinRequest) -> ClassicMember | None:
        """The member that sent the request, or the static member that it replaces; None for a new member."""
        if request.member_id == "":
            member_id = self.members.id_of_instance(request.instance_id) if request.instance_id is not None else None
            return self.members.get(member_id) if member_id is not None else None
        if request.member_id in self._rebalance.pending and request.instance_id is None:
            return None
        return self._known(request.member_id, request.instance_id)

    def _check_room(self, request: JoinRequest, member: ClassicMember | None) -> None:
        limit = self._settings.max_members
        if member is not None:
            # A group over its limit (which was lowered) shrinks at the next rebalance.
            is_joining = member.joining is not None
            has_room = self.state is not GroupState.PREPARING or is_joining or self.members.joining < limit
        elif request.asks_for_id:
            has_room = len(self._rebalance.pending) < limit and len(self.members) < limit
        else:
            has_room = len(self.members) < limit
        if not has_room:
            raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has its limit of {limit} members.")
        replaced_bytes = size_bytes(member.protocols) if member is not None else 0
        if self.members.metadata_bytes - replaced_bytes + request.size_bytes > self._settings.max_group_bytes:
            raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED, "The members' metadata would be too large together.")

    def _agrees(self, request: JoinRequest, member: ClassicMember | None) -> bool:
        if len(self.members) and request.protocol_type != self.protocol_type:
            return False
        return self.members.supports_any(request.protocols, besides=member)

    def _enter(self, request: JoinRequest, member_id: str, to: ReplyTo, now: Moment, out: GroupEffects) -> None:
        if not len(self.members):
            self._rebalance.protocol_type = request.protocol_type
        self._rebalance.forget_pending(member_id)
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
        )
        self.members.add(member)
        self._rebalance.wait_for_join(member, to, now, out)
        self._rebalance.prepare(now, out)
        self._rebalance.came(member, now)

    def _rejoin(self, member: ClassicMember, request: JoinRequest, to: ReplyTo, now: Moment, out: GroupEffects) -> None:
        is_leader = member.member_id == self.members.leader
        keeps_generation = self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and not is_leader)
        if keeps_generation and member.protocols == request.protocols:
            # The answer to an earlier join was lost: give it again. A leader's rejoin asks for a new assignment.
            self._rebalance.heard_of(member, now)
            out.reply(to, self._rebalance.joined(member))
            return
        self._update(member, request)
        self._rebalance.wait_for_join(member, to, now, out)
        self._rebalance.prepare(now, out)

    def _replace(
        self, member: ClassicMember, request: JoinRequest, fresh_id: str, to: ReplyTo, now: Moment, out: GroupEffects
    ) -> None:
        """A static member came back without its member id: it gets a new one, and the old id is fenced (KIP-345)."""
        old_id, old_metadata = member.member_id, member.metadata(self.protocol)
        was_leader = old_id == self.members.leader
        self._rebalance.rename(member, fresh_id, now, out)
        self._update(member, request)
        keeps_assignment = (
            self.state is GroupState.STABLE
            and self.members.vote() == self.protocol
            and subscribed_topics(member.metadata(self.protocol)) == subscribed_topics(old_metadata)
        )
        if not keeps_assignment:
            self._rebalance.wait_for_join(member, to, now, out)
            self._rebalance.prepare(now, out)
            return
        self._rebalance.heard_of(member, now)
        self._store(now, out)
        # A leader that cannot skip the assignment would begin one: the answer names its former id as leader.
        leads_again = was_leader and request.can_skip_assignment
        out.reply(
            to,
            JoinAnswer(
                ErrorCode.NONE,
                fresh_id,
                self.generation,
                self.protocol_type,
                self.protocol,
                old_id if was_leader and not leads_again else self.members.leader or "",
                skip_assignment=leads_again,
                members=self._rebalance.all_joined() if leads_again else (),
            ),
        )

    def _update(self, member: ClassicMember, request: JoinRequest) -> None:
        self.members.set_protocols(member, request.protocols)
        member.client_id, member.client_host = request.client_id, request.client_host
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    # Leaving

    def _leave_one(self, request: LeaveRequest, now: Moment, out: GroupEffects) -> LeaveAnswer:
        error = ErrorCode.NONE
        if request.instance_id is None and request.member_id in self._rebalance.pending:
            self._rebalance.forget_pending(request.member_id)
        else:
            try:
                member = self._leaving_member(request)
                self._rebalance.remove(member, DepartureReason.LEFT, request.reason or "", now, out)
            except RequestError as refusal:
                error = refusal.code
        return LeaveAnswer(error, request.member_id, request.instance_id)

    def _leaving_member(self, request: LeaveRequest) -> ClassicMember:
        """An administrator may remove a static member by its instance id alone."""
        if request.member_id == "" and request.instance_id is not None:
            member_id = self.members.id_of_instance(request.instance_id)
            return self._known(member_id or "", request.instance_id)
        return self._known(request.member_id, request.instance_id)

    # Shared

    def _known(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """An empty member id is no rival of the instance's: librdkafka forgets its id when the coordinator was away for
        a session, and still sends a heartbeat (its issue 3437). Kafka fences the client for that, which ends it."""
        if instance_id is not None and member_id != "":
            current = self.members.id_of_instance(instance_id)
            if current != member_id:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID if current is None else ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)

    def _store_if_emptied(self, now: Moment, out: GroupEffects) -> None:
        if self.state is GroupState.EMPTY and self.generation != (self.stored.generation if self.stored else 0):
            self._store(now, out)

    def _store(self, now: Moment, out: GroupEffects) -> None:
        members = tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(self.protocol),
                assignment=member.assignment,
            )
            for member in self.members
        )
        leader = self.members.leader
        event = GroupStored(
            group_id=self.group_id,
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=leader,
            state_timestamp_ms=now.wall_ms,
            members=members,
        )
        out.events.append(event)
        self.apply(event)


def _recalled(stored: StoredMember, protocol: str | None) -> ClassicMember:
    return ClassicMember(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=(MemberProtocol(protocol or "", stored.subscription),),
        assignment=stored.assignment,
        is_new=False,
    )
