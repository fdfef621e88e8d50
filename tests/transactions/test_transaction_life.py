"""What happens to transactions besides requests: markers, time, deleted topics, restarts."""

import pytest

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment
from headwater.transactions.effects import WriteMarkers
from headwater.transactions.events import TransactionForgotten
from headwater.transactions.settings import MAX_EXPIRED_AT_ONCE
from headwater.transactions.transaction import ProducerIdentity, TransactionState
from tests.transactions.driven_transactions import (
    OTHER_TOPIC,
    P0,
    P1,
    P2,
    TIMEOUT_MS,
    WALL_MS,
    DrivenTransactions,
    at,
    replayed,
)

WEEK_MS = 7 * 24 * 3_600_000

# WriteMarkers


def test_a_transaction_is_complete_when_its_last_partition_is_marked() -> None:
    driven = DrivenTransactions()
    driven.commit(driven.begun(P0, P1))
    (markers,) = driven.markers
    driven.report(markers, P0)
    driven.report(markers, P0)
    assert driven.state() is TransactionState.PREPARE_COMMIT
    driven.report(markers, P1)
    assert driven.state() is TransactionState.COMPLETE_COMMIT


def test_a_producer_may_write_to_its_partitions_until_its_transaction_is_decided() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    assert driven.shard.writes_to("t", producer, P0)
    assert not driven.shard.writes_to("t", producer, P1)
    assert not driven.shard.writes_to("t", ProducerIdentity(producer.id, producer.epoch + 1), P0)
    assert not driven.shard.writes_to("unknown", producer, P0)
    driven.commit(producer)
    assert not driven.shard.writes_to("t", producer, P0)


def test_markers_of_other_producers_and_partitions_do_not_count() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.commit(producer)
    for markers, partition in [
        (WriteMarkers("t", producer.id + 1, producer.epoch, True, ()), P0),
        (WriteMarkers("t", producer.id, producer.epoch + 1, True, ()), P0),
        (WriteMarkers("t", producer.id, producer.epoch, True, ()), P1),
        (WriteMarkers("unknown", producer.id, producer.epoch, True, ()), P0),
    ]:
        driven.report(markers, partition)
    assert driven.state() is TransactionState.PREPARE_COMMIT


def test_a_marker_reported_when_nothing_is_decided_changes_nothing() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.report(WriteMarkers("t", *producer, True, ()), P0)
    assert driven.state() is TransactionState.ONGOING
    assert driven.described().partitions == {P0}


def test_writing_a_marker_logs_nothing_until_the_last_one() -> None:
    driven = DrivenTransactions()
    driven.commit(driven.begun(P0, P1))
    (markers,) = driven.markers
    logged = len(driven.log)
    driven.report(markers, P0)
    assert len(driven.log) == logged
    driven.report(markers, P1)
    assert len(driven.log) == logged + 1


# Restarts


@pytest.mark.parametrize("is_commit", [True, False])
def test_after_a_restart_every_marker_of_a_decided_transaction_is_due_again(is_commit: bool) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, P1)
    driven.end(producer, is_commit)
    (markers,) = driven.markers
    driven.report(markers, P0)
    driven.restart()
    assert driven.markers == [markers]
    driven.mark()
    assert driven.state().is_committed is is_commit
    driven.restart()
    assert driven.markers == []


def test_after_a_restart_an_open_transaction_goes_on() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.restart()
    assert driven.markers == []
    assert driven.add(producer, P1).error is ErrorCode.NONE
    assert driven.commit(producer).error is ErrorCode.NONE
    assert driven.markers[0].partitions == (P0, P1)


def test_after_a_restart_a_time_out_counts_from_the_start_of_the_transaction() -> None:
    driven = DrivenTransactions()
    driven.begun(P0)
    driven.pass_ms(TIMEOUT_MS - 10)
    driven.restart()
    driven.pass_ms(9)
    assert driven.state() is TransactionState.ONGOING
    driven.pass_ms(1)
    assert driven.state() is TransactionState.PREPARE_ABORT


def test_a_transaction_that_timed_out_while_the_broker_was_down_is_aborted_at_once() -> None:
    driven = DrivenTransactions()
    driven.begun(P0)
    driven.now_ms += 10 * TIMEOUT_MS
    driven.restart()
    assert driven.shard.next_deadline_ms() == driven.now_ms
    driven.pass_ms(0)
    assert driven.state() is TransactionState.PREPARE_ABORT


def test_a_wall_clock_set_back_during_a_restart_leaves_no_more_than_the_time_out() -> None:
    driven = DrivenTransactions()
    driven.begun(P0)
    shard = replayed(driven.log, driven.settings)
    shard.resume(Moment(WALL_MS - WEEK_MS, 500))
    assert shard.next_deadline_ms() == 500 + TIMEOUT_MS


# Time


