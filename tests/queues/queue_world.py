"""A share partition in a random world, next to a model that keeps one object for each record.

Members fetch, acknowledge and vanish, time passes, the broker restarts, the log is trimmed. `check` compares the two
after a step; `drain` ends a history: everything is taken, and every record has had exactly one end.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Protocol, TypeVar

from hypothesis import strategies as st

from headwater.model.errors import ErrorCode
from headwater.queues.event_bytes import decode, encode
from headwater.queues.events import DeadLetterReason, RangeState, ShareEvent, ShareStateChanged
from headwater.queues.in_flight import RecordState
from headwater.queues.log_read import CandidateBatch, DeliveryTerms, LogRead, TermsReader
from headwater.queues.outcomes import AcknowledgedBatch, AcknowledgeType, AcquireMode, Changes, DeadLetter
from headwater.queues.redelivery import backoff_ms
from headwater.queues.settings import QueueSettings, RedeliveryBackoff, ShareOrder
from headwater.queues.share_partition import SharePartition
from tests.queues.queue_model import Model, ModelRecord

MEMBERS = ("ann", "bob", "cid")
START_MS = 1_000_000
_REASONS = {
    DeadLetterReason.REJECTED: "rejected",
    DeadLetterReason.DELIVERY_LIMIT: "limit",
    DeadLetterReason.EXPIRED: "expired",
}
T = TypeVar("T")


class Chance(Protocol):
    """Where the turns of a history come from."""

    def number(self, least: int, most: int) -> int: ...

    def one_of(self, choices: Sequence[T]) -> T: ...


class DrawnChance:
    """Turns that hypothesis draws, and can make simpler when they lead to a failure."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def number(self, least: int, most: int) -> int:
        return self._data.draw(st.integers(least, most))

    def one_of(self, choices: Sequence[T]) -> T:
        return self._data.draw(st.sampled_from(choices))


