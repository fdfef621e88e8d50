"""Random histories of a share partition, next to a model that keeps one object for each record.

Members fetch, acknowledge and vanish, time passes, the broker restarts, the log is trimmed. After every step the real
state is what the events say, and its bounds hold; at the end everything is drained, and every record has had exactly
one end.
"""

from collections.abc import Sequence

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from queue_model import Model, ModelRecord

from headwater.model.errors import ErrorCode
from headwater.queues.event_bytes import decode, encode
from headwater.queues.events import DeadLetterReason, RangeState, ShareEvent, ShareStateChanged
from headwater.queues.log_read import CandidateBatch, FactsReader, LogRead, RecordFacts
from headwater.queues.outcomes import AcknowledgedBatch, AcknowledgeType, AcquireMode, Changes, DeadLetter
from headwater.queues.redelivery import backoff_ms
from headwater.queues.settings import Backoff, QueueSettings, ShareOrder
from headwater.queues.share_partition import SharePartition

MEMBERS = ("ann", "bob", "cid")
START_MS = 1_000_000
_REASONS = {
    DeadLetterReason.REJECTED: "rejected",
    DeadLetterReason.DELIVERY_LIMIT: "limit",
    DeadLetterReason.EXPIRED: "expired",
}


@st.composite
def queue_settings(draw: st.DrawFn) -> QueueSettings:
    return QueueSettings(
        record_lock_duration_ms=100,
        delivery_count_limit=draw(st.integers(1, 3)),
        max_record_locks=draw(st.sampled_from([3, 8, 50])),
        max_waiting_records=draw(st.sampled_from([2, 10, 100])),
        order=draw(st.sampled_from(ShareOrder)),
        backoff=draw(st.sampled_from([Backoff(), Backoff(20, 50), Backoff(steps_ms=(0, 30))])),
        dead_letter_topic=draw(st.sampled_from(["", "dead"])),
    )


@st.composite
def batches(draw: st.DrawFn, features: bool) -> list[ModelRecord]:
    made = []
    for _ in range(draw(st.integers(1, 6))):
        record = ModelRecord(0, exists=draw(st.integers(0, 7)) > 0)
        if features:
            record.key = draw(st.sampled_from([None, b"a", b"b", b"c" * 100]))
            record.deliver_at_ms = draw(st.sampled_from([None, None, 10, 60]))
            record.expires_at_ms = draw(st.sampled_from([None, None, 5, 80, 150]))
            record.matches = draw(st.integers(0, 5)) > 0
        made.append(record)
    return made


