"""The leader of a partition in one epoch: it sends every batch to every replica of the open segment, and knows what
all of them hold (docs/replication.md, 5 and 6).

To each replica one append at a time is on its way, and carries everything that waits for it. A replica that fails or is
silent for too long is left behind by a roll: the high watermark is frozen, a new segment is created on stores that
work, published, and only then written to. What was not committed is sent again to the new replicas; the old segment
ends where it was frozen, whatever some of its replicas hold beyond.

If too few stores work, or the metadata cannot be reached, the old segment stays and both ways are tried again: a
replica may come back, or another store.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice

from headwater.model.ids import NO_OFFSET, Offset, SegmentId, StoreId
from headwater.model.replica import Buffer
from headwater.model.segments import OpenSegment, SealedSegment
from headwater.replication.ack_tracker import AckTracker
from headwater.replication.effects import (
    Append,
    Choose,
    Create,
    Effect,
    Entry,
    NewSegmentId,
    Publish,
    Refusal,
    Rules,
    StepDown,
)


@dataclass(slots=True)
class _Sender:
    """What one replica was given."""

    sent: Offset
    """Everything below was given to it; while nothing is on its way, it has acknowledged that."""
    since: float | None = None
    """When the append that is on its way left; None if there is none."""
    lac: Offset = NO_OFFSET
    may_hold: Offset = NO_OFFSET
    """Appends got no answer: what is below this the replica may hold, though it has not acknowledged it."""
    has_failed: bool = False
    """Its last append was not acknowledged."""
    is_broken: bool = False
    """Its last append was refused for good: the replica is of no use, though the store may be."""


@dataclass(slots=True)
class _Roll:
    segment: OpenSegment
    asked: frozenset[StoreId]
    deadline: float | None
    """None while a create waits for its turn: see `create_waits`."""
    created: list[StoreId] = field(default_factory=list)
    failed: list[StoreId] = field(default_factory=list)
    is_publishing: bool = False


class Leader:
    def __init__(
        self,
        segment: OpenSegment,
        end: Offset,
        open_bytes: int,
        rules: Rules,
        choose: Choose,
        new_segment_id: NewSegmentId,
        now: float,
        max_timestamp: int = -1,
    ) -> None:
        """`segment` is published, and all its replicas hold everything below `end`, in so many bytes."""
        assert segment.base <= end, f"the open segment begins at {segment.base}, past the log end {end}"
        self.segment = segment
        self.rules = rules
        self.log_end = end
        self.committed_bytes = open_bytes
        """Of the open segment; so is the next one."""
        self.max_timestamp = max_timestamp
        self.total_bytes = 0
        """Committed in this epoch, in all segments."""
        self.is_starving = False
        """No segment could be had on enough stores: nothing more is taken until one can."""
        self._choose = choose
        self._new_segment_id = new_segment_id
        self._acks = AckTracker(segment.replicas, end)
        self._senders = {store: _Sender(end, lac=segment.base) for store in segment.replicas}
        self._entries: deque[Entry] = deque()
        """Not committed yet, in order."""
        self.queued_bytes = 0
        """Of what is not committed."""
        self._roll: _Roll | None = None
        self._roll_asked = False
        self._bad: dict[StoreId, float] = {}
        """Stores that failed, and until when they are not chosen."""
        self._retry_at: float | None = None
        self._heartbeat_at: float | None = None
        if end > segment.base:
            self._arm_heartbeat(now)
        self._is_over = False

    @property
    def high_watermark(self) -> Offset:
        return self._acks.high_watermark

    @property
    def stored(self) -> Offset:
        """At least one replica holds everything below."""
        return self._acks.first

    @property
    def uncommitted(self) -> int:
        return len(self._entries)

    @property
    def is_rolling(self) -> bool:
        return self._roll is not None

    @property
    def deadline(self) -> float | None:
        """When to call `tick`, if nothing else happens before."""
        if self._is_over:
            return None
        times = [self._heartbeat_at, self._retry_at]
        if self._roll is not None:
            times.append(None if self._roll.is_publishing else self._roll.deadline)
        else:
            sent = [sender.since for sender in self._senders.values() if sender.since is not None]
            times += [since + self.rules.replica_timeout_s for since in sent]
        return min((time for time in times if time is not None), default=None)

    # Appending

    def append(self, entry: Entry, now: float) -> list[Effect]:
        assert entry.base == self.log_end, f"the log ends at {self.log_end}, the batch begins at {entry.base}"
        self._entries.append(entry)
        self.queued_bytes += len(entry.batch)
        self.log_end = entry.end
        return self._send(now)

    @property
    def lone_replica(self) -> StoreId | None:
        """The only replica, if nothing is under way: the caller may append the next batch to it directly, and report
        that with `took`."""
        if self._entries or self._roll is not None or self._roll_asked or len(self._senders) != 1 or self._is_over:
            return None
        store = self.segment.replicas[0]
        # The answer to an append that is on its way would report less than was appended, and the replica would count as
        # silent.
        return store if self._senders[store].since is None else None

    def took(self, entry: Entry) -> None:
        """The lone replica has the next batch: it is committed. As `append` and `acknowledged`, in one step."""
        assert entry.base == self.log_end and not self._entries, "nothing is before it"
        (store,) = self.segment.replicas
        self._senders[store].sent = self.log_end = entry.end
        self._acks.acknowledged(store, entry.end)
        size = len(entry.batch)
        self.committed_bytes += size
        self.total_bytes += size
        if entry.max_timestamp > self.max_timestamp:
            self.max_timestamp = entry.max_timestamp

    def acknowledged(self, store: StoreId, segment: SegmentId, end: Offset, now: float) -> list[Effect]:
        """A replica holds everything below `end`."""
        sender = self._senders.get(store)
        if sender is None or segment != self.segment.id or self._is_over:
            return []
        if end >= sender.sent:
            # More than was asked for: the late answer to an append that was given up. What all have acknowledged is
            # not kept, so nothing of it can be sent again.
            sender.sent = end
            sender.since = None
            sender.has_failed = sender.is_broken = False
            self._bad.pop(store, None)
        if self._acks.acknowledged(store, end):
            self._commit()
        if self.is_starving and not self._has_failures:
            self.is_starving, self._retry_at = False, None  # every store that failed has come back
        return self._send(now)

    def refused(self, store: StoreId, segment: SegmentId, refusal: Refusal, now: float) -> list[Effect]:
        """An append was not acknowledged."""
        sender = self._senders.get(store)
        if sender is None or segment != self.segment.id or self._is_over:
            return []
        if refusal is Refusal.FENCED:
            return self._step_down(f"segment {segment} is fenced")
        sender.since = None
        if refusal is not Refusal.NO_SPACE:
            sender.may_hold = max(sender.may_hold, sender.sent)
        sender.has_failed = True
        sender.sent = min(sender.sent, self._acks.acked(store))
        was_broken, sender.is_broken = sender.is_broken, refusal is Refusal.BROKEN
        # A store that is broken again does not start its time anew: it can be chosen when that has passed, for there
        # may be no other.
        if not (was_broken and sender.is_broken):
            self._bad[store] = now + self.rules.bad_store_s
        return self._begin_roll(now) if self._roll is None else []

    def store_lost(self, store: StoreId, now: float) -> list[Effect]:
        """The connection to a store broke: whatever was on its way may or may not have arrived."""
        if store in self._senders:
            return self.refused(store, self.segment.id, Refusal.UNREACHABLE, now)
        if self._roll is not None and not self._roll.is_publishing and store in self._roll.asked:
            return self.create_failed(store, self._roll.segment.id, Refusal.UNREACHABLE, now)
        return []

    def drop_unstored(self) -> list[Entry]:
        """Forget what is certainly on no replica, because their disks are full: its offsets are free again. Nothing is
        dropped while any replica may hold some of it."""
        senders = self._senders.values()
        if self._roll is not None or any(sender.since is not None for sender in senders):
            return []
        if any(sender.may_hold > self._acks.acked(store) for store, sender in self._senders.items()):
            return []
        if self._acks.first > self._acks.high_watermark:
            return []
        dropped = list(self._entries)
        self._entries.clear()
        self.queued_bytes = 0
        self.log_end = self._acks.high_watermark
        assert not dropped or dropped[0].base == self.log_end, "what is dropped begins where nothing is committed"
        for sender in senders:
            sender.sent = self.log_end
            sender.has_failed = False
        self.is_starving, self._retry_at = False, None
        return dropped

    def _send(self, now: float) -> list[Effect]:
        if self._roll is not None:
            return []
        if self._roll_asked:
            if any(sender.since is not None for sender in self._senders.values()):
                return []  # the roll begins when all replicas have what they were given
            return self._begin_roll(now)
        effects: list[Effect] = []
        for store, sender in self._senders.items():
            if sender.since is None and sender.sent < self.log_end and not sender.has_failed:
                effects.append(self._append_to(store, sender, now))
        if self._heartbeat_at is None:
            self._arm_heartbeat(now)
        return effects

    def _arm_heartbeat(self, now: float) -> None:
        """A lone replica needs no heartbeat: what it holds is committed."""
        senders, lac = self._senders, self.high_watermark
        if len(senders) > 1 and any(sender.lac < lac for sender in senders.values()):
            self._heartbeat_at = now + self.rules.heartbeat_s

    @property
    def _has_failures(self) -> bool:
        return any(sender.has_failed for sender in self._senders.values())

    def _append_to(self, store: StoreId, sender: _Sender, now: float) -> Append:
        batches: list[Buffer] = []
        size = 0
        first = end = sender.sent
        skipped = 0
        for entry in self._entries:
            if entry.base >= first:
                break
            skipped += 1
        for entry in islice(self._entries, skipped, None):
            if batches and size + len(entry.batch) > self.rules.window_bytes:
                break
            assert entry.base == end, "a replica is a prefix of what the leader wrote: it gets batches without a gap"
            batches.append(entry.batch)
            size += len(entry.batch)
            end = entry.end
        sender.sent, sender.since, sender.lac = end, now, self.high_watermark
        return Append(store, self.segment.id, first, end, self.high_watermark, tuple(batches))

    def _commit(self) -> None:
        entries, high_watermark = self._entries, self.high_watermark
        assert high_watermark <= self.log_end, "nothing is committed past the log end"
        while entries and entries[0].end <= high_watermark:
            entry = entries.popleft()
            self.queued_bytes -= len(entry.batch)
            self.committed_bytes += len(entry.batch)
            self.total_bytes += len(entry.batch)
            self.max_timestamp = max(self.max_timestamp, entry.max_timestamp)

    # Rolling

    def ask_roll(self, now: float) -> list[Effect]:
        """Begin a new segment as soon as all replicas have what they were given."""
        self._roll_asked = True
        return self._send(now)

    def reconsider(self, now: float, leaving: frozenset[StoreId] = frozenset()) -> list[Effect]:
        """Stores came or went. Roll if the open segment has fewer replicas than it should and more can be had, or if a
        replica is on a store that is to be emptied and there are others."""
        if self._is_over or self._roll is not None:
            return []
        if self.is_starving:
            return self._begin_roll(now)
        replicas = self.segment.replicas
        possible = len(self._candidates(now, self.segment.id))
        is_short = len(replicas) < min(self.rules.replication_factor, possible)
        is_leaving = not leaving.isdisjoint(replicas) and possible >= self.rules.min_insync
        return self.ask_roll(now) if is_short or is_leaving else []

    def _candidates(self, now: float, segment: SegmentId) -> tuple[StoreId, ...]:
        self._bad = {store: until for store, until in self._bad.items() if until > now}
        return self._choose(self.rules.replication_factor, frozenset(self._bad), segment)

    def _begin_roll(self, now: float) -> list[Effect]:
        """Nothing is committed to the old segment from here on, unless the roll is given up."""
        self._roll_asked = False
        segment_id = self._new_segment_id()
        stores = self._candidates(now, segment_id)
        if len(stores) < self.rules.min_insync:
            return self._starve(now)
        committed = self._acks.freeze()
        assert committed >= self.segment.base, "the old segment ends at its base or past it"
        epoch = self.segment.epoch
        segment = OpenSegment(segment_id, committed, epoch, committed, stores)
        self._roll = _Roll(segment, frozenset(stores), now + self.rules.replica_timeout_s)
        self._retry_at = self._heartbeat_at = None
        return [Create(store, segment) for store in stores]

    def create_waits(self, segment: SegmentId) -> None:
        """A create cannot leave yet, because too many others are on their way: that is no store's fault, and no
        deadline runs. `create_begins` follows."""
        if self._roll is not None and self._roll.segment.id == segment:
            self._roll.deadline = None

    def create_begins(self, segment: SegmentId, now: float) -> bool:
        """A create that waited may leave now; False if it is no longer needed."""
        roll = self._roll
        if roll is None or roll.segment.id != segment or roll.is_publishing:
            return False
        roll.deadline = now + self.rules.replica_timeout_s
        return True

    def created(self, store: StoreId, segment: SegmentId, now: float) -> list[Effect]:
        roll = self._roll
        if roll is None or roll.segment.id != segment or roll.is_publishing or store in roll.created:
            return []
        if store in roll.asked and store not in roll.failed:
            roll.created.append(store)
        return self._maybe_publish(roll, now)

    def create_failed(self, store: StoreId, segment: SegmentId, refusal: Refusal, now: float) -> list[Effect]:
        roll = self._roll
        if roll is None or roll.segment.id != segment or roll.is_publishing or store in roll.created:
            return []
        if refusal is Refusal.FENCED:
            return self._step_down(f"segment {segment} was fenced before it was published")
        if store not in roll.failed:
            roll.failed.append(store)
        self._bad[store] = now + self.rules.bad_store_s
        return self._maybe_publish(roll, now)

    def _maybe_publish(self, roll: _Roll, now: float) -> list[Effect]:
        if len(roll.created) + len(roll.failed) < len(roll.asked) and (roll.deadline is None or now < roll.deadline):
            return []
        if len(roll.created) < self.rules.min_insync:
            return self._abandon_roll(now)
        roll.is_publishing = True
        replicas = tuple(store for store in roll.segment.replicas if store in roll.created)
        roll.segment = replace(roll.segment, replicas=replicas)
        old, end = self.segment, roll.segment.base
        assert end == self.high_watermark, "the high watermark stands still while a roll is under way"
        sealed = None
        if end > old.base:
            sealed = SealedSegment(
                id=old.id,
                base=old.base,
                end=end,
                epoch=old.epoch,
                epoch_start=old.epoch_start,
                replicas=old.replicas,
                size_bytes=self.committed_bytes,
                max_timestamp=self.max_timestamp,
                crc32c=None,
            )
        return [Publish(sealed, roll.segment)]

    def published(self, segment: SegmentId, now: float) -> list[Effect]:
        roll = self._roll
        if roll is None or roll.segment.id != segment:
            return []
        self._roll = None
        self.is_starving = False
        self._retry_at = None
        self.segment = roll.segment
        base = roll.segment.base
        assert base == self.high_watermark <= self.log_end, "what was committed before the roll is, and no more"
        self._acks = AckTracker(roll.segment.replicas, base)
        self._senders = {store: _Sender(base, lac=base) for store in roll.segment.replicas}
        self.committed_bytes, self.max_timestamp = 0, -1
        return self._send(now)

    def publish_failed(self, segment: SegmentId, now: float) -> list[Effect]:
        """Certainly not published: the metadata could not be reached."""
        if self._roll is None or self._roll.segment.id != segment:
            return []
        return self._abandon_roll(now)

    def publish_lost(self, now: float) -> list[Effect]:
        return self._step_down("another node changed the head of the partition")

    def _abandon_roll(self, now: float) -> list[Effect]:
        """The new segment is an orphan, which garbage collection will find; the old one goes on if it can."""
        self._roll = None
        if self._acks.unfreeze():
            self._commit()
        return self._starve(now)

    def _starve(self, now: float) -> list[Effect]:
        """No new segment for now. If all replicas of the old one work, that does no harm."""
        self.is_starving = self._has_failures
        self._retry_at = now + self.rules.retry_s if self.is_starving else None
        return self._send(now)

    # Time

    def tick(self, now: float) -> list[Effect]:
        if self._is_over:
            return []
        effects: list[Effect] = []
        if self._roll is not None:
            deadline = self._roll.deadline
            if not self._roll.is_publishing and deadline is not None and now >= deadline:
                missing = [store for store in self._roll.segment.replicas if store not in self._roll.created]
                for store in missing:
                    self._bad[store] = now + self.rules.bad_store_s
                effects += self._maybe_publish(self._roll, now)
            return effects
        for store, sender in list(self._senders.items()):
            if sender.since is not None and now >= sender.since + self.rules.replica_timeout_s:
                effects += self.refused(store, self.segment.id, Refusal.UNREACHABLE, now)
        if self._retry_at is not None and now >= self._retry_at and self._roll is None:
            effects += self._retry(now)
        if self._heartbeat_at is not None and now >= self._heartbeat_at and self._roll is None:
            self._heartbeat_at = None
            effects += self._heartbeat(now)
        return effects

    def _retry(self, now: float) -> list[Effect]:
        """Another try to roll; and another append to each replica that failed, in case it is back."""
        self._retry_at = None
        effects: list[Effect] = []
        for store, sender in self._senders.items():
            if sender.has_failed and sender.since is None:
                effects.append(self._append_to(store, sender, now))
        return effects + self._begin_roll(now)

    def _heartbeat(self, now: float) -> list[Effect]:
        return [
            self._append_to(store, sender, now)
            for store, sender in self._senders.items()
            if sender.since is None and sender.lac < self.high_watermark and not sender.has_failed
        ]

    def _step_down(self, reason: str) -> list[Effect]:
        self._is_over = True
        self._roll = None
        self._retry_at = self._heartbeat_at = None
        return [StepDown(reason)]
