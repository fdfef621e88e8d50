from headwater.model.errors import ErrorCode
from headwater.queues.events import DeadLetterReason
from headwater.queues.log_read import CandidateBatch, LogRead
from headwater.queues.outcomes import AcknowledgedBatch, AcquiredRange, AcquireMode, Changes, DeadLetter
from headwater.queues.settings import RedeliveryBackoff
from headwater.queues.share_partition import SharePartition
from tests.queues.driven_partition import ACCEPT, GAP, REJECT, RELEASE, RENEW, START_MS, DrivenPartition

MAX_LONG = 2**63 - 1


def test_two_members_share_one_partition() -> None:
    driven = DrivenPartition()
    assert driven.fetch("ann", 5) == [(0, 4, 1)]
    assert driven.fetch("bob", 5) == [(5, 9, 1)]
    assert driven.ack("bob", 5, 9, ACCEPT) is ErrorCode.NONE
    assert driven.queue.start_offset == 0
    assert driven.ack("ann", 0, 4, ACCEPT) is ErrorCode.NONE
    assert driven.queue.start_offset == 10
    assert driven.queue.lag(100) == 90


def test_a_whole_batch_is_taken_unless_the_limit_is_strict() -> None:
    assert DrivenPartition().fetch("ann", 12, AcquireMode.BATCH_OPTIMIZED) == [(0, 19, 1)]
    assert DrivenPartition().fetch("ann", 12, AcquireMode.RECORD_LIMIT) == [(0, 11, 1)]


def test_no_more_is_lent_than_there_are_locks() -> None:
    driven = DrivenPartition(max_record_locks=15)
    assert driven.fetch("ann", 100) == [(0, 14, 1)]
    assert driven.queue.next_fetch_offset(driven.now_ms) is None
    driven.ack("ann", 3, 3, ACCEPT)
    assert driven.fetch("bob", 100) == [(15, 15, 1)]


def test_a_released_record_comes_again_before_new_ones_with_its_count() -> None:
    driven = DrivenPartition()
    driven.fetch("ann", 5)
    driven.ack("ann", 2, 3, RELEASE)
    assert driven.fetch("bob", 4) == [(2, 3, 2), (5, 6, 1)]


def test_each_record_of_a_batch_can_have_its_own_answer() -> None:
    driven = DrivenPartition()
    driven.fetch("ann", 6)
    assert driven.ack("ann", 0, 5, ACCEPT, RELEASE, REJECT, GAP, RENEW, ACCEPT) is ErrorCode.NONE
    assert driven.queue.start_offset == 1
    assert driven.queue.acquired_count == 1
    assert driven.fetch("bob", 1) == [(1, 1, 2)]


