"""From one generation of a classic group to the next: joins, deadlines, the leader's assignment, and the answers.

    EMPTY ──join──▶ PREPARING ──all joined, or time is up──▶ COMPLETING ──leader's assignment──▶ STABLE
      ▲                ▲  │                                      │                                 │
      └──no members────┼──┘                                      │                                 │
                       └────────a member joins, leaves, expires, or changes its protocols──────────┘

- The generation only grows, and a generation that has lost a member ends.
- A waiting JoinGroup or SyncGroup keeps its member alive; otherwise its session deadline runs.
- Nothing here is durable. `assign` and becoming empty say so in their result, and the group stores itself.
"""

import enum

from headwater.groups.departures import MAX_EXPLANATION_CHARS, DepartureReason, Departures, MemberDeparture
from headwater.groups.effects import GroupEffects, JoinAnswer, JoinedMember, ReplyTo, SyncAnswer
from headwater.groups.members import ClassicMember, Roster
from headwater.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from headwater.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from headwater.groups.unheard import Unheard
from headwater.model.deadlines import Deadlines
from headwater.model.errors import ErrorCode
from headwater.model.moment import Moment

MIN_POSTPONEMENT_MS = 1_000
"""The shortest wait before a rebalance that no member joined is tried again."""
_MAX_GENERATION = 2**31 - 1


