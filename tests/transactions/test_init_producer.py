import pytest

from headwater.model.errors import ErrorCode
from headwater.transactions.transaction import LAST_EPOCH, MAX_EPOCH, MAX_ID_BYTES, ProducerIdentity, TransactionState
from tests.transactions.driven_transactions import FIRST_SPARE_ID, P0, P1, TIMEOUT_MS, WALL_MS, DrivenTransactions


def test_a_new_transactional_id_gets_a_new_producer_id_and_epoch_0() -> None:
    driven = DrivenTransactions()
    assert driven.init().producer == ProducerIdentity(FIRST_SPARE_ID, 0)
    assert driven.init(transactional_id="u").producer == ProducerIdentity(FIRST_SPARE_ID + 1, 0)
    assert driven.state() is TransactionState.EMPTY
    assert driven.described().updated_ms == WALL_MS


def test_the_next_instance_gets_the_same_id_with_the_next_epoch() -> None:
    driven = DrivenTransactions()
    first = driven.init().producer
    assert driven.init(timeout_ms=5).producer == ProducerIdentity(first.id, 1)
    assert driven.described().timeout_ms == 5
    assert driven.add(first, P0).error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("transactional_id", ["", "x" * (MAX_ID_BYTES + 1), "ä" * (MAX_ID_BYTES // 2 + 1), "\ud800"])
def test_a_transactional_id_that_is_none_is_refused(transactional_id: str) -> None:
    driven = DrivenTransactions()
    assert driven.init(transactional_id=transactional_id).error is ErrorCode.INVALID_REQUEST
    assert driven.log == []


def test_a_transactional_id_may_be_as_long_as_a_string() -> None:
    driven = DrivenTransactions()
    assert driven.init(transactional_id="x" * MAX_ID_BYTES).error is ErrorCode.NONE
    driven.restart()
    assert len(driven.shard) == 1


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001, 2**31 - 1])
def test_a_time_out_that_is_none_or_too_long_is_refused(timeout_ms: int) -> None:
    driven = DrivenTransactions()
    assert driven.init(timeout_ms=timeout_ms).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert driven.log == []


@pytest.mark.parametrize("claimed", [ProducerIdentity(5, -1), ProducerIdentity(-1, 5)])
def test_half_a_claim_is_refused(claimed: ProducerIdentity) -> None:
    driven = DrivenTransactions()
    assert driven.init(claimed).error is ErrorCode.INVALID_REQUEST


def test_more_transactional_ids_than_the_limit_are_refused_and_the_known_ones_go_on() -> None:
    driven = DrivenTransactions(max_ids=2)
    driven.init(transactional_id="a")
    driven.init(transactional_id="b")
    assert driven.init(transactional_id="c").error is ErrorCode.POLICY_VIOLATION
    assert driven.init(transactional_id="a").producer.epoch == 1


def test_long_transactional_ids_fill_the_memory_sooner() -> None:
    driven = DrivenTransactions(max_shard_bytes=10_000)
    assert driven.init(transactional_id="a" * 9_000).error is ErrorCode.NONE
    assert driven.init(transactional_id="b" * 9_000).error is ErrorCode.POLICY_VIOLATION
    assert driven.init(transactional_id="a" * 9_000).producer.epoch == 1


# A producer that goes on after an error (KIP-360)


def test_the_current_producer_bumps_its_epoch() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    assert driven.init(producer).producer == ProducerIdentity(producer.id, 1)


def test_a_repeated_bump_gets_the_same_answer() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    bumped = driven.init(producer).producer
    assert driven.init(producer).producer == bumped
    driven.restart()
    assert driven.init(producer).producer == bumped
    assert driven.init(bumped).producer == ProducerIdentity(producer.id, 2)


def test_a_producer_older_than_the_last_bump_is_fenced() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    driven.init(driven.init(producer).producer)
    assert driven.init(producer).error is ErrorCode.PRODUCER_FENCED
    assert driven.described().producer_epoch == 2


def test_a_producer_that_another_instance_replaced_is_fenced() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    driven.init()
    assert driven.init(producer).error is ErrorCode.PRODUCER_FENCED


def test_a_claim_to_an_id_of_somebody_else_is_fenced() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    assert driven.init(ProducerIdentity(producer.id + 1, 0)).error is ErrorCode.PRODUCER_FENCED
    assert driven.init(ProducerIdentity(producer.id, 5)).error is ErrorCode.PRODUCER_FENCED


def test_a_forgotten_producer_that_comes_back_gets_a_new_id() -> None:
    driven = DrivenTransactions()
    assert driven.init(ProducerIdentity(5, 3)).producer == ProducerIdentity(FIRST_SPARE_ID, 0)


def test_a_bump_that_arrives_late_does_not_disturb_the_transaction_begun_since() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    bumped = driven.init(producer).producer
    driven.add(bumped, P0)
    assert driven.init(producer).error is ErrorCode.PRODUCER_FENCED
    assert driven.commit(bumped).error is ErrorCode.NONE


# Epochs that are used up


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    driven = DrivenTransactions()
    driven.init()
    before = driven.change(producer_epoch=LAST_EPOCH - 1)
    last = driven.init().producer
    assert last == ProducerIdentity(before.id, LAST_EPOCH)
    new = driven.init().producer
    assert new.id not in (before.id, FIRST_SPARE_ID)
    assert new.epoch == 0
    assert driven.add(last, P0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driven.init(last).error is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_bumps_its_last_epoch_may_repeat_that() -> None:
    driven = DrivenTransactions()
    driven.init()
    last = driven.change(producer_epoch=LAST_EPOCH)
    new = driven.init(last).producer
    assert new.id != last.id
    assert driven.init(last).producer == new
    driven.restart()
    assert driven.init(last).producer == new
    assert driven.init(new).producer == ProducerIdentity(new.id, 1)
    assert driven.init(last).error is ErrorCode.PRODUCER_FENCED


def test_the_epoch_that_only_fences_is_never_given_to_a_producer() -> None:
    driven = DrivenTransactions()
    driven.init()
    last = driven.change(producer_epoch=LAST_EPOCH)
    driven.add(last, P0)
    driven.pass_ms(TIMEOUT_MS)
    assert driven.described().producer_epoch == MAX_EPOCH
    assert driven.add(ProducerIdentity(last.id, MAX_EPOCH), P0).error is ErrorCode.PRODUCER_FENCED
    driven.mark()
    assert driven.add(ProducerIdentity(last.id, MAX_EPOCH), P0).error is ErrorCode.PRODUCER_FENCED
    assert driven.abort(ProducerIdentity(last.id, MAX_EPOCH), version=2).error is ErrorCode.PRODUCER_FENCED
    assert driven.init().producer.epoch == 0


# What an instance before left open


def test_a_transaction_left_open_is_aborted_before_the_next_instance_is_answered() -> None:
    driven = DrivenTransactions()
    old = driven.begun(P0, P1)
    asked = driven.init()
    assert asked.waits
    (markers,) = driven.markers
    assert (markers.is_commit, markers.partitions) == (False, (P0, P1))
    assert (markers.producer_id, markers.producer_epoch) == (old.id, old.epoch + 1)
    driven.mark()
    assert asked.producer == ProducerIdentity(old.id, old.epoch + 2)
    assert driven.state() is TransactionState.EMPTY


def test_the_old_instance_is_fenced_as_soon_as_the_new_one_asks() -> None:
    driven = DrivenTransactions()
    old = driven.begun(P0)
    driven.init()
    assert driven.add(old, P1).error is ErrorCode.PRODUCER_FENCED
    assert driven.commit(old).error is ErrorCode.PRODUCER_FENCED
    assert driven.commit(old, version=2).error is ErrorCode.PRODUCER_FENCED
    assert driven.init(old).error is ErrorCode.PRODUCER_FENCED


def test_a_transaction_that_is_decided_keeps_its_outcome_when_a_new_instance_comes() -> None:
    driven = DrivenTransactions()
    old = driven.begun(P0)
    driven.commit(old)
    asked = driven.init()
    assert asked.waits
    (markers,) = driven.mark()
    assert markers.is_commit
    assert asked.producer == ProducerIdentity(old.id, 1)


def test_two_instances_that_wait_are_answered_in_order_and_the_later_one_wins() -> None:
    driven = DrivenTransactions()
    driven.begun(P0)
    first, second = driven.init(), driven.init()
    driven.mark()
    assert second.producer == ProducerIdentity(first.producer.id, first.producer.epoch + 1)
    assert driven.add(first.producer, P0).error is ErrorCode.PRODUCER_FENCED


def test_an_instance_that_starts_anew_amid_its_own_transaction_is_not_fenced_by_itself() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    asked = driven.init(producer)
    assert asked.waits
    driven.mark()
    assert asked.producer == ProducerIdentity(producer.id, producer.epoch + 1)
    assert driven.init(producer).producer == asked.producer


def test_it_is_recognised_when_it_asks_again_after_the_wait_is_over() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    asked = driven.init(producer)
    driven.pass_ms(driven.settings.concurrent_wait_ms)
    assert asked.error is ErrorCode.CONCURRENT_TRANSACTIONS
    again = driven.init(producer)
    driven.restart()
    driven.mark()
    assert again.waits, "it went with the process"
    assert driven.init(producer).producer == ProducerIdentity(producer.id, producer.epoch + 1)


def test_an_instance_that_starts_anew_with_its_last_epoch_gets_a_new_id() -> None:
    driven = DrivenTransactions()
    driven.init()
    last = driven.change(producer_epoch=LAST_EPOCH)
    driven.add(last, P0)
    asked = driven.init(last)
    assert driven.abort(last, version=2).error is ErrorCode.PRODUCER_FENCED, "there is no epoch to go on with"
    driven.mark()
    assert (asked.producer.epoch, asked.producer.id == last.id) == (0, False)
    assert driven.init(last).producer == asked.producer


def test_a_producer_that_lost_the_answer_to_its_end_goes_on_with_the_epoch_it_was_given() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, version=2)
    ended = driven.commit(producer, version=2).producer
    asked = driven.init(producer)
    driven.mark()
    assert asked.producer == ended
