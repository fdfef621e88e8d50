import pytest

from headwater.model.errors import ErrorCode
from headwater.transactions.transaction import LAST_EPOCH, MAX_EPOCH, ProducerIdentity, TransactionState
from tests.transactions.driven_transactions import P0, P1, TIMEOUT_MS, DrivenTransactions

outcomes = pytest.mark.parametrize("is_commit", [True, False])
versions = pytest.mark.parametrize("version", [1, 2])
PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


@outcomes
@versions
def test_the_end_is_answered_before_the_markers_are_written(is_commit: bool, version: int) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P1, P0, version=version)
    assert driven.end(producer, is_commit, version=version).error is ErrorCode.NONE
    assert driven.state() is PREPARED[is_commit]
    (markers,) = driven.mark()
    assert (markers.is_commit, markers.partitions) == (is_commit, (P0, P1))
    assert driven.state() is COMPLETE[is_commit]
    assert driven.described().partitions == frozenset()


@versions
def test_the_markers_come_with_the_event_that_decides(version: int) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, version=version)
    logged = len(driven.log)
    driven.commit(producer, version=version)
    assert len(driven.log) == logged + 1
    assert len(driven.markers) == 1


@versions
def test_an_unknown_id_or_producer_ends_nothing(version: int) -> None:
    driven = DrivenTransactions()
    unknown = ProducerIdentity(5, 0)
    assert driven.commit(unknown, version=version).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = driven.begun(P0)
    other = ProducerIdentity(producer.id + 1, 0)
    assert driven.commit(other, version=version).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driven.state() is TransactionState.ONGOING


@versions
@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_ends_nothing(version: int, epoch: int) -> None:
    driven = DrivenTransactions()
    driven.init()
    producer = driven.begun(P0)
    assert driven.commit(ProducerIdentity(producer.id, epoch), version=version).error is ErrorCode.PRODUCER_FENCED
    assert driven.state() is TransactionState.ONGOING


@versions
def test_nothing_cannot_be_committed(version: int) -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    assert driven.commit(producer, version=version).error is ErrorCode.INVALID_TXN_STATE
    assert driven.state() is TransactionState.EMPTY


# The older protocol: one epoch for all transactions of an instance


def test_in_version_1_the_epoch_stays_and_the_markers_carry_it() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    assert driven.commit(producer).producer == producer
    (markers,) = driven.mark()
    assert (markers.producer_id, markers.producer_epoch) == producer
    assert driven.add(producer, P0).error is ErrorCode.NONE


@outcomes
def test_in_version_1_the_same_end_again_is_answered_again(is_commit: bool) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.end(producer, is_commit)
    driven.mark()
    logged = len(driven.log)
    assert driven.end(producer, is_commit).error is ErrorCode.NONE
    assert driven.end(producer, not is_commit).error is ErrorCode.INVALID_TXN_STATE
    assert len(driven.log) == logged


@outcomes
def test_in_version_1_the_same_end_again_waits_for_the_markers(is_commit: bool) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.end(producer, is_commit)
    again = driven.end(producer, is_commit)
    assert again.waits
    assert driven.end(producer, not is_commit).error is ErrorCode.INVALID_TXN_STATE
    driven.mark()
    assert again.error is ErrorCode.NONE
    assert driven.state() is COMPLETE[is_commit]


def test_in_version_1_nothing_cannot_be_aborted() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    assert driven.abort(producer).error is ErrorCode.INVALID_TXN_STATE


def test_in_version_1_the_end_of_a_newer_client_is_not_taken_for_ones_own() -> None:
    driven = DrivenTransactions()
    producer = driven.commit(driven.begun(P0, version=2), version=2).producer
    driven.mark()
    assert driven.commit(producer, version=1).error is ErrorCode.INVALID_TXN_STATE


# The newer protocol: an epoch for each transaction (KIP-890)


@outcomes
def test_in_version_2_the_markers_and_the_answer_carry_the_next_epoch(is_commit: bool) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, version=2)
    asked = driven.end(producer, is_commit, version=2)
    assert asked.producer == ProducerIdentity(producer.id, producer.epoch + 1)
    (markers,) = driven.mark()
    assert (markers.producer_id, markers.producer_epoch) == asked.producer
    assert driven.add(producer, P0, version=2).error is ErrorCode.PRODUCER_FENCED
    assert driven.add(asked.producer, P0, version=2).error is ErrorCode.NONE


@outcomes
def test_in_version_2_the_same_end_again_is_answered_the_same_at_once(is_commit: bool) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, version=2)
    answer = driven.end(producer, is_commit, version=2).answer
    logged = len(driven.log)
    assert driven.end(producer, is_commit, version=2).answer == answer
    assert driven.end(producer, not is_commit, version=2).error is ErrorCode.INVALID_TXN_STATE
    assert len(driven.log) == logged
    driven.mark()
    assert driven.end(producer, is_commit, version=2).answer == answer
    assert driven.end(producer, not is_commit, version=2).error is ErrorCode.INVALID_TXN_STATE
    driven.restart()
    assert driven.end(producer, is_commit, version=2).answer == answer