class GroupState(enum.Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    ASSIGNING = "Assigning"
    """Consumer groups only: the target is not computed yet."""
    RECONCILING = "Reconciling"
    """Consumer groups only: members are on their way to the target."""
    STABLE = "Stable"
    DEAD = "Dead"


class Timer(enum.Enum):
    SESSION = enum.auto()
    """A member that sends nothing until then is removed."""
    PENDING = enum.auto()
    """A member id that no client has joined with is forgotten."""
    JOIN = enum.auto()
    """The rebalance goes on with the members that have joined."""
    SYNC = enum.auto()
    """Members that joined, but did not send SyncGroup, are removed."""


class Rebalance:
    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.members = Roster()
        self.pending: set[str] = set()
        """Member ids that no client has joined with yet (KIP-394)."""
        self.departures = Departures()
        self.unheard = Unheard()
        self.deadlines: Deadlines[tuple[Timer, str]] = Deadlines()
        self.subscribed: frozenset[str] | None = frozenset()
        """The topics that the generation reads; None if that cannot be known."""
        self.assignment_bytes = 0
        self._group_id = group_id
        self._settings = settings
        self._generation_size = 0
        self._unsynced: set[str] = set()
        self._initial_delay_left_ms: int | None = None
        """Set while an empty group waits for its first members: how much longer it may wait in all."""
        self._joined_in_delay = False

    def resume(self, generation: int, protocol_type: str, protocol: str | None) -> None:
        """Take up a stored generation, whose members have been added."""
        self.generation, self.protocol_type, self.protocol = generation, protocol_type, protocol
        self._generation_size = len(self.members)
        self.assignment_bytes = sum(len(member.assignment) for member in self.members)
        self.state = GroupState.STABLE if len(self.members) else GroupState.EMPTY
        self._note_subscriptions()

    # One member

    def recall(self, member: ClassicMember, now: Moment) -> None:
        """A member was read from the log: it has a whole session to send a request, less if a rebalance waits for
        it."""
        self.heard_of(member, now)
        self.unheard.recall(member, now.monotonic_ms)

    def heard_of(self, member: ClassicMember, now: Moment) -> None:
        self.unheard.heard_of(member.member_id)
        if member.joining is None and member.syncing is None:
            self.deadlines.set((Timer.SESSION, member.member_id), now.monotonic_ms + member.session_timeout_ms)

    def came(self, newcomer: ClassicMember, now: Moment) -> None:
        """A new member joined; its former self, if it is known from the log, is waited for no longer than needed."""
        former = self.unheard.came(newcomer)
        if former is not None:
            self.deadlines.set((Timer.SESSION, former[0]), max(former[1], now.monotonic_ms))

    def wait_for_join(self, member: ClassicMember, to: ReplyTo, now: Moment, out: GroupEffects) -> None:
        self.unheard.heard_of(member.member_id)
        earlier = self.members.set_joining(member, to)
        if earlier is not None:
            out.reply(earlier, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        if member.is_new:
            self._joined_in_delay = True
            self.deadlines.set((Timer.SESSION, member.member_id), now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        else:
            self.deadlines.clear((Timer.SESSION, member.member_id))

    def wait_for_sync(self, member: ClassicMember, to: ReplyTo, out: GroupEffects) -> None:
        self.unheard.heard_of(member.member_id)
        if member.syncing is not None:
            out.reply(member.syncing, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = to
        self.deadlines.clear((Timer.SESSION, member.member_id))

    def synced(self, member: ClassicMember) -> None:
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self.deadlines.clear((Timer.SYNC, ""))

    def remove(
        self, member: ClassicMember, reason: DepartureReason, explanation: str, now: Moment, out: GroupEffects
    ) -> None:
        """Take a member out. The caller then calls `continue_without_removed`, once for all that it removed."""
        self._depart(member, reason, explanation, ErrorCode.UNKNOWN_MEMBER_ID, now, out)
        self.synced(member)
        self.members.remove(member)

    def rename(self, member: ClassicMember, member_id: str, now: Moment, out: GroupEffects) -> None:
        """Replace the member id of a static member; the old id is fenced."""
        old_id = member.member_id
        self._depart(member, DepartureReason.FENCED, "", ErrorCode.FENCED_INSTANCE_ID, now, out)
        self.members.rename(member, member_id)
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(member_id)

    def forget_pending(self, member_id: str) -> None:
        self.pending.discard(member_id)
        self.deadlines.clear((Timer.PENDING, member_id))

    # All members

    def prepare(self, now: Moment, out: GroupEffects) -> None:
        """Begin a rebalance, unless one is under way; complete it at once if all members have joined."""
        if self.state is GroupState.PREPARING:
            self._try_complete_join(now, out)
            return
        was_empty = self.state is GroupState.EMPTY
        self._end_sync_phase(ErrorCode.REBALANCE_IN_PROGRESS, now, out)
        self.state = GroupState.PREPARING
        for member_id, due_ms in self.unheard.due():
            self.deadlines.set((Timer.SESSION, member_id), max(due_ms, now.monotonic_ms))
        timeout_ms = self.members.max_rebalance_timeout_ms()
        delay_ms = min(self._settings.initial_rebalance_delay_ms, timeout_ms) if was_empty else 0
        if delay_ms > 0:
            self._initial_delay_left_ms = timeout_ms - delay_ms
            self._joined_in_delay = False
            self.deadlines.set((Timer.JOIN, ""), now.monotonic_ms + delay_ms)
            return
        self.deadlines.set((Timer.JOIN, ""), now.monotonic_ms + timeout_ms)
        self._try_complete_join(now, out)

    def continue_without_removed(self, now: Moment, out: GroupEffects) -> None:
        """After members were removed: end a generation that lost one; complete a rebalance that waited for them
        alone."""
        if self.state is GroupState.PREPARING:
            self._try_complete_join(now, out)
        elif self.state is not GroupState.EMPTY and len(self.members) != self._generation_size:
            self.prepare(now, out)

    def assign(self, assignments: dict[str, bytes], now: Moment, out: GroupEffects) -> bool:
        """Take the leader's assignment. If True, the caller stores the group, then calls `tell_assignments`."""
        assignment_bytes = sum(len(assignments.get(member.member_id, b"")) for member in self.members)
        if assignment_bytes + self.members.metadata_bytes > self._settings.max_group_bytes:
            self._end_sync_phase(ErrorCode.UNKNOWN_SERVER_ERROR, now, out)
            self.prepare(now, out)
            return False
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
        self.assignment_bytes = assignment_bytes
        self.state = GroupState.STABLE
        return True

    def tell_assignments(self, now: Moment, out: GroupEffects) -> None:
        for member in self.members:
            if member.syncing is not None:
                out.reply(member.syncing, self.assigned(member))
                member.syncing = None
                self.heard_of(member, now)

    def answer_all(self, error: ErrorCode, out: GroupEffects) -> None:
        """The group ends: answer every request that waits."""
        for member in self.members:
            self._answer_waiting(member, error, out)
        self.state = GroupState.DEAD

    # Time

    def join_time_is_up(self, now: Moment, out: GroupEffects) -> None:
        assert self.state is GroupState.PREPARING, "the join deadline belongs to a rebalance"
        left_ms = self._initial_delay_left_ms
        if left_ms is not None and left_ms > 0 and self._joined_in_delay:
            # More may be on their way: wait as long again, within the rebalance timeout.
            delay_ms = min(self._settings.initial_rebalance_delay_ms, left_ms)
            self._initial_delay_left_ms = left_ms - delay_ms
            self._joined_in_delay = False
            self.deadlines.set((Timer.JOIN, ""), now.monotonic_ms + delay_ms)
            return
        self._complete_join(now, out)

    def sync_time_is_up(self, now: Moment, out: GroupEffects) -> None:
        for member_id in sorted(self._unsynced):
            member = self.members.get(member_id)
            assert member is not None, "only members are waited for"
            self.remove(member, DepartureReason.SYNC_TIMEOUT, "", now, out)

    # Answers

    def joined(self, member: ClassicMember) -> JoinAnswer:
        is_leader = member.member_id == self.members.leader
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.members.leader or "",
            members=self.all_joined() if is_leader else (),
        )

    def all_joined(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol)) for each in self.members
        )

    def assigned(self, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    # Inside

    def _try_complete_join(self, now: Moment, out: GroupEffects) -> None:
        have_all_joined = self.members.joining == len(self.members) and not self.pending
        if have_all_joined and self._initial_delay_left_ms is None:
            self._complete_join(now, out)

    def _complete_join(self, now: Moment, out: GroupEffects) -> None:
        """Begin a generation with the members that joined. Static members stay until their session ends."""
        for member in [each for each in self.members if each.joining is None and each.instance_id is None]:
            self.remove(member, DepartureReason.REBALANCE_TIMEOUT, "", now, out)
        self._initial_delay_left_ms = None
        if len(self.members) and not self.members.joining:
            wait_ms = max(self.members.max_rebalance_timeout_ms(), MIN_POSTPONEMENT_MS)
            self.deadlines.set((Timer.JOIN, ""), now.monotonic_ms + wait_ms)
            return
        self.deadlines.clear((Timer.JOIN, ""))
        self.generation = self.generation + 1 if self.generation < _MAX_GENERATION else 1
        self._generation_size = len(self.members)
        if len(self.members):
            self.members.elect_joined_leader()
            self.protocol = self.members.vote()
            self.state = GroupState.COMPLETING
            self._tell_joined(now, out)
        else:
            self.protocol = None
            self.assignment_bytes = 0
            self.state = GroupState.EMPTY
        self._note_subscriptions()

    def _tell_joined(self, now: Moment, out: GroupEffects) -> None:
        for member in self.members:
            to = self.members.set_joining(member, None)
            if to is not None:
                member.is_new = False
                self._unsynced.add(member.member_id)
                self.heard_of(member, now)
                out.reply(to, self.joined(member))
        self.deadlines.set((Timer.SYNC, ""), now.monotonic_ms + self.members.max_rebalance_timeout_ms())

    def _end_sync_phase(self, error: ErrorCode, now: Moment, out: GroupEffects) -> None:
        self._unsynced.clear()
        self.deadlines.clear((Timer.SYNC, ""))
        for member in self.members:
            if member.syncing is not None:
                out.reply(member.syncing, SyncAnswer(error))
                member.syncing = None
                self.heard_of(member, now)

    def _depart(
        self,
        member: ClassicMember,
        reason: DepartureReason,
        explanation: str,
        error: ErrorCode,
        now: Moment,
        out: GroupEffects,
    ) -> None:
        """End a member id: note its departure, answer its requests, clear its deadline."""
        self._answer_waiting(member, error, out)
        self.deadlines.clear((Timer.SESSION, member.member_id))
        self.unheard.heard_of(member.member_id)
        departure = MemberDeparture(
            group_id=self._group_id,
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

    def _answer_waiting(self, member: ClassicMember, error: ErrorCode, out: GroupEffects) -> None:
        joining = self.members.set_joining(member, None)
        if joining is not None:
            out.reply(joining, JoinAnswer(error, member.member_id))
        if member.syncing is not None:
            out.reply(member.syncing, SyncAnswer(error))
            member.syncing = None

    def _note_subscriptions(self) -> None:
        self.subscribed = frozenset()
        if not len(self.members):
            return
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            self.subscribed = None
            return
        topics: set[str] = set()
        for member in self.members:
            own = subscribed_topics(member.metadata(self.protocol))
            if own is None:
                self.subscribed = None
                return
            topics |= own
        self.subscribed = frozenset(topics)
