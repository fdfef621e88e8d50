"""Producers of one partition: order, duplicates, epochs, transactions, what is taken back, who is forgotten."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_OFFSET
from headwater.records.batch import BatchHeader
from headwater.records.control import EndMarker
from headwater.transactions.producer_state import (
    ACCEPT,
    Accept,
    Duplicate,
    EndedBefore,
    ProducerDescription,
    ProducerStates,
)
from tests.transactions.written_batches import MAX_SEQUENCE, a_header, a_marker, in_transaction

COMMIT, ABORT = EndMarker(True, 3), EndMarker(False, 3)


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
    before = states.describe()
    states.check(a_header(1, 1))
    states.check(a_header(0, 1))
    states.check(a_header(0, 1, epoch=1))
    states.check(a_header(0, 1, pid=8))
    states.check(in_transaction(0, 1, pid=8))
    states.check_marker(7, 1, 3)
    assert states.describe() == before


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


def test_a_marker_of_a_new_epoch_fences_the_old_one_and_the_new_one_starts_at_zero() -> None:
    states = states_after(a_header(0, 0))
    states.end(a_marker(1, epoch=1), COMMIT)
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
    before = states.describe()
    states.truncate(2)
    assert states.describe() == before


def test_however_much_is_taken_back_all_is_as_it_was() -> None:
    states = states_after(*(a_header(n, n) for n in range(9)))
    states.truncate(2)
    assert states.check(a_header(2, 2)) is ACCEPT
    assert states.check(a_header(0, 2)) == Duplicate(0, 0, 1_000)
    assert states.describe() == states_after(a_header(0, 0), a_header(1, 1)).describe()


def test_an_epoch_that_was_not_stored_fences_nobody() -> None:
    states = states_after(a_header(0, 0), a_header(0, 1, epoch=1))
    states.end(a_marker(2, epoch=2), COMMIT)
    states.truncate(1)
    assert states.check(a_header(1, 1, epoch=0)) is ACCEPT
    assert states.check(a_header(0, 1, epoch=0)) == Duplicate(0, 0, 1_000)


def test_what_is_committed_is_not_taken_back() -> None:
    states = states_after(a_header(0, 0), a_header(1, 1))
    states.commit(1)
    with pytest.raises(AssertionError):
        states.truncate(0)
    states.truncate(1)
    assert states.describe() == states_after(a_header(0, 0)).describe()


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


def test_a_transaction_begins_with_the_first_batch_and_goes_on_with_the_next() -> None:
    states = ProducerStates()
    assert states.append(in_transaction(0, 10, count=3))
    assert not states.append(in_transaction(3, 13))
    assert states.open_starts() == [10]
    assert states.describe() == [ProducerDescription(7, 0, 3, 1_000, -1, 10)]


def test_a_marker_ends_the_transaction_and_tells_where_it_began() -> None:
    states = states_after(in_transaction(0, 10), in_transaction(1, 11))
    assert states.end(a_marker(12, time=2_000), ABORT) == 10
    assert states.describe() == [ProducerDescription(7, 0, 1, 2_000, 3, NO_OFFSET)]
    assert states.end(a_marker(13), COMMIT) == NO_OFFSET


def test_after_a_marker_of_the_same_epoch_the_sequence_goes_on() -> None:
    states = states_after(in_transaction(0, 0), in_transaction(1, 1))
    states.end(a_marker(2), COMMIT)
    assert states.check(in_transaction(2, 3)) is ACCEPT
    assert states.check(in_transaction(1, 3)) == Duplicate(1, 1, 1_000)


def test_after_a_marker_of_the_next_epoch_the_sequence_begins_anew() -> None:
    states = states_after(in_transaction(0, 0), in_transaction(1, 1))
    states.end(a_marker(2, epoch=1), COMMIT)
    assert refusal(states, in_transaction(2, 3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, in_transaction(2, 3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(in_transaction(0, 3, epoch=1)) is ACCEPT


def test_a_batch_outside_the_open_transaction_of_its_producer_is_refused() -> None:
    states = states_after(in_transaction(0, 0))
    assert refusal(states, a_header(1, 1)) is ErrorCode.INVALID_TXN_STATE
    assert states.check(in_transaction(1, 1)) is ACCEPT
    assert states.check(a_header(0, 1)) == Duplicate(0, 0, 1_000)
    assert states.check(a_header(0, 1, pid=8)) is ACCEPT
    states.end(a_marker(1), COMMIT)
    assert states.check(a_header(1, 2)) is ACCEPT


def test_a_marker_is_written_once() -> None:
    states = states_after(in_transaction(0, 0))
    assert states.check_marker(7, 0, 3) is ACCEPT
    states.end(a_marker(1), COMMIT)
    assert states.check_marker(7, 0, 3) == EndedBefore(1)
    assert states.check_marker(7, 0, 4) == EndedBefore(1)


def test_a_marker_is_written_where_it_fences_somebody() -> None:
    states = states_after(a_header(0, 0))
    assert states.check_marker(8, 0, 3) is ACCEPT
    assert states.check_marker(7, 1, 3) is ACCEPT
    assert states.check_marker(7, 0, 3) == EndedBefore(NO_OFFSET)


def marker_refusal(states: ProducerStates, pid: int, epoch: int, coordinator_epoch: int) -> ErrorCode:
    with pytest.raises(RequestError) as caught:
        states.check_marker(pid, epoch, coordinator_epoch)
    return caught.value.code


def test_a_marker_that_is_too_late_is_refused() -> None:
    states = states_after(in_transaction(0, 0, epoch=2))
    assert marker_refusal(states, 7, 1, 3) is ErrorCode.INVALID_PRODUCER_EPOCH
    states.end(a_marker(1, epoch=2), COMMIT)
    states.append(in_transaction(1, 2, epoch=2))
    assert marker_refusal(states, 7, 2, 2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert states.check_marker(7, 2, 3) is ACCEPT


@pytest.mark.parametrize(("pid", "epoch"), [(-1, 0), (7, -1)])
def test_a_marker_of_nobody_is_refused(pid: int, epoch: int) -> None:
    assert marker_refusal(ProducerStates(), pid, epoch, 0) is ErrorCode.INVALID_REQUEST


def test_a_transaction_that_was_not_stored_is_not_open_and_one_that_was_not_ended_is() -> None:
    states = states_after(in_transaction(0, 0, pid=1), in_transaction(0, 1, pid=2))
    states.end(a_marker(2, pid=1), ABORT)
    states.truncate(1)
    assert states.open_starts() == [0]
    assert states.check_marker(1, 0, 3) is ACCEPT


def test_a_marker_that_was_not_stored_leaves_nothing_of_a_stranger() -> None:
    states = ProducerStates()
    states.end(a_marker(0), COMMIT)
    states.truncate(0)
    assert 7 not in states


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    states = ProducerStates(max_producers=4)
    for pid in (1, 2):
        states.append(in_transaction(0, pid, pid=pid), now_ms=0)
    for pid in range(3, 20):
        states.append(a_header(0, pid, pid=pid), now_ms=0)
    assert len(states) == 4 and 1 in states and 2 in states
    assert states.expire(now_ms=10_000, expiration_ms=1) == 2
    assert 1 in states and 2 in states


def test_half_of_the_producers_may_have_a_transaction() -> None:
    states = ProducerStates(max_producers=4)
    for pid in (1, 2):
        assert states.check(in_transaction(0, pid, pid=pid)) is ACCEPT
        states.append(in_transaction(0, pid, pid=pid))
    assert refusal(states, in_transaction(0, 3, pid=3)) is ErrorCode.POLICY_VIOLATION
    assert states.check(in_transaction(1, 3, pid=1)) is ACCEPT
    assert states.check(a_header(0, 3, pid=3)) is ACCEPT
    states.end(a_marker(3, pid=1), COMMIT)
    assert states.check(in_transaction(0, 4, pid=3)) is ACCEPT


def test_whoever_made_room_for_a_batch_that_was_not_stored_is_back() -> None:
    states = ProducerStates(max_producers=2)
    for pid in (1, 2, 3):
        states.append(a_header(5, pid, pid=pid))
    assert 1 not in states
    states.truncate(3)
    assert 1 in states and 2 in states
    assert states.check(a_header(6, 3, pid=1)) is ACCEPT


def test_of_too_many_producers_the_latest_are_kept() -> None:
    states = states_after(*(a_header(0, pid, pid=pid) for pid in range(5)))
    copy = ProducerStates(max_producers=2, producers=states.at(5))
    assert [producer.producer_id for producer in copy.describe()] == [3, 4]


appends = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, MAX_SEQUENCE), st.integers(1, 50)), max_size=40
)


@given(appends, st.integers(0, 40))
def test_what_was_known_at_an_offset_is_what_its_log_says(made: list[tuple[int, int, int, int]], length: int) -> None:
    states, shorter = ProducerStates(), ProducerStates()
    offset = end = 0
    for number, (pid, epoch, sequence, count) in enumerate(made):
        header = a_header(sequence, offset, count=count, pid=pid, epoch=epoch)
        offset += count
        states.append(header)
        if number < length:
            shorter.append(header)
            end = offset
    for _ in range(2):
        known = dict(states.at(end))
        assert {pid: known[pid] for pid in known if known[pid].batches} == dict(shorter.at(end))
        states.truncate(end)


class Log:
    """A partition that loses writes, crashes and resends, next to what a correct one would hold."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.batches: list[BatchHeader] = []
        self.committed = 0
        """Batches that a restart has found: they are not lost any more."""

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
        self.states = ProducerStates(producers=states.at(self.end))
        for header in self.batches[snapshot_at:]:
            self.states.append(header)
        self.committed = len(self.batches)


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
        elif what == "lose" and number <= len(log.batches) - log.committed:
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
