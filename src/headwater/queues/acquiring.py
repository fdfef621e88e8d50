"""One acquire: goes once over what was read, by rising offset, and takes what the member may have.

- Records that nothing is known to be special about are taken as ranges; only batches that come with delivery terms, and
  records of a key order, are looked at one by one.
- It stops at the first record that it would take, or set aside, and for which there is no room. Nothing behind it is
  looked at: with key order this is what keeps a later record of a key from being taken first.
- Records never looked at before (behind the end) need a lock each; others have theirs already. None are taken while the
  number of waiting records is at its limit.
"""

from bisect import bisect_left
from collections.abc import Sequence

from headwater.model.ids import Offset, Offsets
from headwater.queues.events import DeadLetterReason, RangeState, ShareStateChanged, StateRange
from headwater.queues.in_flight import NEVER_DELIVERED, RESOLVED, RecordState, RecordStatus, Run
from headwater.queues.log_read import CandidateBatch, DeliveryTerms, LogRead
from headwater.queues.outcomes import AcquiredRange, AcquireMode
from headwater.queues.redelivery import given_up
from headwater.queues.settings import QueueSettings
from headwater.queues.share_state import ShareState


class Acquiring:
    def __init__(
        self,
        state: ShareState,
        settings: QueueSettings,
        member_id: str,
        max_records: int,
        now_ms: int,
        mode: AcquireMode,
    ) -> None:
        self.acquired: list[AcquiredRange] = []
        self.resolved: list[StateRange] = []
        """Applied already; to be logged."""
        self._state = state
        self._settings = settings
        self._member_id = member_id
        self._remaining = max_records
        self._now_ms = now_ms
        self._takes_whole_batches = mode is AcquireMode.BATCH_OPTIMIZED
        counts = state.window.counts
        self._busy = counts[RecordState.ACQUIRED] + counts[RecordState.ARCHIVING]
        self._locked = self._busy + counts[RecordState.READY] + counts[RecordState.UNREAD]
        self._waiting = counts[RecordState.WAITING] + counts[RecordState.BLOCKED]
        self._pending: Run | None = None
        """The last decision, as long as the next one may extend it."""

    def scan(self, read: LogRead) -> None:
        position = max(read.first_offset, self._state.window.start)
        for batch in read.batches:
            if batch.last_offset < position:
                continue
            if self._remaining <= 0:
                return
            if batch.first_offset > position:
                self._skip(position, batch.first_offset - 1)
                position = batch.first_offset
            is_taken = self._take_batch(batch, position)
            self._flush()
            if not is_taken:
                return
            position = batch.last_offset + 1
        self._skip(position, read.end_offset - 1)

    def _skip(self, first: Offset, last: Offset) -> None:
        """There are no records here."""
        for run_first, run_last, _ in self._pieces(first, last, RecordState.WAITING):
            self._resolve(StateRange(run_first, run_last, RangeState.ARCHIVED))

    def _take_batch(self, batch: CandidateBatch, position: Offset) -> bool:
        """Whether all of it was looked at."""
        terms: Sequence[DeliveryTerms] | None = None
        for first, last, status in self._pieces(position, batch.last_offset, RecordState.BLOCKED):
            is_fresh = first >= self._state.window.end
            if status.state is RecordState.READY:
                is_done = self._take_run(first, last, status, is_fresh)
            elif status.state is RecordState.BLOCKED:
                is_done = self._take_blocked(first, last, status)
            elif batch.read_terms is None:
                is_done = self._take_run(first, last, status, is_fresh)
            else:
                terms = batch.read_terms() if terms is None else terms
                is_done = self._take_records(first, last, status, is_fresh, terms)
            if not is_done:
                return False
        return True

    def _pieces(self, first: Offset, last: Offset, most: RecordState) -> list[Run]:
        """Runs of the window, and what lies behind it."""
        window = self._state.window
        pieces = window.runs(first, last, most)
        if last >= window.end:
            pieces.append((max(first, window.end), last, NEVER_DELIVERED))
        return pieces

    def _take_run(self, first: Offset, last: Offset, status: RecordStatus, is_fresh: bool) -> bool:
        if status.backoff_until_ms > self._now_ms:
            self._decide(first, last, self._backed_off(status, status.backoff_until_ms))
            self._locked -= last - first + 1
            self._waiting += last - first + 1
            return True
        if is_fresh and self._waiting >= self._settings.max_waiting_records:
            return False
        room = self._room(is_fresh)
        if not self._takes_whole_batches:
            room = min(room, self._remaining)
        count = min(last - first + 1, room)
        if count > 0:
            self._decide(first, first + count - 1, self._lease(status))
            self._remaining -= count
            self._busy += count
            self._locked += count if is_fresh else 0
            if self._state.key_order is not None:
                self._flush()  # The lanes must know before the next record asks for its own.
        return count == last - first + 1

    def _take_blocked(self, first: Offset, last: Offset, status: RecordStatus) -> bool:
        key_order = self._state.key_order
        assert key_order is not None, "records are blocked by their key only"
        for offset in Offsets(first, last + 1):
            key = self._state.key_of(offset)
            assert key is not None, "what is blocked has a key"
            if not key_order.may_take(key, offset, self._member_id):
                continue
            if not self._has_room(is_fresh=False):
                return False
            key_order.take(key, offset, self._member_id)
            self._decide(offset, offset, self._lease(status))
            self._remaining -= 1
            self._busy += 1
            self._locked += 1
            self._waiting -= 1
        return True

    def _take_records(
        self, first: Offset, last: Offset, status: RecordStatus, is_fresh: bool, terms: Sequence[DeliveryTerms]
    ) -> bool:
        position = first
        for index in range(bisect_left(terms, first, key=_offset_of), len(terms)):
            record = terms[index]
            if record.offset > last:
                break
            if record.offset > position:
                self._count_skipped(record.offset - position, is_fresh)
                self._decide(position, record.offset - 1, RESOLVED)
            if not self._take_record(record, status, is_fresh):
                return False
            position = record.offset + 1
        if position <= last:
            self._count_skipped(last - position + 1, is_fresh)
            self._decide(position, last, RESOLVED)
        return True

    def _take_record(self, record: DeliveryTerms, status: RecordStatus, is_fresh: bool) -> bool:
        offset = record.offset
        if not record.matches:
            self._count_skipped(1, is_fresh)
            self._decide(offset, offset, RESOLVED)
            return True
        if record.expires_at_ms is not None and record.expires_at_ms <= self._now_ms:
            return self._drop_expired(offset, status, is_fresh)
        is_backing_off = status.backoff_until_ms > self._now_ms
        is_delayed = record.deliver_at_ms is not None and record.deliver_at_ms > self._now_ms
        if is_fresh and self._waiting >= self._settings.max_waiting_records:
            return False
        if is_backing_off or is_delayed:
            # A delayed record enters the order of its key when it is due: until then it blocks no other record.
            self._state.learn(record, is_in_order=is_backing_off)
            until_ms = max(status.backoff_until_ms, record.deliver_at_ms or 0)
            self._set_aside(offset, self._backed_off(status, until_ms), is_fresh)
            return True
        key_order = self._state.key_order
        # Without room the record must not enter the order of its key: it would be there without being looked at.
        if not self._has_room(is_fresh):
            return False
        key = self._state.learn(record, is_in_order=True)
        if key is not None and key_order is not None:
            if not key_order.may_take(key, offset, self._member_id):
                self._set_aside(offset, status._replace(state=RecordState.BLOCKED), is_fresh)
                return True
            key_order.take(key, offset, self._member_id)
        self._decide(offset, offset, self._lease(status))
        self._remaining -= 1
        self._busy += 1
        self._locked += is_fresh
        return True

    def _drop_expired(self, offset: Offset, status: RecordStatus, is_fresh: bool) -> bool:
        gone = given_up(self._settings, offset, offset, status.delivery_count, DeadLetterReason.EXPIRED)
        if gone.state is RangeState.ARCHIVED:
            self._count_skipped(1, is_fresh)
            self._decide(offset, offset, RESOLVED)
            return True
        if self._room(is_fresh) <= 0:
            return False
        self._decide(offset, offset, RecordStatus(RecordState.ARCHIVING, gone.delivery_count, reason=gone.reason))
        self._busy += 1
        self._locked += is_fresh
        return True

    def _set_aside(self, offset: Offset, status: RecordStatus, is_fresh: bool) -> None:
        self._decide(offset, offset, status)
        self._waiting += 1
        self._locked -= not is_fresh

    def _count_skipped(self, count: int, is_fresh: bool) -> None:
        self._locked -= 0 if is_fresh else count

    def _room(self, is_fresh: bool) -> int:
        return self._settings.max_record_locks - (self._locked if is_fresh else self._busy)

    def _has_room(self, is_fresh: bool) -> bool:
        return self._room(is_fresh) > 0 and (self._remaining > 0 or self._takes_whole_batches)

    def _lease(self, status: RecordStatus) -> RecordStatus:
        return RecordStatus(
            RecordState.ACQUIRED,
            status.delivery_count,
            status.backoff_until_ms,
            self._now_ms + self._settings.record_lock_duration_ms,
            self._member_id,
        )

    def _backed_off(self, status: RecordStatus, until_ms: int) -> RecordStatus:
        return RecordStatus(RecordState.WAITING, status.delivery_count, status.backoff_until_ms, until_ms)

    # From decisions to state

    def _decide(self, first: Offset, last: Offset, status: RecordStatus) -> None:
        pending = self._pending
        if pending is not None and pending[1] + 1 == first and pending[2] == status:
            self._pending = (pending[0], last, status)
            return
        self._flush()
        self._pending = (first, last, status)

    def _flush(self) -> None:
        if self._pending is None:
            return
        first, last, status = self._pending
        self._pending = None
        match status.state:
            case RecordState.RESOLVED:
                self._resolve(StateRange(first, last, RangeState.ARCHIVED))
            case RecordState.ARCHIVING:
                count, reason = status.delivery_count, status.reason
                self._resolve(StateRange(first, last, RangeState.ARCHIVING, count, reason=reason))
            case RecordState.ACQUIRED:
                self._state.lend(first, last, status)
                self._append_acquired(AcquiredRange(first, last, status.delivery_count + 1))
            case _:
                self._state.set_aside(first, last, status)

    def _append_acquired(self, new: AcquiredRange) -> None:
        before = self.acquired[-1] if self.acquired else None
        if before is not None and before.last + 1 == new.first and before.delivery_count == new.delivery_count:
            self.acquired[-1] = AcquiredRange(before.first, new.last, new.delivery_count)
        else:
            self.acquired.append(new)

    def _resolve(self, change: StateRange) -> None:
        self._state.apply(ShareStateChanged((change,)))
        self.resolved.append(change)


def _offset_of(record: DeliveryTerms) -> Offset:
    return record.offset
