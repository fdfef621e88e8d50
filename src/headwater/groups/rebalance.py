"""From one generation of a classic group to the next: who joins, when to wait no longer, who assigns, who is told.

    EMPTY ──join──▶ PREPARING ──all joined, or time is up──▶ COMPLETING ──leader's assignment──▶ STABLE
      ▲                ▲  │                                      │                                 │
      └──nobody left───┼──┘                                      │                                 │
                       └────────a member joins, leaves, expires, or changes its protocols──────────┘

- The generation only grows, and one that has lost a member is over.
- A waiting JoinGroup or SyncGroup keeps its member alive; otherwise its session deadline runs.
- Nothing here is durable. `assign` and becoming empty say so in their result, and the group stores itself.
"""

import enum

from headwater.groups.departures import MAX_EXPLANATION_CHARS, Departure, DepartureReason, Departures
from headwater.groups.effects import Effects, JoinAnswer, JoinedMember, ReplyTo, SyncAnswer
from headwater.groups.members import Member, Roster
from headwater.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from headwater.groups.subscriptions import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from headwater.groups.unheard import Unheard
from headwater.model.deadlines import Deadlines
from headwater.model.errors import ErrorCode
from headwater.model.moment import Moment

MIN_POSTPONEMENT_MS = 1_000
"""How soon a rebalance to which nobody came is looked at again, at the earliest."""
_MAX_GENERATION = 2**31 - 1