def test_a_transaction_that_runs_too_long_is_fenced_and_aborted() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, P1)
    driven.pass_ms(TIMEOUT_MS - 1)
    assert driven.state() is TransactionState.ONGOING
    driven.pass_ms(1)
    (markers,) = driven.mark()
    assert markers == WriteMarkers("t", producer.id, producer.epoch + 1, False, (P0, P1))
    assert driven.state() is TransactionState.COMPLETE_ABORT
    assert driven.shard.next_deadline_ms() is None


def test_adding_partitions_gives_no_more_time() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.pass_ms(TIMEOUT_MS - 1)
    driven.add(producer, P1)
    driven.pass_ms(1)
    assert driven.state() is TransactionState.PREPARE_ABORT


def test_each_transaction_has_its_own_time() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.pass_ms(TIMEOUT_MS - 1)
    driven.commit(producer)
    driven.mark()
    driven.add(producer, P0)
    driven.pass_ms(TIMEOUT_MS - 1)
    assert driven.state() is TransactionState.ONGOING
    driven.pass_ms(1)
    assert driven.state() is TransactionState.PREPARE_ABORT


def test_a_decided_transaction_has_all_the_time_it_needs() -> None:
    driven = DrivenTransactions()
    driven.commit(driven.begun(P0))
    driven.pass_ms(100 * TIMEOUT_MS)
    assert driven.state() is TransactionState.PREPARE_COMMIT


def test_a_step_of_the_wall_clock_aborts_nobody() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.wall_step_ms = WEEK_MS
    driven.pass_ms(TIMEOUT_MS - 1)
    assert driven.add(producer, P1).error is ErrorCode.NONE
    driven.wall_step_ms = -WEEK_MS
    assert driven.add(producer, P2).error is ErrorCode.NONE
    driven.pass_ms(0)
    assert driven.state() is TransactionState.ONGOING
    driven.pass_ms(1)
    assert driven.state() is TransactionState.PREPARE_ABORT


# Who waits


def test_a_request_waits_for_a_limited_time() -> None:
    driven = DrivenTransactions(concurrent_wait_ms=100)
    producer = driven.begun(P0)
    driven.commit(producer)
    first = driven.add(producer, P1)
    driven.pass_ms(60)
    second = driven.commit(producer)
    third = driven.init()
    driven.pass_ms(39)
    assert first.waits
    driven.pass_ms(1)
    assert first.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert second.waits and third.waits
    driven.pass_ms(60)
    assert second.error is third.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driven.shard.next_deadline_ms() is None
    driven.mark()
    assert driven.state() is TransactionState.COMPLETE_COMMIT


def test_requests_that_waited_go_on_in_their_order() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.commit(producer)
    again, added = driven.commit(producer), driven.add(producer, P1)
    assert again.waits and added.waits
    driven.mark()
    assert again.error is added.error is ErrorCode.NONE
    assert driven.state() is TransactionState.ONGOING


def test_who_comes_behind_a_request_that_ends_the_transaction_waits_on() -> None:
    driven = DrivenTransactions()
    second = driven.commit(driven.begun(P0, version=2), version=2).producer
    driven.add(second, P1, version=2)
    ended = driven.commit(second, version=2)
    newcomer = driven.init()
    driven.mark()
    assert ended.error is ErrorCode.NONE
    assert newcomer.waits
    driven.mark()
    assert newcomer.producer == ProducerIdentity(second.id, second.epoch + 2)


def test_a_new_instance_that_waited_aborts_what_was_begun_before_it_and_waits_on() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.commit(producer)
    added, newcomer, late = driven.add(producer, P1), driven.init(), driven.add(producer, P2)
    driven.mark()
    assert added.error is ErrorCode.NONE
    assert newcomer.waits
    assert late.waits
    (markers,) = driven.mark()
    assert (markers.is_commit, markers.partitions) == (False, (P1,))
    assert newcomer.error is ErrorCode.NONE
    assert late.error is ErrorCode.PRODUCER_FENCED


def test_no_more_requests_wait_than_the_limit() -> None:
    driven = DrivenTransactions(max_parked=2)
    producer = driven.begun(P0)
    driven.commit(producer)
    waiting = [driven.add(producer, P1), driven.add(producer, P1)]
    assert driven.add(producer, P1).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driven.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    driven.mark()
    assert [asked.error for asked in waiting] == [ErrorCode.NONE, ErrorCode.NONE]


def test_when_nobody_may_wait_everybody_is_told_to_ask_again() -> None:
    driven = DrivenTransactions(max_parked=0)
    driven.begun(P0)
    assert driven.init().error is ErrorCode.CONCURRENT_TRANSACTIONS
    driven.mark()
    assert driven.init().error is ErrorCode.NONE