class SeededChance:
    """Turns of a seed: no simpler ones, but many more of them in the same time."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def one_of(self, choices: Sequence[T]) -> T:
        return self._random.choice(choices)


def any_settings(chance: Chance) -> QueueSettings:
    return QueueSettings(
        record_lock_duration_ms=100,
        delivery_count_limit=chance.number(1, 3),
        max_record_locks=chance.one_of([3, 8, 50]),
        max_waiting_records=chance.one_of([2, 10, 100]),
        order=chance.one_of(list(ShareOrder)),
        backoff=chance.one_of([RedeliveryBackoff(), RedeliveryBackoff(20, 50), RedeliveryBackoff(steps_ms=(0, 30))]),
        dead_letter_topic=chance.one_of(["", "dead"]),
    )


class QueueWorld:
    ACTIONS = (
        "produce",
        "time_passes",
        "fetch",
        "fetch_some",
        "fetch_some",
        "acknowledge",
        "acknowledge",
        "acknowledge_anything",
        "release",
        "member_vanishes",
        "timer_fires",
        "dead_letter_is_written",
        "broker_restarts",
        "log_is_snapshotted",
        "log_is_trimmed",
        "group_is_reconfigured",
    )

    def __init__(self, chance: Chance) -> None:
        self.settings = any_settings(chance)
        self.features = bool(chance.number(0, 1)) or self.settings.order is ShareOrder.KEY
        self.model = Model(self.settings)
        self.real = SharePartition(self.settings)
        self.log: list[bytes] = [encode(self.real.snapshot())]
        self.batch_bounds: list[tuple[int, int]] = []
        self.dead_letters: list[DeadLetter] = []
        self.written: list[int] = []
        self.now_ms = START_MS
        self.log_start = 0
        for _ in range(chance.number(0, 4)):
            self.produce(chance)

    def act(self, name: str, chance: Chance) -> None:
        getattr(self, name)(chance)

    # The world

    def produce(self, chance: Chance) -> None:
        first = len(self.model.records)
        is_control_batch = chance.number(0, 5) == 0  # which no candidate covers
        for _ in range(chance.number(1, 6)):
            record = ModelRecord(len(self.model.records))
            record.exists = not is_control_batch and chance.number(0, 7) > 0
            if self.features:
                record.key = chance.one_of([b"a", b"a", b"b", b"c" * 100, None])
                delay_ms = chance.one_of([None, None, None, 10, 60])
                ttl_ms = chance.one_of([None, None, None, 80, 150, 5])
                record.deliver_at_ms = None if delay_ms is None else self.now_ms + delay_ms
                record.expires_at_ms = None if ttl_ms is None else self.now_ms + ttl_ms
                record.matches = chance.number(0, 5) > 0
            self.model.records.append(record)
        if not is_control_batch:
            self.batch_bounds.append((first, len(self.model.records) - 1))

    def time_passes(self, chance: Chance) -> None:
        self.now_ms += chance.one_of([1, 7, 30, 120])
        if chance.number(0, 1):
            self.timer_fires(chance)

    def fetch(self, chance: Chance) -> None:
        first = self.real.next_fetch_offset(self.now_ms)
        if first is None:
            first = self.real.end_offset
        if chance.number(0, 4) == 0:  # a read that was overtaken
            first = max(0, first + chance.number(-3, 8))
        mode = chance.one_of(list(AcquireMode))
        self.acquire(chance.one_of(MEMBERS), first, chance.number(1, 30), chance.number(0, 9), mode)

    def fetch_some(self, chance: Chance) -> None:
        """What a client does most of the time."""
        first = self.real.next_fetch_offset(self.now_ms)
        if first is not None:
            self.acquire(chance.one_of(MEMBERS), first, 12, chance.number(1, 5), AcquireMode.RECORD_LIMIT)

    def release(self, chance: Chance) -> None:
        """What is held is released one by one, in any order."""
        member = chance.one_of(MEMBERS)
        for _ in range(3):
            if held := self.model.held_by(member):
                offset = chance.one_of(held)
                result = self.real.acknowledge(member, [AcknowledgedBatch(offset, offset, [2])], self.now_ms)
                assert result.error is ErrorCode.NONE
                self._acknowledged(offset, AcknowledgeType.RELEASE)
                self._take(result.changes, is_modelled=True)

    def acknowledge(self, chance: Chance) -> None:
        member = chance.one_of(MEMBERS)
        chosen = [offset for offset in self.model.held_by(member) if chance.number(0, 2)]
        asked: list[AcknowledgedBatch] = []
        for first, last in _ranges(chosen):
            count = last - first + 1 if chance.number(0, 1) else 1
            asked.append(AcknowledgedBatch(first, last, [chance.one_of(list(AcknowledgeType)) for _ in range(count)]))
        result = self.real.acknowledge(member, asked, self.now_ms)
        assert result.error is ErrorCode.NONE
        for batch in asked:
            for offset in range(batch.first, batch.last + 1):
                ack = batch.types[0] if len(batch.types) == 1 else batch.types[offset - batch.first]
                self._acknowledged(offset, AcknowledgeType(ack))
        self._take(result.changes, is_modelled=True)

    def acknowledge_anything(self, chance: Chance) -> None:
        """A range that the member may not hold: all of it or nothing."""
        member = chance.one_of(MEMBERS)
        first = self.real.start_offset + chance.number(-2, 40)
        last = first + chance.number(0, 8)
        window = range(max(first, self.real.start_offset), last + 1)
        is_held = set(window) <= set(self.model.held_by(member)) and len(window) > 0 and first >= 0
        before = self.real.snapshot(), self.real.acquired_count
        result = self.real.acknowledge(member, [AcknowledgedBatch(first, last, [AcknowledgeType.ACCEPT])], self.now_ms)
        if is_held:
            assert result.error is ErrorCode.NONE
            for offset in window:
                self.model.resolved(offset, "accepted")
            self._take(result.changes, is_modelled=True)
        else:
            assert result.error in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE)
            assert result.changes == Changes()
            assert before == (self.real.snapshot(), self.real.acquired_count)

    def member_vanishes(self, chance: Chance) -> None:
        member = chance.one_of(MEMBERS)
        for offset in self.model.held_by(member):
            self.model.failed(offset, self.now_ms, 0)
        self._take(self.real.release_member(member, self.now_ms), is_modelled=True)

    def timer_fires(self, _: Chance | None) -> None:
        for record in self.model.records:
            if record.state == "acquired" and record.lease_until_ms <= self.now_ms:
                self.model.failed(record.offset, self.now_ms, 0)
        self._take(self.real.expire(self.now_ms))
        deadline_ms = self.real.next_deadline_ms()
        assert deadline_ms is None or deadline_ms > self.now_ms

    def dead_letter_is_written(self, chance: Chance) -> None:
        if self.dead_letters:
            letter = self.dead_letters.pop(chance.number(0, len(self.dead_letters) - 1))
            self.written += range(letter.first, letter.last + 1)
            self._take(self.real.dead_letters_written([(letter.first, letter.last)]))

    def broker_restarts(self, _: Chance) -> None:
        self.real = self._replayed()
        self.model.restarted()
        self.dead_letters = list(self.real.pending_dead_letters())

    def log_is_snapshotted(self, _: Chance) -> None:
        self.log = [encode(self.real.snapshot())]

    def log_is_trimmed(self, chance: Chance) -> None:
        self.log_start = min(len(self.model.records), self.log_start + chance.number(0, 4))
        bounds = self.batch_bounds
        self.batch_bounds = [(max(low, self.log_start), high) for low, high in bounds if high >= self.log_start]
        self._take(self.real.log_start_moved(self.log_start))
        for record in self.model.records[: self.log_start]:
            if not record.is_settled():
                self.model.resolved(record.offset, "trimmed")
        self.dead_letters = list(self.real.pending_dead_letters())

    def group_is_reconfigured(self, chance: Chance) -> None:
        order = chance.one_of(list(ShareOrder)) if self.features else self.settings.order
        if order is not self.settings.order:
            self.model.restarted()
        backoff = chance.one_of([RedeliveryBackoff(), RedeliveryBackoff(5, 9)])
        self.settings = self.model.settings = replace(self.settings, order=order, backoff=backoff)
        self.real.reconfigure(self.settings)

    def acquire(self, member: str, first: int, span: int, max_records: int, mode: AcquireMode) -> int:
        first = min(first, len(self.model.records))
        end = min(first + span, len(self.model.records))
        candidates = [
            CandidateBatch(low, high, self._reader(low, high))
            for low, high in self.batch_bounds
            if low < end and high >= first
        ]
        if candidates:
            end = max(end, candidates[-1].last_offset + 1)
        before, end_before = self.real.acquired_count, self.real.end_offset
        lowest = self.real.next_fetch_offset(self.now_ms)
        is_usable = lowest is not None and first <= lowest
        acquisition = self.real.acquire(member, LogRead(first, end, candidates), max_records, self.now_ms, mode)
        self._take(acquisition.changes)
        count = 0
        for each in acquisition.ranges:
            for offset in range(each.first, each.last + 1):
                record = self.model.records[offset]
                if not self.features and not record.exists:
                    record.exists = True  # without facts nobody but the client can see the gap
                    refusal = self.model.may_be_delivered(offset, member, self.now_ms)
                    record.exists = False
                else:
                    refusal = self.model.may_be_delivered(offset, member, self.now_ms)
                assert refusal == "", f"{offset} {refusal}"
                self.model.acquired(offset, member, self.now_ms)
                assert record.count == each.delivery_count
                count += 1
        assert self.real.acquired_count == before + count
        if acquisition.ranges and acquisition.ranges[-1].last >= end_before:
            counts = self.real._state.window.counts
            locked = (RecordState.UNREAD, RecordState.READY, RecordState.ACQUIRED, RecordState.ARCHIVING)
            assert sum(counts[each] for each in locked) <= self.settings.max_record_locks
        if mode is AcquireMode.RECORD_LIMIT:
            assert count <= max_records
        if count < max_records and is_usable:
            self._nothing_is_withheld(member, first, min(end, self.real.end_offset))
        return count

    def _nothing_is_withheld(self, member: str, first: int, end: int) -> None:
        counts = self.real._state.window.counts
        if counts[RecordState.ACQUIRED] + counts[RecordState.ARCHIVING] < self.settings.max_record_locks:
            for offset in range(max(first, self.real.start_offset), end):
                assert self.model.may_be_delivered(offset, member, self.now_ms) != "", f"{offset} is withheld"

    def _reader(self, low: int, high: int) -> TermsReader | None:
        if not self.features:
            return None

        def read() -> Sequence[DeliveryTerms]:
            return [
                DeliveryTerms(each.offset, each.key, each.deliver_at_ms, each.expires_at_ms, each.matches)
                for each in self.model.records[low : high + 1]
                if each.exists
            ]

        return read

    def _acknowledged(self, offset: int, ack: AcknowledgeType) -> None:
        record = self.model.records[offset]
        match ack:
            case AcknowledgeType.ACCEPT:
                self.model.resolved(offset, "accepted")
            case AcknowledgeType.GAP:
                self.model.resolved(offset, "archived")
            case AcknowledgeType.REJECT:
                self.model.resolved(offset, "rejected")
            case AcknowledgeType.RELEASE:
                self.model.failed(offset, self.now_ms, backoff_ms(self.settings.backoff, record.count))
            case AcknowledgeType.RENEW:
                record.lease_until_ms = self.now_ms + self.settings.record_lock_duration_ms

    # What must be true

    def check(self) -> None:
        self.events_say_what_is_there()
        self.what_could_be_delivered_is_found()
        self.bounds_hold()
        self.every_open_dead_letter_is_known()

    def events_say_what_is_there(self) -> None:
        assert self._replayed().snapshot() == self.real.snapshot()

    def what_could_be_delivered_is_found(self) -> None:
        found = self.real.next_fetch_offset(self.now_ms)
        window = self.real._state.window
        busy = window.counts[RecordState.ACQUIRED] + window.counts[RecordState.ARCHIVING]
        if busy >= self.settings.max_record_locks:
            assert found is None
            return
        for offset in range(self.real.start_offset, self.real.end_offset):
            if self.model.may_be_delivered(offset, "zoe", self.now_ms) == "":
                assert found is not None and found <= offset
                return

    def bounds_hold(self) -> None:
        window = self.real._state.window
        held = [each for each in self.model.records if each.state == "acquired"]
        assert self.real.acquired_count == len(held) <= self.settings.max_record_locks
        assert self.real.waiting_count <= self.settings.max_waiting_records + self.settings.max_record_locks
        unresolved = sum(window.counts) - window.counts[RecordState.RESOLVED]
        assert window.run_count <= 2 * unresolved
        assert sum(window.counts) == self.real.end_offset - self.real.start_offset
        assert len(self.real._state._known) <= unresolved
        assert self.real.lag(len(self.model.records)) == len(
            [each for each in self.model.records if not self._is_over(each)]
        )

    def _is_over(self, record: ModelRecord) -> bool:
        is_dying = any(low <= record.offset <= high for low, high in self._dying())
        return record.is_settled() and not is_dying

    def _dying(self) -> list[tuple[int, int]]:
        return [(each.first, each.last) for each in self.real.pending_dead_letters()]

    def every_open_dead_letter_is_known(self) -> None:
        known = [offset for each in self.dead_letters for offset in range(each.first, each.last + 1)]
        pending = [offset for low, high in self._dying() for offset in range(low, high + 1)]
        assert sorted(known) == pending

    def drain(self) -> None:
        """One patient member takes all there is: nothing is lost, and nothing that ended comes again."""
        for _ in range(40 + 4 * len(self.model.records)):
            self.timer_fires(None)
            for letter in self.dead_letters:
                self.written += range(letter.first, letter.last + 1)
                self._take(self.real.dead_letters_written([(letter.first, letter.last)]))
            self.dead_letters = []
            first = self.real.next_fetch_offset(self.now_ms)
            if first is not None:
                self.acquire("zoe", first, 20, 100, AcquireMode.BATCH_OPTIMIZED)
                for offset in self.model.held_by("zoe"):
                    accepted = self.real.acknowledge("zoe", [AcknowledgedBatch(offset, offset, [1])], self.now_ms)
                    assert accepted.error is ErrorCode.NONE
                    self.model.resolved(offset, "accepted")
                    self._take(accepted.changes, is_modelled=True)
            if self.real.start_offset >= len(self.model.records):
                break
            deadline_ms = self.real.next_deadline_ms()
            if (
                deadline_ms is not None
                and not self.real.has_ready
                and first == self.real.next_fetch_offset(self.now_ms)
            ):
                self.now_ms = max(self.now_ms, deadline_ms)
        assert self.real.start_offset >= len(self.model.records), "something is lost or stuck"
        assert self.real.lag(len(self.model.records)) == 0
        assert all(each.is_settled() for each in self.model.records)
        if self.settings.has_dead_letters:
            died = [each.offset for each in self.model.records if each.end in ("rejected", "limit", "expired")]
            assert sorted(self.written) == [each for each in died if each in set(self.written)], (
                "a dead letter is written once"
            )
            assert all(each in set(self.written) for each in died if each >= self.log_start)

    # Keeping the books

    def _replayed(self) -> SharePartition:
        replayed = SharePartition(self.settings)
        for data in self.log:
            replayed.apply(decode(data))
        return replayed

    def _take(self, changes: Changes, is_modelled: bool = False) -> None:
        for event in changes.events:
            self.log.append(encode(event))
            if not is_modelled:
                self._learn(event)
        self.dead_letters += changes.dead_letters
        for letter in changes.dead_letters:
            for offset in range(letter.first, letter.last + 1):
                assert self.model.records[offset].end == _REASONS[letter.reason]
                assert self.model.records[offset].count == letter.delivery_count

    def _learn(self, event: ShareEvent) -> None:
        """Ends that the partition found by itself must have a cause."""
        if not isinstance(event, ShareStateChanged):
            return
        for each in event.ranges:
            for offset in range(each.first, each.last + 1):
                record = self.model.records[offset]
                if record.is_settled() or each.state is RangeState.AVAILABLE:
                    continue
                if not record.exists or not record.matches:
                    self.model.resolved(offset, "skipped")
                else:
                    assert record.state != "acquired"
                    assert record.expires_at_ms is not None and record.expires_at_ms <= self.now_ms
                    self.model.resolved(offset, "expired")


def _ranges(offsets: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found