def test_a_lease_that_runs_out_gives_the_record_to_another() -> None:
    driven = DrivenPartition(record_lock_duration_ms=1_000)
    driven.fetch("ann", 2)
    assert driven.queue.next_deadline_ms() == START_MS + 1_000
    driven.wait(999)
    assert driven.queue.acquired_count == 2
    driven.wait(1)
    assert driven.ack("ann", 0, 1, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert driven.fetch("bob", 2) == [(0, 1, 2)]


def test_a_renewed_lease_lasts_a_whole_time_longer() -> None:
    driven = DrivenPartition(record_lock_duration_ms=1_000)
    driven.fetch("ann", 2)
    driven.wait(600)
    assert driven.ack("ann", 1, 1, RENEW) is ErrorCode.NONE
    driven.wait(600)
    assert driven.ack("ann", 0, 0, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert driven.ack("ann", 1, 1, ACCEPT) is ErrorCode.NONE


def test_what_a_vanished_member_held_is_available_at_once() -> None:
    driven = DrivenPartition(backoff=RedeliveryBackoff(500, 500))
    driven.fetch("ann", 3)
    driven.fetch("bob", 3)
    driven.take(driven.queue.release_member("ann", driven.now_ms))
    assert driven.queue.has_ready
    assert driven.fetch("cid", 3) == [(0, 2, 2)]
    assert driven.ack("bob", 3, 5, ACCEPT) is ErrorCode.NONE


def test_a_record_that_fails_too_often_is_given_up() -> None:
    driven = DrivenPartition(delivery_count_limit=2)
    for _ in range(2):
        driven.fetch("ann", 1)
        driven.ack("ann", 0, 0, RELEASE)
    assert driven.queue.start_offset == 1
    assert driven.dead_letters == []


def test_a_dead_letter_holds_the_start_until_it_is_written() -> None:
    driven = DrivenPartition(dead_letter_topic="dead")
    driven.fetch("ann", 2)
    driven.ack("ann", 0, 1, REJECT)
    letter = DeadLetter(0, 1, DeadLetterReason.REJECTED, 1)
    assert driven.dead_letters == [letter]
    assert driven.queue.start_offset == 0
    driven.restart()
    assert driven.queue.pending_dead_letters() == (letter,)
    assert driven.fetch("bob", 1) == [(2, 2, 1)]
    driven.take(driven.queue.dead_letters_written([(0, 1)]))
    assert driven.queue.start_offset == 2
    assert driven.queue.dead_letters_written([(0, 1)]) == Changes()


def test_dead_letters_that_nobody_writes_stop_the_queue_instead_of_filling_memory() -> None:
    driven = DrivenPartition(dead_letter_topic="dead", max_record_locks=10)
    driven.fetch("ann", 10)
    driven.ack("ann", 0, 9, REJECT)
    assert driven.queue.next_fetch_offset(driven.now_ms) is None
    driven.take(driven.queue.dead_letters_written([(0, 9)]))
    assert driven.queue.next_fetch_offset(driven.now_ms) == 10


def test_a_released_record_rests_and_holds_nobody_up() -> None:
    driven = DrivenPartition(backoff=RedeliveryBackoff(100, 250))
    driven.fetch("ann", 1)
    driven.ack("ann", 0, 0, RELEASE)
    assert driven.fetch("ann", 1) == [(1, 1, 1)]
    assert driven.queue.next_deadline_ms() == START_MS + 100
    driven.wait(100)
    assert driven.fetch("ann", 1) == [(0, 0, 2)]
    driven.ack("ann", 0, 0, RELEASE)
    driven.wait(199)
    assert driven.fetch("ann", 1) == [(2, 2, 1)]
    driven.wait(1)
    assert driven.fetch("ann", 1) == [(0, 0, 3)]


def test_a_rest_outlasts_a_restart() -> None:
    driven = DrivenPartition(backoff=RedeliveryBackoff(100, 100))
    driven.fetch("ann", 1)
    driven.ack("ann", 0, 0, RELEASE)
    driven.restart()
    assert driven.fetch("ann", 1) == [(1, 1, 1)]
    driven.wait(100)
    assert driven.fetch("ann", 1) == [(0, 0, 2)]


def test_a_restart_forgets_leases_and_keeps_what_was_settled() -> None:
    driven = DrivenPartition()
    driven.fetch("ann", 10)
    driven.ack("ann", 3, 5, ACCEPT)
    driven.ack("ann", 7, 7, RELEASE)
    driven.restart()
    assert driven.fetch("bob", 10) == [(0, 2, 1), (6, 6, 1), (7, 7, 2), (8, 12, 1)]
    assert driven.ack("ann", 0, 0, ACCEPT) is ErrorCode.INVALID_RECORD_STATE


def test_a_trimmed_log_takes_its_records_along() -> None:
    driven = DrivenPartition()
    driven.fetch("ann", 10)
    driven.take(driven.queue.log_start_moved(4))
    assert driven.queue.start_offset == 4
    assert driven.ack("ann", 2, 3, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert driven.ack("ann", 2, 5, ACCEPT) is ErrorCode.NONE
    assert driven.queue.start_offset == 6
    driven.take(driven.queue.log_start_moved(50))
    assert (driven.queue.start_offset, driven.queue.end_offset) == (50, 50)
    assert driven.queue.log_start_moved(10) == Changes()


def test_a_reset_begins_anew_in_both_directions() -> None:
    driven = DrivenPartition()
    driven.fetch("ann", 10)
    driven.ack("ann", 0, 4, ACCEPT)
    driven.take(driven.queue.reset(0))
    assert driven.ack("ann", 5, 9, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert driven.fetch("bob", 3) == [(0, 2, 1)]
    driven.take(driven.queue.reset(70))
    assert driven.fetch("bob", 3) == [(70, 72, 1)]
    driven.restart()
    assert driven.queue.start_offset == 70


def test_offsets_that_no_batch_covers_hold_no_records() -> None:
    queue = SharePartition(DrivenPartition().settings)
    read = LogRead(0, 40, [CandidateBatch(10, 14), CandidateBatch(20, 24)])
    acquisition = queue.acquire("ann", read, 100, START_MS)
    assert [(each.first, each.last) for each in acquisition.ranges] == [(10, 14), (20, 24)]
    assert (queue.start_offset, queue.end_offset) == (10, 40)
    assert queue.lag(40) == 10


def test_a_span_of_control_batches_is_passed_over() -> None:
    queue = SharePartition(DrivenPartition().settings)
    acquisition = queue.acquire("ann", LogRead(0, 7, []), 100, START_MS)
    assert acquisition.ranges == ()
    assert (queue.start_offset, queue.next_fetch_offset(START_MS)) == (7, 7)


def test_a_read_that_does_not_reach_back_to_the_window_is_not_used() -> None:
    queue = SharePartition(DrivenPartition().settings)
    assert queue.acquire("ann", LogRead(5, 9, [CandidateBatch(5, 8)]), 10, START_MS).ranges == ()
    assert queue.end_offset == 0


def test_overlapping_or_nonsensical_acknowledgements_are_refused_as_a_whole() -> None:
    driven = DrivenPartition()
    driven.fetch("ann", 10)
    fine = AcknowledgedBatch(0, 1, [ACCEPT])
    for bad in (
        AcknowledgedBatch(1, 3, [ACCEPT]),
        AcknowledgedBatch(5, 4, [ACCEPT]),
        AcknowledgedBatch(4, 5, []),
        AcknowledgedBatch(4, 6, [ACCEPT, ACCEPT]),
        AcknowledgedBatch(4, 5, [ACCEPT, 9]),
        AcknowledgedBatch(4, 5, [-1]),
    ):
        result = driven.queue.acknowledge("ann", [fine, bad], driven.now_ms)
        assert result.errors == (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST)
        assert result.changes == Changes()
    assert driven.ack("ann", -5, 3, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert driven.queue.acquired_count == 10


def test_one_bad_batch_leaves_the_others_of_a_request_alone() -> None:
    driven = DrivenPartition()
    driven.fetch("ann", 5)
    driven.fetch("bob", 5)
    batches = [
        AcknowledgedBatch(0, 1, [ACCEPT]),
        AcknowledgedBatch(4, 5, [ACCEPT]),
        AcknowledgedBatch(80, 81, [ACCEPT]),
    ]
    result = driven.queue.acknowledge("ann", batches, driven.now_ms)
    assert result.errors == (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
    assert result.error is ErrorCode.INVALID_RECORD_STATE
    assert driven.queue.start_offset == 2
    assert driven.queue.acquired_count == 8


def test_a_record_is_acknowledged_once() -> None:
    driven = DrivenPartition()
    driven.fetch("ann", 5)
    assert driven.ack("ann", 1, 1, ACCEPT) is ErrorCode.NONE
    assert driven.ack("ann", 1, 1, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    assert driven.ack("ann", 0, 4, RELEASE) is ErrorCode.INVALID_RECORD_STATE


def test_absurd_ranges_cost_nothing() -> None:
    driven = DrivenPartition()
    driven.fetch("ann", 5)
    assert driven.ack("ann", 0, MAX_LONG, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert driven.ack("ann", MAX_LONG, MAX_LONG, ACCEPT) is ErrorCode.INVALID_REQUEST
    assert driven.ack("ann", 0, 2**200, RELEASE) is ErrorCode.INVALID_REQUEST
    assert driven.queue.dead_letters_written([(0, MAX_LONG)]) == Changes()
    huge = LogRead(5, MAX_LONG, [CandidateBatch(5, MAX_LONG - 1)])
    acquisition = driven.queue.acquire("ann", huge, MAX_LONG, driven.now_ms)
    assert driven.queue.acquired_count == driven.settings.max_record_locks
    assert len(acquisition.ranges) == 1
    driven.take(driven.queue.log_start_moved(MAX_LONG))
    assert driven.queue.start_offset == MAX_LONG
    assert driven.queue.acquire("ann", LogRead(0, 10, []), -1, driven.now_ms).ranges == ()


def test_many_settled_behind_one_that_is_held_take_no_memory() -> None:
    driven = DrivenPartition(log_end=10**9)
    queue = driven.queue
    queue.acquire("slow", LogRead(0, 1, [CandidateBatch(0, 0)]), 1, START_MS)
    for first in range(1, 100_001, 1_000):
        queue.acquire("ann", LogRead(first, first + 1_000, [CandidateBatch(first, first + 999)]), 1_000, START_MS)
        types = [ACCEPT, REJECT] * 500
        assert queue.acknowledge("ann", [AcknowledgedBatch(first, first + 999, types)], START_MS).error == 0
    assert queue.start_offset == 0
    assert queue._state.window.run_count == 2
    assert len(queue.snapshot().ranges) == 1


def test_what_a_member_was_lent_and_not_sent_counts_as_no_delivery() -> None:
    driven = DrivenPartition(delivery_count_limit=2)
    driven.fetch("ann", 4)
    driven.ack("ann", 0, 1, RELEASE)
    assert driven.fetch("ann", 6) == [(0, 1, 2), (4, 7, 1)]
    driven.ack("ann", 5, 5, ACCEPT)
    driven.take(driven.queue.give_back("bob", [AcquiredRange(0, 7, 1)]))
    assert driven.fetch("bob", 1) == [(8, 8, 1)], "ann has what she has"
    driven.take(driven.queue.give_back("ann", [AcquiredRange(0, 1, 2), AcquiredRange(4, 7, 1)]))
    assert driven.ack("ann", 4, 4, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    driven.restart()
    assert driven.fetch("bob", 9) == [(0, 1, 2), (2, 4, 1), (6, 9, 1)], "a restart takes the leases of 2 and 3, too"
    assert driven.dead_letters == []