class ShareHistory(RuleBasedStateMachine):
    @initialize(settings=queue_settings(), features=st.booleans())
    def begin(self, settings: QueueSettings, features: bool) -> None:
        self.settings = settings
        self.features = features or settings.order is ShareOrder.KEY
        self.model = Model(settings)
        self.real = SharePartition(settings)
        self.log: list[bytes] = [encode(self.real.snapshot())]
        self.batch_bounds: list[tuple[int, int]] = []
        self.dead_letters: list[DeadLetter] = []
        self.written: list[int] = []
        self.now_ms = START_MS
        self.log_start = 0

    # The world

    @rule(data=st.data())
    def produce(self, data: st.DataObject) -> None:
        first = len(self.model.records)
        for record in data.draw(batches(self.features)):
            record.offset = len(self.model.records)
            record.deliver_at_ms = None if record.deliver_at_ms is None else self.now_ms + record.deliver_at_ms
            record.expires_at_ms = None if record.expires_at_ms is None else self.now_ms + record.expires_at_ms
            self.model.records.append(record)
        if data.draw(st.integers(0, 5)):  # else: a control batch, which no candidate covers
            self.batch_bounds.append((first, len(self.model.records) - 1))
        else:
            for record in self.model.records[first:]:
                record.exists = False

    @rule(ms=st.sampled_from([1, 7, 30, 120]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(
        data=st.data(),
        member=st.sampled_from(MEMBERS),
        max_records=st.integers(0, 9),
        mode=st.sampled_from(AcquireMode),
    )
    def fetch(self, data: st.DataObject, member: str, max_records: int, mode: AcquireMode) -> None:
        first = self.real.next_fetch_offset(self.now_ms)
        if first is None:
            first = self.real.end_offset
        if data.draw(st.integers(0, 9)) == 0:  # a read that was overtaken
            first = data.draw(st.integers(max(0, first - 3), first + 3))
        self.acquire(member, first, data.draw(st.integers(1, 30)), max_records, mode)

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
        before = self.real.acquired_count
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
        if mode is AcquireMode.RECORD_LIMIT:
            assert count <= max_records
        return count

    def _reader(self, low: int, high: int) -> FactsReader | None:
        if not self.features:
            return None

        def read() -> Sequence[RecordFacts]:
            return [
                RecordFacts(each.offset, each.key, each.deliver_at_ms, each.expires_at_ms, each.matches)
                for each in self.model.records[low : high + 1]
                if each.exists
            ]

        return read

    @rule(data=st.data(), member=st.sampled_from(MEMBERS))
    def acknowledge(self, data: st.DataObject, member: str) -> None:
        held = self.model.held_by(member)
        if not held:
            return
        chosen = sorted(data.draw(st.sets(st.sampled_from(held), min_size=1)))
        asked: list[AcknowledgedBatch] = []
        for first, last in _ranges(chosen):
            types = data.draw(
                st.lists(st.sampled_from(AcknowledgeType), min_size=last - first + 1, max_size=last - first + 1)
            )
            if data.draw(st.booleans()):
                types = types[:1]
            asked.append(AcknowledgedBatch(first, last, types))
        result = self.real.acknowledge(member, asked, self.now_ms)
        assert result.error is ErrorCode.NONE
        for batch in asked:
            for offset in range(batch.first, batch.last + 1):
                ack = batch.types[0] if len(batch.types) == 1 else batch.types[offset - batch.first]
                self._acknowledged(offset, AcknowledgeType(ack))
        self._take(result.changes, is_modelled=True)

    def _acknowledged(self, offset: int, ack: AcknowledgeType) -> None:
        record = self.model.records[offset]
        match ack:
            case AcknowledgeType.ACCEPT:
                self.model.settled(offset, "accepted")
            case AcknowledgeType.GAP:
                self.model.settled(offset, "archived")
            case AcknowledgeType.REJECT:
                self.model.settled(offset, "rejected")
            case AcknowledgeType.RELEASE:
                self.model.failed(offset, self.now_ms, backoff_ms(self.settings.backoff, record.count))
            case AcknowledgeType.RENEW:
                record.lease_until_ms = self.now_ms + self.settings.record_lock_duration_ms

    @rule(data=st.data(), member=st.sampled_from(MEMBERS), first=st.integers(-2, 40), length=st.integers(1, 9))
    def acknowledge_anything(self, data: st.DataObject, member: str, first: int, length: int) -> None:
        """Ranges that the member may not hold: all of it or nothing."""
        first = first + self.real.start_offset
        last = first + length - 1
        window = range(max(first, self.real.start_offset), last + 1)
        is_held = set(window) <= set(self.model.held_by(member)) and len(window) > 0 and first >= 0
        before = self.real.snapshot(), self.real.acquired_count
        result = self.real.acknowledge(member, [AcknowledgedBatch(first, last, [AcknowledgeType.ACCEPT])], self.now_ms)
        if is_held:
            assert result.error is ErrorCode.NONE
            for offset in window:
                self.model.settled(offset, "accepted")
            self._take(result.changes, is_modelled=True)
        else:
            assert result.error in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE)
            assert result.changes == Changes()
            assert before == (self.real.snapshot(), self.real.acquired_count)

    @rule(member=st.sampled_from(MEMBERS))
    def member_vanishes(self, member: str) -> None:
        for offset in self.model.held_by(member):
            self.model.failed(offset, self.now_ms, 0)
        self._take(self.real.release_member(member, self.now_ms), is_modelled=True)
        assert not self.model.held_by(member)

    @rule()
    def timer_fires(self) -> None:
        for record in self.model.records:
            if record.state == "acquired" and record.lease_until_ms <= self.now_ms:
                self.model.failed(record.offset, self.now_ms, 0)
        self._take(self.real.expire(self.now_ms))
        deadline_ms = self.real.next_deadline_ms()
        assert deadline_ms is None or deadline_ms > self.now_ms

    @rule(data=st.data())
    def dead_letter_is_written(self, data: st.DataObject) -> None:
        if self.dead_letters:
            letter = self.dead_letters.pop(data.draw(st.integers(0, len(self.dead_letters) - 1)))
            self.written += range(letter.first, letter.last + 1)
            self._take(self.real.dead_letters_written(letter.first, letter.last))

    @rule()
    def broker_restarts(self) -> None:
        self.real = self._replayed()
        self.model.restarted()
        self.dead_letters = list(self.real.pending_dead_letters())

    @rule()
    def log_is_snapshotted(self) -> None:
        self.log = [encode(self.real.snapshot())]

    @precondition(lambda self: self.model.records)
    @rule(data=st.data())
    def log_is_trimmed(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, min(len(self.model.records), self.log_start + 4)))
        self.batch_bounds = [
            (max(low, self.log_start), high) for low, high in self.batch_bounds if high >= self.log_start
        ]
        self._take(self.real.log_start_moved(self.log_start))
        for record in self.model.records[: self.log_start]:
            if not record.is_settled():
                self.model.settled(record.offset, "trimmed")
        self.dead_letters = list(self.real.pending_dead_letters())

    @rule()
    def order_is_reconfigured(self) -> None:
        self.real.reconfigure(self.settings)

    # What must be true

    @invariant()
    def events_say_what_is_there(self) -> None:
        assert self._replayed().snapshot() == self.real.snapshot()

    @invariant()
    def bounds_hold(self) -> None:
        window = self.real._state.window
        held = [each for each in self.model.records if each.state == "acquired"]
        assert self.real.acquired_count == len(held) <= self.settings.max_record_locks
        assert self.real.waiting_count <= self.settings.max_waiting_records + self.settings.max_record_locks
        unsettled = sum(window.counts) - window.counts[6]
        assert window.run_count <= 2 * unsettled
        assert sum(window.counts) == self.real.end_offset - self.real.start_offset
        assert len(self.real._state._known) <= unsettled
        assert self.real.lag(len(self.model.records)) == len(
            [each for each in self.model.records if not self._is_over(each)]
        )

    def _is_over(self, record: ModelRecord) -> bool:
        is_dying = any(low <= record.offset <= high for low, high in self._dying())
        return record.is_settled() and not is_dying

    def _dying(self) -> list[tuple[int, int]]:
        return [(each.first, each.last) for each in self.real.pending_dead_letters()]

    @invariant()
    def every_open_dead_letter_is_known(self) -> None:
        known = [offset for each in self.dead_letters for offset in range(each.first, each.last + 1)]
        pending = [offset for low, high in self._dying() for offset in range(low, high + 1)]
        assert sorted(known) == pending

    def teardown(self) -> None:
        if hasattr(self, "real"):
            self._drain()

    def _drain(self) -> None:
        """One patient member takes all there is: nothing is lost, and nothing that ended comes again."""
        for _ in range(40 + 4 * len(self.model.records)):
            self.timer_fires()
            for letter in self.dead_letters:
                self.written += range(letter.first, letter.last + 1)
                self._take(self.real.dead_letters_written(letter.first, letter.last))
            self.dead_letters = []
            first = self.real.next_fetch_offset(self.now_ms)
            if first is not None:
                self.acquire("zoe", first, 20, 100, AcquireMode.BATCH_OPTIMIZED)
                for offset in self.model.held_by("zoe"):
                    accepted = self.real.acknowledge("zoe", [AcknowledgedBatch(offset, offset, [1])], self.now_ms)
                    assert accepted.error is ErrorCode.NONE
                    self.model.settled(offset, "accepted")
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
                    self.model.settled(offset, "skipped")
                else:
                    assert record.state != "acquired"
                    assert record.expires_at_ms is not None and record.expires_at_ms <= self.now_ms
                    self.model.settled(offset, "expired")


def _ranges(offsets: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


ShareHistory.TestCase.settings = hypothesis_settings(max_examples=120, stateful_step_count=40, deadline=None)
TestShareHistory = ShareHistory.TestCase
