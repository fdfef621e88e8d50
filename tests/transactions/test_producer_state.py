"""Idempotent producers of one partition: order, duplicates, epochs, truncation, snapshots."""

import contextlib
import struct

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.errors import ErrorCode, RequestError
from headwater.records.batch import CONTROL, BatchHeader
from headwater.transactions.producer_state import (
    ACCEPT,
    Accept,
    CorruptSnapshot,
    Duplicate,
    ProducerDescription,
    ProducerStates,
)

MAX_SEQUENCE = (1 << 31) - 1


def a_header(
    sequence: int, offset: int, *, count: int = 1, pid: int = 7, epoch: int = 0, time: int = 1_000, attributes: int = 0
) -> BatchHeader:
    return BatchHeader(offset, 100, 0, 2, 0, attributes, count - 1, time, time, pid, epoch, sequence, count)


def states_after(*headers: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    for header in headers:
        assert states.check(header) is ACCEPT
        states.append(header)
    return states


def refusal(states: ProducerStates, header: BatchHeader) -> ErrorCode:
    with pytest.raises(RequestError) as caught:
        states.check(header)
    return caught.value.code


def test_batches_in_order_are_accepted() -> None:
    states = states_after(a_header(0, 0, count=3), a_header(3, 3), a_header(4, 4, count=10), a_header(14, 14))
    assert len(states) == 1


def test_a_producer_without_an_id_is_not_remembered() -> None:
    states = ProducerStates()
    anonymous = a_header(-1, 0, pid=-1, epoch=-1)
    assert states.check(anonymous) is ACCEPT
    states.append(anonymous)
    assert len(states) == 0


def test_a_gap_is_out_of_order() -> None:
    states = states_after(a_header(0, 0, count=3))
    assert refusal(states, a_header(4, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_a_duplicate_with_its_first_offsets() -> None:
    states = states_after(*(a_header(2 * n, 100 + 2 * n, count=2, time=n) for n in range(7)))
    for n in range(2, 7):
        assert states.check(a_header(2 * n, 0, count=2)) == Duplicate(100 + 2 * n, 101 + 2 * n, n)
    for n in range(2):
        assert refusal(states, a_header(2 * n, 0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_overlap_is_no_duplicate() -> None:
    states = states_after(a_header(0, 0, count=4))
    for sequence, count in [(0, 3), (0, 5), (1, 3), (3, 1)]:
        assert refusal(states, a_header(sequence, 4, count=count)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_checking_changes_nothing() -> None:
    states = states_after(a_header(0, 0))
    before = states.snapshot()
    states.check(a_header(1, 1))
    states.check(a_header(0, 1))
    states.check(a_header(0, 1, epoch=1))
    states.check(a_header(0, 1, pid=8))
    assert states.snapshot() == before


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerStates().check(a_header(1_234, 0)) is ACCEPT


def test_sequences_wrap_to_zero() -> None:
    states = states_after(a_header(MAX_SEQUENCE - 1, 0, count=2))
    assert states.check(a_header(0, 2)) is ACCEPT
    states = states_after(a_header(MAX_SEQUENCE - 1, 0, count=4))
    assert states.check(a_header(2, 4)) is ACCEPT
    assert states.check(a_header(MAX_SEQUENCE - 1, 4, count=4)) == Duplicate(0, 3, 1_000)


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    states = states_after(a_header(0, 0), a_header(1, 1))
    assert refusal(states, a_header(2, 2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    renewed = a_header(0, 2, epoch=1)
    assert states.check(renewed) is ACCEPT
    states.append(renewed)
    assert refusal(states, a_header(2, 3, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, a_header(1, 3, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(a_header(0, 3, epoch=1)) == Duplicate(2, 2, 1_000)
    assert states.check(a_header(1, 3, epoch=1)) is ACCEPT


def test_of_a_control_batch_only_the_epoch_counts() -> None:
    states = states_after(a_header(0, 0))
    states.append(a_header(-1, 1, epoch=1, attributes=CONTROL))
    assert refusal(states, a_header(1, 2, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, a_header(1, 2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(a_header(0, 2, epoch=1)) is ACCEPT


def test_what_could_not_be_stored_may_be_sent_again() -> None:
    states = states_after(*(a_header(n, n) for n in range(4)))
    states.truncate(2)
    assert refusal(states, a_header(3, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(a_header(2, 2)) is ACCEPT
    assert states.check(a_header(1, 2)) == Duplicate(1, 1, 1_000)


def test_the_first_batch_of_a_producer_can_be_taken_back() -> None:
    for sequence in (0, 10):
        states = states_after(a_header(sequence, 5), a_header(sequence + 1, 6))
        states.truncate(5)
        assert refusal(states, a_header(sequence + 1, 5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert states.check(a_header(sequence, 5)) is ACCEPT


def test_truncation_past_the_end_changes_nothing() -> None:
    states = states_after(a_header(0, 0), a_header(1, 1))
    before = states.snapshot()
    states.truncate(2)
    assert states.snapshot() == before


def test_a_producer_of_which_more_was_taken_back_than_is_remembered_starts_anew() -> None:
    states = states_after(*(a_header(n, n) for n in range(9)))
    states.truncate(2)
    assert states.check(a_header(2, 2)) is ACCEPT


def test_producers_not_heard_of_expire() -> None:
    states = ProducerStates()
    states.append(a_header(0, 0, pid=1, time=5), now_ms=1_000)
    states.append(a_header(0, 1, pid=2, time=5), now_ms=2_000)
    assert states.expire(now_ms=2_500, expiration_ms=1_500) == 1
    assert 1 not in states and 2 in states
    assert states.expire(now_ms=2_500, expiration_ms=1_500) == 0


def test_the_producer_not_heard_of_for_longest_makes_room() -> None:
    states = ProducerStates(max_producers=2)
    for offset, pid in enumerate([1, 2, 1, 3]):
        states.append(a_header(offset, offset, pid=pid))
    assert [producer.producer_id for producer in states.describe()] == [1, 3]


def test_producers_are_described() -> None:
    states = states_after(a_header(0, 0, count=3, time=50, epoch=2))
    assert states.describe() == [ProducerDescription(7, 2, 2, 50)]
    assert states.last_offsets() == {7: 2}


def test_a_log_with_gaps_from_compaction_is_replayed() -> None:
    states = ProducerStates()
    states.append(a_header(0, 0, count=5))
    states.append(a_header(40, 90, count=10))
    assert states.check(a_header(50, 100)) is ACCEPT


appends = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, MAX_SEQUENCE), st.integers(1, 50)), max_size=40
)


@given(appends)
def test_a_snapshot_restores_everything(made: list[tuple[int, int, int, int]]) -> None:
    states = ProducerStates()
    offset = 0
    for pid, epoch, sequence, count in made:
        states.append(a_header(sequence, offset, count=count, pid=pid, epoch=epoch), now_ms=offset)
        offset += count
    copy = ProducerStates.restore(memoryview(states.snapshot()))
    assert copy.snapshot() == states.snapshot()
    assert copy.describe() == states.describe()
    assert copy.last_offsets() == states.last_offsets()


@given(appends, st.integers(0, 500))
def test_a_snapshot_below_an_offset_and_what_follows_make_the_whole(
    made: list[tuple[int, int, int, int]], below: int
) -> None:
    states = ProducerStates()
    headers = []
    offset = 0
    for pid, _, sequence, count in made:
        headers.append(a_header(sequence, offset, count=count, pid=pid))
        states.append(headers[-1])
        offset += count
    before = states.snapshot()
    copy = ProducerStates.restore(states.snapshot(below=below))
    assert states.snapshot() == before
    for header in headers:
        if header.last_offset >= below:
            copy.append(header)
    assert sorted(copy.describe(), key=str) == sorted(states.describe(), key=str)
    assert copy.last_offsets() == states.last_offsets()


def test_no_producers_take_no_bytes() -> None:
    assert ProducerStates().snapshot() == b""
    assert len(ProducerStates.restore(b"")) == 0


def test_of_too_many_producers_in_a_snapshot_the_latest_are_kept() -> None:
    states = states_after(*(a_header(0, pid, pid=pid) for pid in range(5)))
    copy = ProducerStates.restore(states.snapshot(), max_producers=2)
    assert [producer.producer_id for producer in copy.describe()] == [3, 4]


@given(st.binary(min_size=1, max_size=200))
def test_arbitrary_bytes_are_no_snapshot(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        ProducerStates.restore(data)


@given(st.binary(max_size=200), st.integers(0, (1 << 32) - 1))
def test_a_right_checksum_over_arbitrary_bytes_raises_nothing_else(data: bytes, count: int) -> None:
    body = struct.pack(">I", count) + data
    with contextlib.suppress(CorruptSnapshot):
        states = ProducerStates.restore(struct.pack(">BI", 1, crc32c.crc32c(body)) + body)
        assert len(states) == count


def test_every_cut_and_flip_of_a_snapshot_is_noticed() -> None:
    good = states_after(a_header(0, 0), a_header(1, 1), a_header(0, 2, pid=9)).snapshot()
    for position in range(len(good)):
        if position:
            with pytest.raises(CorruptSnapshot):
                ProducerStates.restore(good[:position])
        flipped = bytearray(good)
        flipped[position] ^= 0x10
        with pytest.raises(CorruptSnapshot):
            ProducerStates.restore(flipped)


class Log:
    """A partition that loses writes, crashes and resends, next to what a correct one would hold."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.batches: list[BatchHeader] = []

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def send(self, sequence: int, count: int) -> Accept | Duplicate | ErrorCode:
        header = a_header(sequence, self.end, count=count)
        try:
            verdict = self.states.check(header)
        except RequestError as error:
            return error.code
        if verdict is ACCEPT:
            self.states.append(header)
            self.batches.append(header)
        return verdict

    def lose(self, batches: int) -> None:
        lost = self.batches[len(self.batches) - batches :]
        if lost:
            self.states.truncate(lost[0].base_offset)
            del self.batches[len(self.batches) - batches :]

    def restart(self, snapshot_at: int) -> None:
        states = ProducerStates()
        for header in self.batches[:snapshot_at]:
            states.append(header)
        self.states = ProducerStates.restore(states.snapshot())
        for header in self.batches[snapshot_at:]:
            self.states.append(header)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.just("resend"), st.integers(1, 5)),
        st.tuples(st.just("lose"), st.integers(0, 5)),
        st.tuples(st.just("restart"), st.integers(0, 30)),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_every_sequence_is_stored_once_and_in_order(made: list[tuple[str, int]]) -> None:
    log = Log()
    for what, number in made:
        next_sequence = sum(header.record_count for header in log.batches)
        if what == "send":
            assert log.send(next_sequence, number) is ACCEPT
            assert log.send(next_sequence + number + 1, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif what == "resend" and number <= len(log.batches):
            again = log.batches[-number]
            assert log.send(again.base_sequence, again.record_count) == Duplicate(
                again.base_offset, again.last_offset, again.max_timestamp
            )
        elif what == "lose" and number <= len(log.batches):
            # A client has at most five batches in flight: only those can be lost, and they are resent in order.
            tail = log.batches[len(log.batches) - number :]
            log.lose(number)
            for header in tail:
                assert log.send(header.base_sequence, header.record_count) is ACCEPT
        elif what == "restart":
            log.restart(min(number, len(log.batches)))
    sequence = 0
    for header in log.batches:
        assert header.base_sequence == sequence
        sequence += header.record_count