class GroupState(enum.Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    ASSIGNING = "Assigning"
    """Of the new protocol: the target is not made yet."""
    RECONCILING = "Reconciling"
    """Of the new protocol: members are on their way to the target."""
    STABLE = "Stable"
    DEAD = "Dead"


class Timer(enum.Enum):
    SESSION = enum.auto()
    """A member that is not heard of is removed."""
    PENDING = enum.auto()
    """An id was given out, and nobody came back with it."""
    JOIN = enum.auto()
    """The rebalance goes on with the members that have joined."""
    SYNC = enum.auto()
    """Members that joined, but did not ask for their assignment, are removed."""


class Rebalance:
    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.members = Roster()
        self.pending: set[str] = set()
        """Ids given out and not used yet (KIP-394)."""
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
        """Set while an empty group waits for its first members: by how much that may still be extended."""
        self._joined_in_delay = False

    def resume(self, generation: int, protocol_type: str, protocol: str | None) -> None:
        """Take up a stored generation, whose members have been added."""
        self.generation, self.protocol_type, self.protocol = generation, protocol_type, protocol
        self._generation_size = len(self.members)
        self.assignment_bytes = sum(len(member.assignment) for member in self.members)
        self.state = GroupState.STABLE if len(self.members) else GroupState.EMPTY
        self._note_subscriptions()

    # One member

    def recall(self, member: Member, now: Moment) -> None:
        """It was read from the log, and has a whole session to be heard of, unless somebody waits for it."""
        self.heard_of(member, now)
        self.unheard.recall(member, now.monotonic_ms)

    def heard_of(self, member: Member, now: Moment) -> None:
        self.unheard.heard_of(member.member_id)
        if member.joining is None and member.syncing is None:
            self.deadlines.set((Timer.SESSION, member.member_id), now.monotonic_ms + member.session_timeout_ms)

    def came(self, newcomer: Member, now: Moment) -> None:
        """It has never been a member, by its id."""
        former = self.unheard.came(newcomer)
        if former is not None:
            self.deadlines.set((Timer.SESSION, former[0]), max(former[1], now.monotonic_ms))

    def wait_for_join(self, member: Member, to: ReplyTo, now: Moment, out: Effects) -> None:
        self.unheard.heard_of(member.member_id)
        earlier = self.members.set_joining(member, to)
        if earlier is not None:
            out.reply(earlier, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        if member.is_new:
            self._joined_in_delay = True
            self.deadlines.set((Timer.SESSION, member.member_id), now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        else:
            self.deadlines.clear((Timer.SESSION, member.member_id))

    def wait_for_sync(self, member: Member, to: ReplyTo, out: Effects) -> None:
        self.unheard.heard_of(member.member_id)
        if member.syncing is not None:
            out.reply(member.syncing, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = to
        self.deadlines.clear((Timer.SESSION, member.member_id))

    def synced(self, member: Member) -> None:
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self.deadlines.clear((Timer.SYNC, ""))

    def remove(self, member: Member, reason: DepartureReason, explanation: str, now: Moment, out: Effects) -> None:
        """Take a member out. Whoever calls this calls `settle` when done."""
        self._depart(member, reason, explanation, ErrorCode.UNKNOWN_MEMBER_ID, now, out)
        self.synced(member)
        self.members.remove(member)

    def rename(self, member: Member, member_id: str, now: Moment, out: Effects) -> None:
        """Give a static member's place to a new member id; the old id is fenced."""
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

    def prepare(self, now: Moment, out: Effects) -> None:
        """Ask everyone to join again, unless that is under way; go on at once if nobody is missing."""
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

    def settle(self, now: Moment, out: Effects) -> None:
        """After members were removed: a generation that lost one is over, and a rebalance may have its last one."""
        if self.state is GroupState.PREPARING:
            self._try_complete_join(now, out)
        elif self.state is not GroupState.EMPTY and len(self.members) != self._generation_size:
            self.prepare(now, out)

    def assign(self, assignments: dict[str, bytes], now: Moment, out: Effects) -> bool:
        """The leader's word. If it is taken, the caller stores the group, then `tell_assignments`."""
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

    def tell_assignments(self, now: Moment, out: Effects) -> None:
        for member in self.members:
            if member.syncing is not None:
                out.reply(member.syncing, self.assigned(member))
                member.syncing = None
                self.heard_of(member, now)

    def answer_all(self, error: ErrorCode, out: Effects) -> None:
        """The group ends here: nobody may be left waiting."""
        for member in self.members:
            self._answer_waiting(member, error, out)
        self.state = GroupState.DEAD

    # Time

    def join_time_is_up(self, now: Moment, out: Effects) -> None:
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

    def sync_time_is_up(self, now: Moment, out: Effects) -> None:
        for member_id in sorted(self._unsynced):
            member = self.members.get(member_id)
            assert member is not None, "who has not synced is a member"
            self.remove(member, DepartureReason.SYNC_TIMEOUT, "", now, out)

    # Answers

    def joined(self, member: Member) -> JoinAnswer:
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

    def assigned(self, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    # Inside

    def _try_complete_join(self, now: Moment, out: Effects) -> None:
        everyone_joined = self.members.joining == len(self.members) and not self.pending
        if everyone_joined and self._initial_delay_left_ms is None:
            self._complete_join(now, out)

    def _complete_join(self, now: Moment, out: Effects) -> None:
        """Begin a generation with those who joined. Static members keep their place until their session ends."""
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

    def _tell_joined(self, now: Moment, out: Effects) -> None:
        for member in self.members:
            to = self.members.set_joining(member, None)
            if to is not None:
                member.is_new = False
                self._unsynced.add(member.member_id)
                self.heard_of(member, now)
                out.reply(to, self.joined(member))
        self.deadlines.set((Timer.SYNC, ""), now.monotonic_ms + self.members.max_rebalance_timeout_ms())

    def _end_sync_phase(self, error: ErrorCode, now: Moment, out: Effects) -> None:
        self._unsynced.clear()
        self.deadlines.clear((Timer.SYNC, ""))
        for member in self.members:
            if member.syncing is not None:
                out.reply(member.syncing, SyncAnswer(error))
                member.syncing = None
                self.heard_of(member, now)

    def _depart(
        self, member: Member, reason: DepartureReason, explanation: str, error: ErrorCode, now: Moment, out: Effects
    ) -> None:
        """The end of a member id: remembered, answered, and no longer timed."""
        self._answer_waiting(member, error, out)
        self.deadlines.clear((Timer.SESSION, member.member_id))
        self.unheard.heard_of(member.member_id)
        departure = Departure(
            self._group_id,
            now.wall_ms,
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            reason,
            explanation[:MAX_EXPLANATION_CHARS],
        )
        self.departures.note(departure)
        out.departures.append(departure)

    def _answer_waiting(self, member: Member, error: ErrorCode, out: Effects) -> None:
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
