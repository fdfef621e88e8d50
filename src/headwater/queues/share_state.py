"""The state of one share partition and the ways in which it changes; what should change is decided elsewhere.

- Durable: start offset, and for each offset whether it is resolved, on its way to the dead letters, or available, with
  its delivery count and backoff. It changes by `apply` alone, live and at recovery.
- Volatile: who holds what, and what was read from records (delay, key, time to live). A restart forgets it; offsets
  that are available are then UNREAD.
- With key order, a record that has a key is in the order of that key from when it may first be delivered until it is
  resolved. Of a key of which no member holds a record, the lowest offset is READY (or WAITING, in its backoff), the
  others are BLOCKED.
"""

import hashlib
from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from headwater.model.ids import Offset, Offsets
from headwater.queues.events import (
    RangeState,
    ShareEvent,
    ShareSnapshot,
    ShareStartMoved,
    ShareStateChanged,
    StateRange,
    merged,
)
from headwater.queues.in_flight import RESOLVED, InFlight, RecordState, RecordStatus, Run
from headwater.queues.key_order import KeyOrder
from headwater.queues.log_read import DeliveryTerms
from headwater.queues.timers import RangeTimers, Timer

_LONGEST_KEPT_KEY_BYTES: Final = 64
"""Of a longer key a digest is kept, so that hostile keys take no memory."""


class _Known(NamedTuple):
    """What is remembered of a record that was read and is not resolved."""

    key: bytes | None
    expires_at_ms: int | None


