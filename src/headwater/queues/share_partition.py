"""One partition as one share group sees it: which records are available, which member holds which, which are resolved.

Decide → log → apply: every method that decides has changed the state in memory when it returns, and returns the events
that the log must take before any request is answered. A new `SharePartition` to which all events of the log were
applied is in the same state, except that no member holds a lease.

`now_ms` is the time of day, and must not run backwards.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from headwater.model.errors import ErrorCode
from headwater.model.ids import FIRST_OFFSET, Offset
from headwater.queues.acquiring import Acquiring
from headwater.queues.events import (
    DeadLetterReason,
    RangeState,
    ShareEvent,
    ShareSnapshot,
    ShareStartMoved,
    ShareStateChanged,
    StateRange,
    merged,
)
from headwater.queues.fair_lending import Supply
from headwater.queues.in_flight import RecordState, Run
from headwater.queues.log_read import LogRead
from headwater.queues.outcomes import (
    AcknowledgedBatch,
    AcknowledgeOutcome,
    AcknowledgeType,
    AcquiredRange,
    AcquireMode,
    Acquisition,
    Changes,
    DeadLetter,
)
from headwater.queues.redelivery import after_failure, given_up
from headwater.queues.settings import QueueSettings, ShareOrder
from headwater.queues.share_state import ShareState

_NO_CHANGES = Changes()
_NOTHING = Acquisition((), _NO_CHANGES)
_KNOWN_TYPES = frozenset(int(each) for each in AcknowledgeType)


class SharePartition:
    def __init__(self, settings: QueueSettings, start_offset: Offset = FIRST_OFFSET) -> None:
        """Of a partition that was never read, log `snapshot()` first; else `apply` what the log has."""
        assert start_offset >= 0, "offsets begin at 0"
        self.settings = settings
        self._state = ShareState(start_offset, settings.order is ShareOrder.KEY)

    # What is there

    @property
    def start_offset(self) -> Offset:
        """All records below are resolved (SPSO)."""
        return self._state.window.start

    @property
    def end_offset(self) -> Offset:
        """No record from here on was looked at yet (SPEO + 1)."""
        return self._state.window.end

    @property
    def acquired_count(self) -> int:
        """Records held by members."""
        return self._state.window.counts[RecordState.ACQUIRED]

    @property
    def waiting_count(self) -> int:
        """Records that are delayed, rest after a failure, or wait for another record of their key."""
        counts = self._state.window.counts
        return counts[RecordState.WAITING] + counts[RecordState.BLOCKED]

    @property
    def has_ready(self) -> bool:
        """Whether a record below the end offset can be taken now: a reason to wake a fetch that waits."""
        counts = self._state.window.counts
        is_there = counts[RecordState.READY] + counts[RecordState.UNREAD] > 0
        return is_there and self._busy_count < self.settings.max_record_locks

    def supply(self, limit: Offset) -> Supply:
        """What there is to lend, records behind the end up to `limit` included."""
        counts = self._state.window.counts
        return Supply(
            ready=counts[RecordState.READY] + counts[RecordState.UNREAD],
            fresh=max(limit - self.end_offset, 0),
            room=max(self.settings.max_record_locks - self._busy_count, 0),
            lent=self.acquired_count,
        )

    def lag(self, log_end_offset: Offset) -> int:
        """Records that are not resolved (KIP-1226)."""
        window = self._state.window
        return max(log_end_offset, window.end) - window.start - window.counts[RecordState.RESOLVED]

    def next_fetch_offset(self, now_ms: int) -> Offset | None:
        """Where to read for the next acquire: the lowest available offset that is due, else the end offset. None when
        nothing can be taken before something is resolved or due: do not read, wait."""
        self._state.wake(now_ms)
        if self._busy_count >= self.settings.max_record_locks:
            return None
        ready = self._state.window.lowest_ready()
        if ready is None and self.waiting_count >= self.settings.max_waiting_records:
            return None
        return self._state.window.end if ready is None else ready

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next."""
        return self._state.next_deadline_ms()

    def pending_dead_letters(self) -> tuple[DeadLetter, ...]:
        """All that are not reported as written: after a restart, write them (again)."""
        if not self._state.window.counts[RecordState.ARCHIVING]:
            return ()
        return _dead_letters(self._state.snapshot().ranges)

    # What members do

    def acquire(
        self,
        member_id: str,
        read: LogRead,
        max_records: int,
        now_ms: int,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> Acquisition:
        """Lend available records of the span to the member. The state may have changed since `next_fetch_offset`."""
        dropped = self._drop_expired(now_ms)
        self._state.wake(now_ms)
        if max_records <= 0 or not self._may_scan(read):
            return Acquisition((), dropped) if dropped.events else _NOTHING
        acquiring = Acquiring(self._state, self.settings, member_id, max_records, now_ms, mode)
        acquiring.scan(read)
        if not acquiring.resolved:
            return Acquisition(tuple(acquiring.acquired), dropped)
        resolved = merged(acquiring.resolved)
        changes = Changes((ShareStateChanged(resolved),), _dead_letters(resolved))
        return Acquisition(tuple(acquiring.acquired), _joined(dropped, changes))

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgedBatch], now_ms: int) -> AcknowledgeOutcome:
        """Each batch as a whole or not at all. INVALID_REQUEST for all when batches overlap or are out of order, when
        types are unknown or their number is wrong; INVALID_REQUEST for one behind the end offset; INVALID_RECORD_STATE
        for one of which the member does not hold every record. Offsets below the start are left out of a batch that
        reaches above it."""
        if not _is_well_formed(batches):
            return AcknowledgeOutcome((ErrorCode.INVALID_REQUEST,) * len(batches), _NO_CHANGES)
        errors = []
        changed: list[StateRange] = []
        for batch in batches:
            error = self._refusal(member_id, batch)
            errors.append(error)
            if error is ErrorCode.NONE:
                for first, last, ack_type in _typed_ranges(batch):
                    for run in self._state.window.runs(first, last):
                        changed += self._acknowledged(run, ack_type, now_ms)
        return AcknowledgeOutcome(tuple(errors), self._commit(changed))

    def release_member(self, member_id: str, now_ms: int) -> Changes:
        """The member is gone: what it holds is available again at once. The delivery counts, but brings no rest."""
        changed: list[StateRange] = []
        if self.acquired_count:
            for run in self._state.window.all_runs():
                if run[2].state is RecordState.ACQUIRED and run[2].holder == member_id:
                    changed += self._failed(run, now_ms)
        return self._commit(changed)

    def give_back(self, member_id: str, ranges: Iterable[AcquiredRange]) -> Changes:
        """Records that the member was lent did not reach it: they are as they were, and no delivery counts."""
        return self._commit(
            [
                StateRange(first, last, RangeState.AVAILABLE, status.delivery_count)
                for each in ranges
                for first, last, status in self._state.window.runs(each.first, each.last)
                if status.state is RecordState.ACQUIRED and status.holder == member_id
            ]
        )

    # What time and the shell do

    def expire(self, now_ms: int) -> Changes:
        """Take back what is held for too long, wake what is due, and drop what is past its time to live."""
        changed: list[StateRange] = []
        for run in self._state.overdue_leases(now_ms):
            changed += self._failed(run, now_ms)
        released = self._commit(changed)
        dropped = self._drop_expired(now_ms)
        self._state.wake(now_ms)
        return _joined(released, dropped)

    def dead_letters_written(self, ranges: Iterable[tuple[Offset, Offset]]) -> Changes:
        """Archive what is ARCHIVING in the ranges; other offsets are left as they are."""
        return self._commit(
            [
                StateRange(low, high, RangeState.ARCHIVED)
                for first, last in ranges
                for low, high, each in self._state.window.runs(first, last)
                if each.state is RecordState.ARCHIVING
            ]
        )

    def log_start_moved(self, log_start_offset: Offset) -> Changes:
        """The log was trimmed: nothing below can be delivered any more."""
        if log_start_offset <= self.start_offset:
            return _NO_CHANGES
        return self._log(ShareStartMoved(log_start_offset))

    def reset(self, start_offset: Offset) -> Changes:
        """Begin anew at an offset, in either direction. All leases end."""
        assert start_offset >= 0, "offsets begin at 0"
        return self._log(ShareSnapshot(start_offset))

    def reconfigure(self, settings: QueueSettings) -> None:
        """Leases that exist keep their end. Another order takes all leases back, uncounted, as a restart does."""
        if settings.order is not self.settings.order:
            remembered = self._state.snapshot()
            self._state = ShareState(remembered.start_offset, settings.order is ShareOrder.KEY)
            self._state.apply(remembered)
        self.settings = settings

    # What the log remembers

    def apply(self, event: ShareEvent) -> None:
        """Take over an event of the log. The only way in which durable state changes."""
        self._state.apply(event)

    def snapshot(self) -> ShareSnapshot:
        """One event instead of all so far."""
        return self._state.snapshot()

    # Decisions

    @property
    def _busy_count(self) -> int:
        counts = self._state.window.counts
        return counts[RecordState.ACQUIRED] + counts[RecordState.ARCHIVING]

    def _may_scan(self, read: LogRead) -> bool:
        window = self._state.window
        if read.first_offset > window.end:
            return False
        if self._state.key_order is None or window.counts[RecordState.UNREAD] == 0:
            return True
        # A record whose key is not known yet could come before any record that is read from further up.
        lowest = window.lowest_ready()
        return lowest is None or read.first_offset <= lowest

    def _refusal(self, member_id: str, batch: AcknowledgedBatch) -> ErrorCode:
        window = self._state.window
        if batch.last >= window.end:
            return ErrorCode.INVALID_REQUEST
        runs = window.runs(batch.first, batch.last)
        is_held = all(each.state is RecordState.ACQUIRED and each.holder == member_id for _, _, each in runs)
        return ErrorCode.NONE if runs and is_held else ErrorCode.INVALID_RECORD_STATE

    def _acknowledged(self, run: Run, ack_type: int, now_ms: int) -> Iterable[StateRange]:
        first, last, status = run
        match ack_type:
            case AcknowledgeType.ACCEPT:
                return (StateRange(first, last, RangeState.ACKNOWLEDGED),)
            case AcknowledgeType.GAP:
                return (StateRange(first, last, RangeState.ARCHIVED),)
            case AcknowledgeType.REJECT:
                count = status.delivery_count + 1
                return (given_up(self.settings, first, last, count, DeadLetterReason.REJECTED),)
            case AcknowledgeType.RENEW:
                until_ms = now_ms + self.settings.record_lock_duration_ms
                self._state.lend(first, last, status._replace(until_ms=until_ms))
                return ()
            case _:
                return self._failed(run, now_ms, backoff_from_ms=now_ms)

    def _failed(self, run: Run, now_ms: int, backoff_from_ms: int | None = None) -> list[StateRange]:
        """A delivery ended without success."""
        first, last, status = run
        count = status.delivery_count + 1
        changed = []
        for offset in self._state.expired_in(first, last, now_ms):
            if offset > first:
                changed.append(after_failure(self.settings, first, offset - 1, count, backoff_from_ms))
            changed.append(given_up(self.settings, offset, offset, count, DeadLetterReason.EXPIRED))
            first = offset + 1
        if first <= last:
            changed.append(after_failure(self.settings, first, last, count, backoff_from_ms))
        return changed

    def _drop_expired(self, now_ms: int) -> Changes:
        changed = []
        for offset in self._state.expired(now_ms):
            status = self._state.window.at(offset)
            assert status is not None, "what expires is in the window"
            changed.append(given_up(self.settings, offset, offset, status.delivery_count, DeadLetterReason.EXPIRED))
        return self._commit(changed)

    def _commit(self, changed: Sequence[StateRange]) -> Changes:
        return self._log(ShareStateChanged(merged(changed))) if changed else _NO_CHANGES

    def _log(self, event: ShareEvent) -> Changes:
        self.apply(event)
        dead_letters = _dead_letters(event.ranges) if isinstance(event, ShareStateChanged) else ()
        return Changes((event,), dead_letters)


def _is_well_formed(batches: Sequence[AcknowledgedBatch]) -> bool:
    previous_last = -1
    for batch in batches:
        if not previous_last < batch.first <= batch.last:
            return False
        if len(batch.types) not in (1, batch.last - batch.first + 1) or not _KNOWN_TYPES.issuperset(batch.types):
            return False
        previous_last = batch.last
    return True


def _typed_ranges(batch: AcknowledgedBatch) -> Iterator[tuple[Offset, Offset, int]]:
    """Ranges of one type each."""
    if len(batch.types) == 1:
        yield batch.first, batch.last, batch.types[0]
        return
    first = batch.first
    for ack_type, same in groupby(batch.types):
        count = sum(1 for _ in same)
        yield first, first + count - 1, ack_type
        first += count


def _dead_letters(ranges: Sequence[StateRange]) -> tuple[DeadLetter, ...]:
    return tuple(
        DeadLetter(each.first, each.last, each.reason, each.delivery_count)
        for each in ranges
        if each.state is RangeState.ARCHIVING and each.reason is not None
    )


def _joined(first: Changes, second: Changes) -> Changes:
    return Changes(first.events + second.events, first.dead_letters + second.dead_letters)
