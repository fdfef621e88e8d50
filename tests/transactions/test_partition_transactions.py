"""Producers and transactions of one partition against a naive list of batches: appends and markers, commits, writes
that fail, new segments, restarts."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.model.errors import ErrorCode, RequestError
from headwater.records.batch import CONTROL, TRANSACTIONAL, BatchHeader, CorruptBatch, parse_header, stamp
from headwater.records.build import build_batch
from headwater.records.control import EndMarker, build_marker
from headwater.records.record import Record
from headwater.transactions import partition_transactions
from headwater.transactions.aborted_transactions import AbortedTransactions
from headwater.transactions.partition_snapshot import read_aborted
from headwater.transactions.partition_transactions import PartitionTransactions
from headwater.transactions.producer_state import ACCEPT
from headwater.transactions.unstable_transactions import NOTHING_UNSTABLE, UNKNOWN_BYTES
from tests.transactions.written_batches import a_marker, in_transaction

COMMIT, ABORT = EndMarker(True, 3), EndMarker(False, 3)
PRODUCERS = st.integers(1, 4)


def stable(transactions: PartitionTransactions, high_watermark: int) -> int:
    return min(transactions.first_unstable, high_watermark)


def test_what_follows_an_open_transaction_is_not_stable() -> None:
    transactions = PartitionTransactions()
    transactions.append(in_transaction(0, 5), 0)
    assert stable(transactions, 4) == 4
    assert stable(transactions, 9) == 5
    assert transactions.has_open(7, 0)
    assert not transactions.has_open(7, 1) and not transactions.has_open(8, 0)


def test_a_transaction_is_unstable_until_its_marker_is_committed() -> None:
    transactions = PartitionTransactions()
    transactions.append(in_transaction(0, 5), 0)
    transactions.end(a_marker(6), COMMIT)
    assert not transactions.has_open(7, 0)
    transactions.commit(6)
    assert stable(transactions, 6) == 5
    transactions.commit(7)
    assert stable(transactions, 7) == 7
    assert transactions.first_unstable == NOTHING_UNSTABLE


def test_the_oldest_transaction_bounds_what_is_stable_whichever_ends_first() -> None:
    transactions = PartitionTransactions()
    for offset, pid in enumerate([1, 2, 3]):
        transactions.append(in_transaction(0, offset, pid=pid), 0)
    transactions.end(a_marker(3, pid=2), ABORT)
    transactions.commit(4)
    assert stable(transactions, 4) == 0
    transactions.end(a_marker(4, pid=1), COMMIT)
    transactions.commit(5)
    assert stable(transactions, 5) == 2


def test_an_aborted_transaction_is_found_and_a_committed_one_is_not() -> None:
    transactions = PartitionTransactions()
    transactions.append(in_transaction(0, 0, pid=1), 0)
    transactions.append(in_transaction(0, 1, pid=2), 0)
    transactions.end(a_marker(2, pid=1), COMMIT)
    transactions.end(a_marker(3, pid=2), ABORT)
    transactions.end(a_marker(4, pid=3), ABORT)
    (entry,) = transactions.aborted.overlapping(0, 5)
    assert (entry.producer_id, entry.first_offset, entry.last_offset) == (2, 1, 3)


def test_a_write_that_failed_takes_back_markers_and_what_had_begun() -> None:
    transactions = PartitionTransactions()
    transactions.append(in_transaction(0, 0, pid=1), 0)
    transactions.commit(1)
    transactions.end(a_marker(1, pid=1), ABORT)
    transactions.append(in_transaction(0, 2, pid=2), 0)
    transactions.truncate(1)
    assert transactions.has_open(1, 0) and not transactions.has_open(2, 0)
    assert stable(transactions, 1) == 0
    assert not transactions.aborted
    transactions.end(a_marker(1, pid=1), COMMIT)
    transactions.commit(2)
    assert stable(transactions, 2) == 2


def test_bytes_become_stable_all_at_once_and_are_counted_once() -> None:
    transactions = PartitionTransactions()
    assert transactions.stable_bytes(0, 0) == 0
    transactions.append(in_transaction(0, 1, pid=1), 100)
    transactions.append(in_transaction(0, 2, pid=2), 150)
    transactions.commit(3)
    assert transactions.stable_bytes(3, 170) == 100
    transactions.end(a_marker(3, pid=1), COMMIT)
    transactions.commit(4)
    assert transactions.stable_bytes(4, 180) == 150
    transactions.end(a_marker(4, pid=2), COMMIT)
    transactions.commit(5)
    assert transactions.stable_bytes(5, 190) == 190


def test_after_a_restart_whatever_ends_counts_as_much() -> None:
    """How much lies between transactions is not known then: a reader that waits is better woken."""
    before = PartitionTransactions()
    for offset, pid in enumerate([1, 2]):
        before.append(in_transaction(0, offset, pid=pid), 0)
    transactions = PartitionTransactions.restore(before.snapshot(2, 0))
    transactions.replay(*written(in_transaction(0, 2, pid=3)))
    transactions.commit(3)
    transactions.lead(AbortedTransactions())
    reached = transactions.stable_bytes(3, 0)
    for marker_offset, pid in enumerate([1, 2, 3], 3):
        transactions.end(a_marker(marker_offset, pid=pid), COMMIT)
        transactions.commit(marker_offset + 1)
        now = transactions.stable_bytes(marker_offset + 1, 10)
        assert now - reached >= UNKNOWN_BYTES
        reached = now
    assert reached == 10


def test_a_marker_that_is_none_is_noticed_at_replay() -> None:
    batch = build_batch([Record(b"?", b"?")], producer_id=7, producer_epoch=0, attributes=CONTROL | TRANSACTIONAL)
    with pytest.raises(CorruptBatch):
        PartitionTransactions().replay(batch, parse_header(batch))


def test_markers_of_aborts_are_refused_when_a_segment_has_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_transactions, "MAX_ABORTED_PER_SEGMENT", 2)
    transactions = PartitionTransactions()
    for number in range(2):
        transactions.check_room(0)
        transactions.append(in_transaction(number, 2 * number), 0)
        transactions.end(a_marker(2 * number + 1), ABORT)
    with pytest.raises(RequestError) as caught:
        transactions.check_room(0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    transactions.check_room(2)


def written(header: BatchHeader, marker: EndMarker | None = None) -> tuple[bytearray, BatchHeader]:
    """The batch of which this is the header."""
    if marker is not None:
        batch = build_marker(header.producer_id, header.producer_epoch, marker, header.max_timestamp)
    else:
        batch = build_batch(
            [Record(None, b"x")] * header.record_count,
            timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            attributes=header.attributes,
        )
    stamp(batch, 0, header.base_offset, 0)
    return batch, parse_header(batch)


@dataclass(frozen=True)
class Written:
    batch: bytearray
    header: BatchHeader
    marker: EndMarker | None = None


class PartitionMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.transactions = PartitionTransactions()
        self.log: list[Written] = []
        self.high_watermark = 0
        self.segments: list[tuple[int, bytes]] = [(0, b"")]
        self.log_start = 0

    # What a partition does

    @rule(pid=PRODUCERS, count=st.integers(1, 3), is_transactional=st.booleans(), bumps=st.booleans())
    def append(self, pid: int, count: int, is_transactional: bool, bumps: bool) -> None:
        producer = self.transactions.producers.get(pid)
        epoch, sequence = (producer.epoch, producer.last_sequence + 1) if producer is not None else (0, 0)
        if bumps and not (producer is not None and producer.is_open):
            epoch, sequence = epoch + 1, 0
        attributes = TRANSACTIONAL if is_transactional else 0
        header = in_transaction(sequence, self.end, count=count, pid=pid, epoch=epoch)._replace(attributes=attributes)
        try:
            assert self.transactions.producers.check(header) is ACCEPT
        except RequestError as error:
            assert error.code is ErrorCode.INVALID_TXN_STATE
            assert pid in self.open_since() and not is_transactional
            return
        self.transactions.append(header, 0)
        self.log.append(Written(*written(header)))

    @rule(pid=PRODUCERS, is_commit=st.booleans(), bumps=st.booleans())
    def end_transaction(self, pid: int, is_commit: bool, bumps: bool) -> None:
        producer = self.transactions.producers.get(pid)
        epoch = (producer.epoch if producer is not None else 0) + bumps
        if self.transactions.producers.check_marker(pid, epoch, 3) is not ACCEPT:
            assert pid not in self.open_since()
            return
        header, marker = a_marker(self.end, pid=pid, epoch=epoch), EndMarker(is_commit, 3)
        self.transactions.end(header, marker)
        self.log.append(Written(*written(header, marker), marker))

    @precondition(lambda self: self.end > self.high_watermark)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.high_watermark = data.draw(st.sampled_from(self.boundaries(self.high_watermark)))
        self.transactions.commit(self.high_watermark)

    @rule(data=st.data())
    def lose_writes(self, data: st.DataObject) -> None:
        end = data.draw(st.sampled_from(self.boundaries(self.high_watermark)))
        self.log = [entry for entry in self.log if entry.header.base_offset < end]
        self.transactions.truncate(end)

    @rule()
    def roll(self) -> None:
        """What waits is not in the new segment's snapshot."""
        base = self.segments[-1][0]
        if self.high_watermark > base:
            self.segments.append((self.high_watermark, self.transactions.snapshot(self.high_watermark, base)))

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """The last segment's snapshot, its batches, and what the other snapshots say of aborted transactions."""
        survived = data.draw(st.sampled_from(self.boundaries(self.high_watermark)))
        self.log = [entry for entry in self.log if entry.header.base_offset < survived]
        base, snapshot = self.segments[-1]
        transactions = PartitionTransactions.restore(snapshot)
        for entry in self.log:
            if entry.header.base_offset >= base:
                transactions.replay(entry.batch, entry.header)
                if data.draw(st.booleans()):
                    transactions.commit(entry.header.last_offset + 1)
        transactions.commit(survived)
        older = AbortedTransactions()
        for _, some in self.segments:
            older.extend(read_aborted(some))
        transactions.lead(older)
        transactions.forget_below(self.log_start)
        self.transactions = transactions
        self.high_watermark = survived

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, self.high_watermark))
        self.transactions.forget_below(self.log_start)

    # What must hold

    @invariant()
    def what_is_stable_is_known(self) -> None:
        unstable = [
            first for _, first, last, _ in self.all_transactions() if last is None or last >= self.high_watermark
        ]
        assert stable(self.transactions, self.high_watermark) == min([*unstable, self.high_watermark])

    @invariant()
    def what_is_open_is_known(self) -> None:
        opened = self.open_since()
        for pid in range(1, 5):
            producer = self.transactions.producers.get(pid)
            assert (producer.transaction_start if producer is not None else -1) == opened.get(pid, -1)
            for epoch in range(12):
                is_open = producer is not None and pid in opened and epoch == producer.epoch
                assert self.transactions.has_open(pid, epoch) == is_open

    @invariant()
    def aborted_transactions_are_found_wherever_one_looks(self) -> None:
        aborted = [
            (pid, first, last)
            for pid, first, last, is_commit in self.all_transactions()
            if last is not None and not is_commit and last >= self.log_start
        ]
        for start in range(self.log_start, self.end + 1, 3):
            for end in range(start + 1, self.end + 2, 2):
                found = self.transactions.aborted.overlapping(start, end)
                expected = [entry for entry in aborted if entry[1] < end and entry[2] >= start]
                assert [entry[:3] for entry in found] == expected

    @invariant()
    def producers_are_as_a_fresh_reader_of_the_log_finds_them(self) -> None:
        fresh = PartitionTransactions()
        for entry in self.log:
            fresh.replay(entry.batch, entry.header)
        known = self.transactions.producers
        assert {each for each in known.describe() if each.producer_id in fresh.producers} == set(
            fresh.producers.describe()
        )
        assert fresh.producers.last_offsets() == known.last_offsets()

    # The list of batches

    @property
    def end(self) -> int:
        return self.log[-1].header.last_offset + 1 if self.log else 0

    def boundaries(self, start: int) -> list[int]:
        return [start, *(end for entry in self.log if (end := entry.header.last_offset + 1) > start)]

    def all_transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """(producer, first offset, marker or None, whether it committed), by marker, the open ones last."""
        opened: dict[int, int] = {}
        ended: list[tuple[int, int, int | None, bool]] = []
        for entry in self.log:
            header = entry.header
            if entry.marker is not None:
                first = opened.pop(header.producer_id, None)
                if first is not None:
                    ended.append((header.producer_id, first, header.base_offset, entry.marker.is_commit))
            elif header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
        return [*ended, *((pid, first, None, False) for pid, first in opened.items())]

    def open_since(self) -> dict[int, int]:
        return {pid: first for pid, first, last, _ in self.all_transactions() if last is None}


PartitionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPartitionTransactions = PartitionMachine.TestCase