class ShareState:
    def __init__(self, start_offset: Offset, is_key_ordered: bool) -> None:
        self._begin(start_offset, is_key_ordered)

    def _begin(self, start_offset: Offset, is_key_ordered: bool) -> None:
        self.window = InFlight(start_offset)
        self.key_order = KeyOrder() if is_key_ordered else None
        self._known: dict[Offset, _Known] = {}
        self._leases = RangeTimers()
        self._dues = RangeTimers()
        self._expiries = RangeTimers()

    # Durable

    def apply(self, event: ShareEvent) -> None:
        match event:
            case ShareStateChanged(ranges):
                for each in ranges:
                    self._apply_range(each)
                self.window.advance()
            case ShareStartMoved(start_offset):
                self._forget(self.window.start, start_offset - 1)
                self.window.drop_below(start_offset)
            case ShareSnapshot(start_offset, ranges):
                self._begin(start_offset, self.key_order is not None)
                for each in ranges:
                    self._apply_range(each)
                self.window.advance()

    def snapshot(self) -> ShareSnapshot:
        durable = (_durable(first, last, status) for first, last, status in self.window.all_runs())
        return ShareSnapshot(self.window.start, merged(each for each in durable if each is not None))

    def _apply_range(self, change: StateRange) -> None:
        first, last = max(change.first, self.window.start), change.last
        if first > last:
            return
        match change.state:
            case RangeState.ACKNOWLEDGED | RangeState.ARCHIVED:
                self.window.put(first, last, RESOLVED)
                self._forget(first, last)
            case RangeState.ARCHIVING:
                status = RecordStatus(RecordState.ARCHIVING, change.delivery_count, reason=change.reason)
                self.window.put(first, last, status)
                self._forget(first, last)
            case RangeState.AVAILABLE:
                runs = self.window.runs(first, last)
                unread = RecordStatus(RecordState.UNREAD, change.delivery_count, change.available_at_ms)
                self.window.put(first, last, unread)
                for run_first, run_last, status in runs:
                    if status.state is RecordState.ACQUIRED:
                        self._come_back(run_first, run_last, unread)

    # Volatile: what is read and lent

    def learn(self, terms: DeliveryTerms, is_in_order: bool) -> bytes | None:
        """Remember what the record asks for while it is not resolved; returns its key, if it is kept in key order."""
        key = terms.key if self.key_order is not None else None
        if key is not None and len(key) > _LONGEST_KEPT_KEY_BYTES:
            key = hashlib.blake2b(key, digest_size=_LONGEST_KEPT_KEY_BYTES).digest()
        if key is not None or terms.expires_at_ms is not None:
            self._known[terms.offset] = _Known(key, terms.expires_at_ms)
        if terms.expires_at_ms is not None:
            self._watch_expiry(terms.offset, terms.expires_at_ms)
        if is_in_order and key is not None and self.key_order is not None:
            self.key_order.join(key, terms.offset)
        return key

    def key_of(self, offset: Offset) -> bytes | None:
        known = self._known.get(offset)
        return None if known is None else known.key

    def lend(self, first: Offset, last: Offset, status: RecordStatus) -> None:
        """`status` is ACQUIRED: it says to whom, and until when."""
        self.window.put(first, last, status)
        self._leases.push(status.until_ms, first, last)
        self._leases.prune(self.window.run_count, lambda: self._timers_of(RecordState.ACQUIRED))
        if self.key_order is not None:
            for offset in self._known_in(first, last):
                if (key := self._known[offset].key) is not None:
                    self.key_order.take(key, offset, status.holder)

    def set_aside(self, first: Offset, last: Offset, status: RecordStatus) -> None:
        """`status` is WAITING, and says until when, or BLOCKED."""
        self.window.put(first, last, status)
        if status.state is RecordState.WAITING:
            self._dues.push(status.until_ms, first, last)
            self._dues.prune(self.window.run_count, lambda: self._timers_of(RecordState.WAITING))

    # Volatile: what time brings

    def wake(self, now_ms: int) -> None:
        """What waits and is due becomes deliverable."""
        for _, first, last in self._dues.pop_due(now_ms):
            for run_first, run_last, status in self.window.runs(first, last):
                if status.state is RecordState.WAITING and status.until_ms <= now_ms:
                    self._free(run_first, run_last, status)

    def overdue_leases(self, now_ms: int) -> list[Run]:
        found: list[Run] = []
        for _, first, last in self._leases.pop_due(now_ms):
            found += self.window.runs(first, last)
        overdue: list[Run] = []
        behind = self.window.start
        # A lease that was renewed has more than one timer; none may be reported twice.
        for first, last, status in sorted(found, key=itemgetter(0)):
            first = max(first, behind)
            if first <= last and status.state is RecordState.ACQUIRED and status.until_ms <= now_ms:
                overdue.append((first, last, status))
                behind = last + 1
        return overdue

    def expired(self, now_ms: int) -> list[Offset]:
        """Offsets of available records that are past their time to live, by rising offset. Each is reported once."""
        offsets = set()
        for _, offset, _ in self._expiries.pop_due(now_ms):
            status = self.window.at(offset)
            if status is not None and status.state <= RecordState.WAITING and self.is_expired(offset, now_ms):
                offsets.add(offset)
        return sorted(offsets)

    def is_expired(self, offset: Offset, now_ms: int) -> bool:
        known = self._known.get(offset)
        return known is not None and known.expires_at_ms is not None and known.expires_at_ms <= now_ms

    def expired_in(self, first: Offset, last: Offset, now_ms: int) -> list[Offset]:
        return [offset for offset in self._known_in(first, last) if self.is_expired(offset, now_ms)]

    def next_deadline_ms(self) -> int | None:
        deadlines = (
            self._leases.next_ms(lambda timer: self._is_true(timer, RecordState.ACQUIRED)),
            self._dues.next_ms(lambda timer: self._is_true(timer, RecordState.WAITING)),
            self._expiries.next_ms(self._is_true_expiry),
        )
        return min((each for each in deadlines if each is not None), default=None)

    # Steps

    def _come_back(self, first: Offset, last: Offset, available: RecordStatus) -> None:
        """Records that were lent are available again."""
        offsets = self._known_in(first, last)
        for offset in offsets:
            known = self._known[offset]
            if known.key is not None and self.key_order is not None:
                self.key_order.give_back(known.key, offset)
            if known.expires_at_ms is not None:
                self._watch_expiry(offset, known.expires_at_ms)
        if available.backoff_until_ms > 0:
            until_ms = available.backoff_until_ms
            self.set_aside(first, last, available._replace(state=RecordState.WAITING, until_ms=until_ms))
            self._unblock_heads(self._known[offset].key for offset in offsets)
        else:
            self._free(first, last, available)

    def _free(self, first: Offset, last: Offset, status: RecordStatus) -> None:
        """Records are due: READY, or BLOCKED if others of their key come first."""
        ready = status._replace(state=RecordState.READY, until_ms=0)
        self.window.put(first, last, ready)
        if self.key_order is None:
            return
        keys = set()
        for offset in self._known_in(first, last):
            if (key := self._known[offset].key) is None:
                continue
            # A delayed record joins its lane only now, and may come before one that was the head so far.
            head = self.key_order.free_head(key)
            if head is not None and head > offset:
                self._change_state(head, RecordState.READY, RecordState.BLOCKED)
            self.key_order.join(key, offset)
            self._change_state(offset, RecordState.READY, RecordState.BLOCKED)
            keys.add(key)
        self._unblock_heads(keys)

    def _unblock_heads(self, keys: Iterable[bytes | None]) -> None:
        if self.key_order is None:
            return
        for key in keys:
            if key is not None and (head := self.key_order.free_head(key)) is not None:
                self._change_state(head, RecordState.BLOCKED, RecordState.READY)

    def _change_state(self, offset: Offset, before: RecordState, after: RecordState) -> None:
        status = self.window.at(offset)
        if status is not None and status.state is before:
            self.window.put(offset, offset, status._replace(state=after))

    def _forget(self, first: Offset, last: Offset) -> None:
        """Nothing needs to be known of these records any more; who was behind them may come forward."""
        keys = set()
        for offset in self._known_in(first, last):
            key = self._known.pop(offset).key
            if key is not None and self.key_order is not None:
                self.key_order.leave(key, offset)
                keys.add(key)
        self._unblock_heads(keys)

    def _known_in(self, first: Offset, last: Offset) -> list[Offset]:
        if not self._known:
            return []
        if last - first < len(self._known):
            return [offset for offset in Offsets(first, last + 1) if offset in self._known]
        return sorted(offset for offset in self._known if first <= offset <= last)

    def _watch_expiry(self, offset: Offset, expires_at_ms: int) -> None:
        self._expiries.push(expires_at_ms, offset, offset)
        self._expiries.prune(
            len(self._known),
            lambda: [
                (known.expires_at_ms, offset, offset)
                for offset, known in self._known.items()
                if known.expires_at_ms is not None
            ],
        )

    def _timers_of(self, state: RecordState) -> list[Timer]:
        return [
            (status.until_ms, first, last) for first, last, status in self.window.all_runs() if status.state is state
        ]

    def _is_true(self, timer: Timer, state: RecordState) -> bool:
        at_ms, first, last = timer
        return any(status.state is state and status.until_ms == at_ms for _, _, status in self.window.runs(first, last))

    def _is_true_expiry(self, timer: Timer) -> bool:
        at_ms, offset, _ = timer
        known, status = self._known.get(offset), self.window.at(offset)
        return (
            known is not None
            and known.expires_at_ms == at_ms
            and status is not None
            and status.state <= RecordState.WAITING
        )


def _durable(first: Offset, last: Offset, status: RecordStatus) -> StateRange | None:
    """What a restart would know; None if that is no more than that the record is there."""
    match status.state:
        case RecordState.RESOLVED:
            return StateRange(first, last, RangeState.ACKNOWLEDGED)
        case RecordState.ARCHIVING:
            return StateRange(first, last, RangeState.ARCHIVING, status.delivery_count, reason=status.reason)
    if status.delivery_count == 0:
        return None
    return StateRange(first, last, RangeState.AVAILABLE, status.delivery_count, status.backoff_until_ms)