def test_in_version_2_an_end_is_recognised_only_until_the_next_transaction() -> None:
    driven = DrivenTransactions()
    first = driven.begun(P0, version=2)
    second = driven.commit(first, version=2).producer
    driven.mark()
    driven.add(second, P0, version=2)
    assert driven.commit(first, version=2).error is ErrorCode.PRODUCER_FENCED
    driven.abort(second, version=2)
    assert driven.commit(first, version=2).error is ErrorCode.PRODUCER_FENCED


def test_in_version_2_aborting_nothing_takes_the_next_epoch_and_needs_no_markers() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    for _ in range(2):
        asked = driven.abort(producer, version=2)
        assert asked.producer == ProducerIdentity(producer.id, producer.epoch + 1)
        assert driven.state() is TransactionState.COMPLETE_ABORT
        assert driven.abort(producer, version=2).answer == asked.answer
        producer = asked.producer
    assert driven.markers == []
    driven.add(producer, P0, version=2)
    producer = driven.commit(producer, version=2).producer
    driven.mark()
    assert driven.abort(producer, version=2).producer.epoch == producer.epoch + 1
    assert driven.state() is TransactionState.COMPLETE_ABORT


@outcomes
def test_in_version_2_nothing_cannot_be_committed_after_a_transaction_either(is_commit: bool) -> None:
    driven = DrivenTransactions()
    producer = driven.end(driven.begun(P0, version=2), is_commit, version=2).producer
    driven.mark()
    assert driven.commit(producer, version=2).error is ErrorCode.INVALID_TXN_STATE


@outcomes
def test_in_version_2_the_end_of_the_next_transaction_waits_for_the_one_before(is_commit: bool) -> None:
    driven = DrivenTransactions()
    second = driven.commit(driven.begun(P0, version=2), version=2).producer
    added = driven.add(second, P1, version=2)
    ended = driven.end(second, is_commit, version=2)
    assert added.waits and ended.waits
    driven.mark()
    assert added.error is ErrorCode.NONE
    assert ended.producer == ProducerIdentity(second.id, second.epoch + 1)
    (markers,) = driven.mark()
    assert (markers.is_commit, markers.partitions) == (is_commit, (P1,))


@outcomes
def test_in_version_2_the_last_epoch_ends_with_a_new_producer_id(is_commit: bool) -> None:
    driven = DrivenTransactions()
    driven.init()
    last = driven.change(producer_epoch=LAST_EPOCH)
    assert driven.shard.needs_spare_producer_id("t")
    driven.add(last, P0, version=2)
    asked = driven.end(last, is_commit, version=2)
    new = asked.producer
    assert (new.epoch, new.id == last.id) == (0, False)
    assert driven.end(last, is_commit, version=2).answer == asked.answer
    driven.restart()
    assert driven.end(last, is_commit, version=2).answer == asked.answer
    (markers,) = driven.mark()
    assert (markers.producer_id, markers.producer_epoch) == (last.id, MAX_EPOCH)
    assert driven.end(last, is_commit, version=2).answer == asked.answer
    assert driven.end(last, not is_commit, version=2).error is ErrorCode.INVALID_TXN_STATE
    assert driven.add(new, P0, version=2).error is ErrorCode.NONE
    assert driven.commit(new, version=2).producer == ProducerIdentity(new.id, 1)
    assert not driven.shard.needs_spare_producer_id("t")


def test_in_version_2_aborting_nothing_with_the_last_epoch_takes_a_new_producer_id() -> None:
    driven = DrivenTransactions()
    driven.init()
    last = driven.change(producer_epoch=LAST_EPOCH)
    asked = driven.abort(last, version=2)
    assert (asked.producer.epoch, asked.producer.id == last.id) == (0, False)
    assert driven.abort(last, version=2).answer == asked.answer


def test_in_version_2_the_last_epoch_cannot_end_without_a_new_producer_id_and_may_ask_again() -> None:
    driven = DrivenTransactions()
    driven.init()
    last = driven.change(producer_epoch=LAST_EPOCH)
    driven.add(last, P0, version=2)
    assert driven.commit(last, version=2, has_spare=False).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert driven.state() is TransactionState.ONGOING
    assert driven.commit(last, version=2).error is ErrorCode.NONE


def test_a_client_may_change_to_version_2_between_transactions() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.commit(producer)
    driven.mark()
    assert driven.commit(producer, version=2).error is ErrorCode.INVALID_TXN_STATE, "it is not a repeated one"
    driven.add(producer, P0, version=2)
    assert driven.commit(producer, version=2).producer.epoch == producer.epoch + 1


@outcomes
@versions
def test_a_producer_whose_transaction_timed_out_is_fenced(is_commit: bool, version: int) -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, version=version)
    driven.pass_ms(TIMEOUT_MS)
    assert driven.end(producer, is_commit, version=version).error is ErrorCode.PRODUCER_FENCED
    driven.mark()
    assert driven.end(producer, is_commit, version=version).error is ErrorCode.PRODUCER_FENCED
    assert driven.add(producer, P0, version=version).error is ErrorCode.PRODUCER_FENCED
    assert driven.state() is TransactionState.COMPLETE_ABORT
