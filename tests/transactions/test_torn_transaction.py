"""A torn transaction: an EndTxn of one transaction that ends the next one, which is only half written."""

import pytest

from headwater.model.errors import ErrorCode
from headwater.transactions.connections import Connections
from headwater.transactions.transaction import ProducerIdentity, TransactionState
from tests.transactions.driven_transactions import P0, P1, DrivenTransactions


def with_second_transaction(
    version: int, connections: Connections | None = None
) -> tuple[DrivenTransactions, ProducerIdentity, ProducerIdentity]:
    """The client gave connection 1 up with its EndTxn in it, repeated that on connection 2, and went on."""
    driven = DrivenTransactions()
    driven.restart(connections)
    first = driven.init().producer
    driven.add(first, P0, version=version, connection=1)
    second = driven.commit(first, version=version, connection=2).producer
    driven.mark()
    assert driven.add(second, P0, version=version, connection=2).error is ErrorCode.NONE
    return driven, first, second


def test_in_version_1_an_end_that_was_late_in_a_connection_left_behind_ends_nothing() -> None:
    driven, first, second = with_second_transaction(1)
    assert first == second, "the epoch cannot tell the two transactions apart"
    logged = len(driven.log)
    assert driven.commit(first, connection=1).error is ErrorCode.INVALID_TXN_STATE
    assert driven.abort(first, connection=1).error is ErrorCode.INVALID_TXN_STATE
    assert len(driven.log) == logged
    assert driven.state() is TransactionState.ONGOING
    assert driven.add(second, P1, connection=2).error is ErrorCode.NONE
    assert driven.commit(second, connection=2).error is ErrorCode.NONE


def test_in_version_2_an_end_that_was_late_has_an_epoch_of_the_past() -> None:
    driven, first, second = with_second_transaction(2)
    logged = len(driven.log)
    assert driven.commit(first, version=2, connection=1).error is ErrorCode.PRODUCER_FENCED
    assert driven.abort(first, version=2, connection=1).error is ErrorCode.PRODUCER_FENCED
    assert len(driven.log) == logged
    assert driven.commit(second, version=2, connection=2).error is ErrorCode.NONE


def test_in_version_1_a_late_partition_does_not_join_the_next_transaction() -> None:
    driven, first, _ = with_second_transaction(1)
    assert driven.add(first, P1, connection=1).error is ErrorCode.INVALID_TXN_STATE
    assert driven.described().partitions == {P0}


def test_in_version_1_a_late_end_that_waits_is_refused_when_its_producer_went_on() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    driven.add(producer, P0, connection=1)
    driven.commit(producer, connection=1)
    late = driven.commit(producer, connection=1)
    added = driven.add(producer, P1, connection=2)
    assert late.error is ErrorCode.INVALID_TXN_STATE
    assert added.waits
    driven.mark()
    assert added.error is ErrorCode.NONE
    assert driven.state() is TransactionState.ONGOING


def test_in_version_2_connections_do_not_matter() -> None:
    """Partitions are added by batches, which come by other connections than the end."""
    driven = DrivenTransactions()
    producer = driven.init().producer
    driven.add(producer, P0, version=2, connection=9)
    assert driven.commit(producer, version=2, connection=3).error is ErrorCode.NONE


def test_in_version_1_looking_does_not_count_as_going_on() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    driven.add(producer, P0, connection=1)
    assert driven.add(producer, P0, is_verify_only=True, connection=5).error is ErrorCode.NONE
    assert driven.commit(producer, connection=1).error is ErrorCode.NONE
    assert driven.add(producer, P0, is_verify_only=True, connection=0).error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_connection_without_a_number_is_always_listened_to() -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    driven.add(producer, P0, connection=4)
    assert driven.add(producer, P1, connection=0).error is ErrorCode.NONE
    assert driven.commit(producer, connection=4).error is ErrorCode.NONE


def test_a_new_instance_may_come_by_a_connection_that_is_older() -> None:
    driven = DrivenTransactions()
    old = driven.init().producer
    driven.add(old, P0, connection=7)
    asked = driven.init()
    driven.mark()
    assert driven.add(asked.producer, P0, connection=2).error is ErrorCode.NONE
    assert driven.commit(asked.producer, connection=2).error is ErrorCode.NONE


@pytest.mark.parametrize("version", [1, 2])
def test_after_a_restart_connections_are_counted_anew(version: int) -> None:
    driven = DrivenTransactions()
    producer = driven.init().producer
    driven.add(producer, P0, version=version, connection=70)
    driven.restart()
    assert driven.commit(producer, version=version, connection=1).error is ErrorCode.NONE


def test_a_shard_that_is_replayed_in_the_same_process_goes_on_knowing_the_connections() -> None:
    connections = Connections()
    driven, first, second = with_second_transaction(1, connections)
    driven.restart(connections)
    assert driven.commit(first, connection=1).error is ErrorCode.INVALID_TXN_STATE
    assert driven.state() is TransactionState.ONGOING
    assert driven.commit(second, connection=2).error is ErrorCode.NONE


def test_a_fenced_producer_is_told_so_whatever_its_connection() -> None:
    driven = DrivenTransactions()
    old = driven.init().producer
    driven.add(old, P0, connection=7)
    driven.init()
    assert driven.commit(old, connection=1).error is ErrorCode.PRODUCER_FENCED