def test_whoever_waits_is_answered_when_the_shard_is_given_up() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.commit(producer)
    waiting = [driven.init(), driven.add(producer, P0), driven.commit(producer)]
    driven.take(driven.shard.kill(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert {asked.error for asked in waiting} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert driven.shard.kill(ErrorCode.COORDINATOR_NOT_AVAILABLE).replies == []


# Topics that are deleted


def test_deleted_partitions_leave_an_open_transaction() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, P1, OTHER_TOPIC)
    driven.take(driven.shard.forget_partitions([P0, P1, P2], driven.now))
    assert driven.described().partitions == {OTHER_TOPIC}
    driven.restart()
    driven.commit(producer)
    assert driven.markers[0].partitions == (OTHER_TOPIC,)


def test_deleted_partitions_need_no_marker() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, OTHER_TOPIC)
    driven.commit(producer)
    asked = driven.add(producer, P1)
    (markers,) = driven.markers
    driven.report(markers, P0)
    driven.take(driven.shard.forget_partitions([OTHER_TOPIC], driven.now))
    assert asked.error is ErrorCode.NONE
    assert driven.described().partitions == {P1}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_that_lost_all_partitions_is_complete_as_soon_as_it_is_ended(
    version: int, is_commit: bool
) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, version=version)
    driven.take(driven.shard.forget_partitions([P0], driven.now))
    assert driven.state() is TransactionState.ONGOING
    assert driven.end(producer, is_commit, version=version).error is ErrorCode.NONE
    assert driven.markers == []
    assert driven.state() is (TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)


def test_a_new_instance_need_not_wait_for_a_transaction_without_partitions() -> None:
    driven = DrivenTransactions()
    old = driven.begun(P0)
    driven.take(driven.shard.forget_partitions([P0], driven.now))
    assert driven.init().producer == ProducerIdentity(old.id, old.epoch + 2)
    assert driven.markers == []


def test_a_transaction_without_partitions_still_times_out() -> None:
    driven = DrivenTransactions()
    driven.begun(P0)
    driven.take(driven.shard.forget_partitions([P0], driven.now))
    driven.pass_ms(TIMEOUT_MS)
    assert driven.state() is TransactionState.COMPLETE_ABORT


def test_deleted_partitions_that_no_transaction_has_change_nothing() -> None:
    driven = DrivenTransactions()
    driven.begun(P0)
    logged = len(driven.log)
    driven.take(driven.shard.forget_partitions([OTHER_TOPIC], driven.now))
    assert len(driven.log) == logged


# Transactional ids that nobody uses


def test_an_idle_transactional_id_is_forgotten() -> None:
    driven = DrivenTransactions()
    driven.init()
    driven.take(driven.shard.expire(at(WEEK_MS - 1)))
    assert len(driven.shard) == 1
    driven.take(driven.shard.expire(at(WEEK_MS)))
    assert driven.log[-1] == TransactionForgotten("t")
    assert len(driven.shard) == 0
    driven.restart()
    assert len(driven.shard) == 0
    assert driven.add(ProducerIdentity(1_000, 0), P0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_id_is_idle_from_the_end_of_its_last_transaction_on(is_commit: bool) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.take(driven.shard.expire(at(2 * WEEK_MS)))
    assert driven.state() is TransactionState.ONGOING
    driven.end(producer, is_commit)
    driven.take(driven.shard.expire(at(2 * WEEK_MS)))
    assert driven.state().is_prepared
    driven.now_ms = WEEK_MS
    driven.mark()
    driven.take(driven.shard.expire(at(2 * WEEK_MS - 1)))
    assert len(driven.shard) == 1
    driven.take(driven.shard.expire(at(2 * WEEK_MS)))
    assert len(driven.shard) == 0


def test_a_forgotten_id_makes_room_and_starts_anew() -> None:
    driven = DrivenTransactions(max_ids=1, max_shard_bytes=1_000)
    old = driven.init(transactional_id="a" * 400).producer
    assert driven.init(transactional_id="b").error is ErrorCode.POLICY_VIOLATION
    driven.take(driven.shard.expire(at(WEEK_MS)))
    assert driven.init(transactional_id="b" * 400).producer.id != old.id


def test_one_look_forgets_a_limited_number() -> None:
    driven = DrivenTransactions()
    for number in range(MAX_EXPIRED_AT_ONCE + 1):
        driven.init(transactional_id=f"t{number}")
    driven.take(driven.shard.expire(at(WEEK_MS)))
    assert len(driven.shard) == 1
    driven.take(driven.shard.expire(at(WEEK_MS)))
    assert len(driven.shard) == 0


# Views


def test_transactions_are_listed_and_described() -> None:
    driven = DrivenTransactions()
    driven.begun(P0)
    driven.init(transactional_id="u")
    assert [(each.transactional_id, each.state.value) for each in driven.shard.listed()] == [
        ("t", "Ongoing"),
        ("u", "Empty"),
    ]
    assert driven.described("t").partitions == {P0}
    with pytest.raises(RequestError) as refused:
        driven.shard.described("v")
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_states_have_the_names_that_kafka_gave_them() -> None:
    names = [state.value for state in TransactionState]
    assert names == ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
