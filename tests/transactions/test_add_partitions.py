import pytest

from headwater.model.errors import ErrorCode
from headwater.transactions.transaction import LAST_EPOCH, ProducerIdentity, TransactionState
from tests.transactions.driven_transactions import OTHER_TOPIC, P0, P1, P2, TIMEOUT_MS, WALL_MS, DrivenTransactions

versions = pytest.mark.parametrize("version", [1, 2])


@versions
def test_the_first_partition_begins_the_transaction(version: int) -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    driven.now_ms = 5
    assert driven.add(producer, P0, version=version).error is ErrorCode.NONE
    transaction = driven.described()
    assert transaction.state is TransactionState.ONGOING
    assert transaction.partitions == {P0}
    assert transaction.started_ms == transaction.updated_ms == WALL_MS + 5
    assert transaction.version == version


def test_more_partitions_join_and_the_start_stays() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.now_ms = 5
    assert driven.add(producer, P0, OTHER_TOPIC).error is ErrorCode.NONE
    transaction = driven.described()
    assert transaction.partitions == {P0, OTHER_TOPIC}
    assert (transaction.started_ms, transaction.updated_ms) == (WALL_MS, WALL_MS + 5)


def test_partitions_that_are_there_already_are_not_logged_again() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0, P1)
    logged = len(driven.log)
    assert driven.add(producer, P1).error is ErrorCode.NONE
    assert driven.add(producer).error is ErrorCode.NONE
    assert len(driven.log) == logged


def test_no_partitions_begin_no_transaction() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    assert driven.add(producer).error is ErrorCode.NONE
    assert driven.state() is TransactionState.EMPTY


@versions
def test_the_next_transaction_starts_without_the_partitions_of_the_last_one(version: int) -> None:
    driven = DrivenTransactions()
    producer = driven.commit(driven.begun(P0, version=version), version=version).producer
    driven.mark()
    driven.now_ms = 9
    assert driven.add(producer, P1, version=version).error is ErrorCode.NONE
    assert driven.described().partitions == {P1}
    assert driven.described().started_ms == WALL_MS + 9


def test_an_unknown_transactional_id_has_no_producer() -> None:
    driven = DrivenTransactions()
    assert driven.add(ProducerIdentity(5, 0), P0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driven.add(ProducerIdentity(5, 0), P0, transactional_id="").error is ErrorCode.INVALID_REQUEST


def test_another_producer_id_is_refused() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    assert driven.add(ProducerIdentity(producer.id + 1, 0), P0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("epoch", [-1, 0, 2, 32_767])
def test_another_epoch_is_fenced(epoch: int) -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    driven.init()
    assert driven.add(ProducerIdentity(producer.id, epoch), P0).error is ErrorCode.PRODUCER_FENCED
    assert driven.state() is TransactionState.EMPTY


def test_a_transaction_has_a_limit_of_partitions() -> None:
    driven = DrivenTransactions(max_partitions=2)
    producer = driven.begun(P0, P1)
    asked = driven.add(producer, P2)
    assert asked.error is ErrorCode.POLICY_VIOLATION
    assert asked.answer.errors([P2]) == {P2: ErrorCode.POLICY_VIOLATION}
    assert driven.add(producer, P0).error is ErrorCode.NONE
    assert driven.commit(producer).error is ErrorCode.NONE


def test_all_transactions_together_have_a_limit_of_memory_and_can_still_be_ended() -> None:
    driven = DrivenTransactions(max_shard_bytes=1_000)
    producer = driven.begun(P0, P1)
    assert driven.add(producer, P2, OTHER_TOPIC).error is ErrorCode.POLICY_VIOLATION
    assert driven.commit(producer).error is ErrorCode.NONE
    driven.mark()
    assert driven.add(producer, P2, OTHER_TOPIC).error is ErrorCode.NONE


@versions
def test_the_next_transaction_waits_until_the_last_one_is_marked_everywhere(version: int) -> None:
    driven = DrivenTransactions()
    producer = driven.commit(driven.begun(P0, P1, version=version), version=version).producer
    asked = driven.add(producer, P0, version=version)
    (markers,) = driven.markers
    driven.report(markers, P0)
    assert asked.waits
    driven.report(markers, P1)
    assert asked.error is ErrorCode.NONE
    assert driven.described().partitions == {P0}


def test_the_next_producer_id_counts_from_the_moment_it_was_given() -> None:
    driven = DrivenTransactions()
    driven.init()
    last = driven.change(producer_epoch=LAST_EPOCH)
    driven.add(last, P0, version=2)
    new = driven.commit(last, version=2).producer
    asked = driven.add(new, P1, version=2)
    assert asked.waits
    assert driven.add(last, P1, version=2).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    driven.mark()
    assert asked.error is ErrorCode.NONE


# Only looking


def test_looking_tells_what_is_missing_and_changes_nothing() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    logged = len(driven.log)
    asked = driven.add(producer, P0, P1, is_verify_only=True)
    assert asked.error is ErrorCode.NONE
    assert asked.answer.missing == {P1}
    assert asked.answer.errors([P0, P1]) == {P1: ErrorCode.INVALID_TXN_STATE}
    assert len(driven.log) == logged
    assert driven.add(producer, P0, is_verify_only=True).answer.errors([P0]) == {}


def test_without_a_transaction_everything_is_missing() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    assert driven.add(producer, P0, is_verify_only=True).answer.missing == {P0}
    driven.add(producer, P0)
    driven.commit(producer)
    driven.mark()
    assert driven.add(producer, P0, is_verify_only=True).answer.missing == {P0}
    assert driven.state() is TransactionState.COMPLETE_COMMIT


def test_who_only_looks_never_waits() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    driven.commit(producer)
    asked = driven.add(producer, P0, is_verify_only=True)
    assert asked.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert asked.answer.errors([P0]) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}


def test_who_only_looks_must_be_the_producer() -> None:
    driven = DrivenTransactions()
    producer = driven.begun(P0)
    other, fenced = ProducerIdentity(producer.id + 1, 0), ProducerIdentity(producer.id, 1)
    assert driven.add(other, P0, is_verify_only=True).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driven.add(fenced, P0, is_verify_only=True).error is ErrorCode.PRODUCER_FENCED
    driven.pass_ms(TIMEOUT_MS)
    assert driven.add(producer, P0, is_verify_only=True).error is ErrorCode.PRODUCER_FENCED
