"""Transactions are all or nothing, and nobody who asks for committed records sees one before it is."""

import pytest

from headwater.testing.oracles.checkers import BrokenHistory, ViolationKind
from tests.testing.oracles.checked_runs import COMMITTED, TOPIC, UNCOMMITTED, Run


def two_writes() -> tuple[Run, str]:
    """One write in each of two partitions; what follows is the test's."""
    run = Run()
    transaction = run.begin("p")
    run.sent("a", 0, partition=0, transaction=transaction)
    run.sent("b", 0, partition=1, transaction=transaction)
    return run, transaction


def end(run: Run, first: list[tuple[int, str]], second: list[tuple[int, str]], isolation: str = COMMITTED) -> None:
    run.ends_with(first, end=2, partition=0, isolation=isolation)
    run.ends_with(second, end=2, partition=1, isolation=isolation)


def test_a_committed_transaction_is_there_as_a_whole() -> None:
    run, transaction = two_writes()
    run.committed(transaction)
    end(run, [(0, "a")], [(0, "b")])
    assert run.violations() == []


def test_an_aborted_transaction_is_seen_by_those_who_want_everything() -> None:
    run, transaction = two_writes()
    run.given([(0, "a")], isolation=UNCOMMITTED)
    run.aborted(transaction)
    end(run, [], [])
    end(run, [(0, "a")], [(0, "b")], UNCOMMITTED)
    assert run.violations() == []


@pytest.mark.parametrize("records", [([], []), ([(0, "a")], [(0, "b")])], ids=["nothing", "all"])
def test_a_commit_without_an_outcome_may_have_happened_or_not(
    records: tuple[list[tuple[int, str]], list[tuple[int, str]]],
) -> None:
    run, transaction = two_writes()
    run.committed(transaction, "unknown")
    end(run, *records)
    assert run.violations() == []


# Aborted reads


def test_a_read_committed_consumer_must_not_see_an_aborted_value() -> None:
    run, transaction = two_writes()
    run.aborted(transaction)
    run.given([(0, "a")])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.ABORTED_READ
    assert "consumer c" in violation.sentence and "'a'" in violation.sentence
    assert f"transaction {transaction} was aborted" in violation.sentence


def test_a_final_read_must_not_see_a_transaction_whose_commit_failed() -> None:
    run, transaction = two_writes()
    run.committed(transaction, "failed")
    end(run, [(0, "a")], [(0, "b")])
    assert run.kinds() == [ViolationKind.ABORTED_READ, ViolationKind.ABORTED_READ]


def test_a_transaction_that_never_asked_to_commit_must_not_be_seen() -> None:
    run, _ = two_writes()
    end(run, [(0, "a")], [])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.ABORTED_READ
    assert "never asked to commit" in violation.sentence


def test_an_abort_without_an_outcome_is_no_commit() -> None:
    run, transaction = two_writes()
    run.abort(transaction)
    run.ended(transaction, "unknown")
    run.given([(0, "a")])
    assert run.kinds() == [ViolationKind.ABORTED_READ]


def test_an_abort_that_was_confirmed_decides_over_a_commit_without_an_outcome() -> None:
    run, transaction = two_writes()
    run.committed(transaction, "unknown")
    run.aborted(transaction)
    run.given([(0, "a")])
    assert run.kinds() == [ViolationKind.ABORTED_READ]


def test_a_send_that_failed_for_certain_must_not_be_seen_by_anybody() -> None:
    run = Run()
    run.send("p", TOPIC, "refused", partition=0)
    run.send_failed(TOPIC, "refused")
    run.given([(0, "refused")], isolation=UNCOMMITTED)
    assert run.kinds() == [ViolationKind.ABORTED_READ]


def test_a_failure_that_is_learnt_after_the_value_was_seen_counts_too() -> None:
    run = Run()
    run.send("p", TOPIC, "refused", partition=0)
    run.given([(0, "refused")])
    run.send_failed(TOPIC, "refused")
    assert run.kinds() == [ViolationKind.ABORTED_READ]


# Uncommitted reads


def test_a_read_committed_consumer_must_not_see_a_value_before_its_commit_is_asked_for() -> None:
    run, transaction = two_writes()
    run.given([(0, "a")])
    run.committed(transaction)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.UNCOMMITTED_READ
    assert "before its commit was asked for" in violation.sentence


def test_a_commit_that_failed_and_is_asked_for_again_counts_from_its_first_time() -> None:
    run, transaction = two_writes()
    run.commit(transaction)
    run.given([(0, "a")])
    run.ended(transaction, "unknown")
    run.committed(transaction)
    assert run.violations() == []


def test_an_early_read_of_a_commit_without_an_outcome_is_found() -> None:
    run, transaction = two_writes()
    run.given([(0, "b")], partition=1)
    run.commit(transaction)
    assert run.kinds() == [ViolationKind.UNCOMMITTED_READ]


# Torn transactions


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_a_transaction_of_which_one_partition_has_nothing_is_torn(outcome: str) -> None:
    run, transaction = two_writes()
    run.committed(transaction, outcome)
    end(run, [(0, "a")], [])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.TORN_TRANSACTION
    assert "'a' in orders-0 at offset 0 can be seen, but not 'b' in orders-1 at offset 0" in violation.sentence


def test_a_transaction_of_which_one_write_is_missing_within_a_partition_is_torn() -> None:
    run = Run()
    transaction = run.begin("p")
    for offset in range(5):
        run.sent(f"v{offset}", offset, transaction=transaction)
    run.committed(transaction)
    run.ends_with([(offset, f"v{offset}") for offset in range(4)], end=6)
    assert run.kinds() == [ViolationKind.TORN_TRANSACTION]


def test_a_committed_transaction_of_which_nothing_is_there_is_lost() -> None:
    run, transaction = two_writes()
    run.committed(transaction)
    end(run, [], [])
    assert run.kinds() == [ViolationKind.LOST_WRITE, ViolationKind.LOST_WRITE]


def test_a_committed_transaction_that_only_others_see_may_be_hidden_by_an_open_one() -> None:
    run, transaction = two_writes()
    run.committed(transaction)
    run.ends_with([], end=0, partition=0)
    run.ends_with([(0, "a")], end=2, partition=0, isolation=UNCOMMITTED)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.LOST_WRITE
    assert "an open transaction may hide it" in violation.sentence


def test_writes_without_their_offsets_are_a_torn_transaction() -> None:
    run, transaction = two_writes()
    run.send_offsets(transaction, "g", {("in", 0): 10})
    run.committed(transaction, "unknown")
    end(run, [(0, "a")], [(0, "b")])
    run.offsets_read("end", "g", {("in", 0): None}, is_final=True)
    violation = next(each for each in run.violations() if each.kind is ViolationKind.TORN_TRANSACTION)
    assert "but not offset 10 of in-0 for group g" in violation.sentence


def test_offsets_without_their_writes_are_a_torn_transaction() -> None:
    run, transaction = two_writes()
    run.send_offsets(transaction, "g", {("in", 0): 10})
    run.committed(transaction, "unknown")
    end(run, [], [])
    run.offsets_read("end", "g", {("in", 0): 10}, is_final=True)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.TORN_TRANSACTION
    assert "offset 10 of in-0 for group g can be seen, but not 'a'" in violation.sentence


def test_an_offset_that_another_transaction_may_have_set_proves_nothing() -> None:
    run, transaction = two_writes()
    run.send_offsets(transaction, "g", {("in", 0): 10})
    run.committed(transaction, "unknown")
    retry = run.begin("p2")
    run.sent("c", 2, transaction=retry, producer="p2")
    run.send_offsets(retry, "g", {("in", 0): 10})
    run.committed(retry)
    end(run, [(2, "c")], [])
    run.offsets_read("end", "g", {("in", 0): 10}, is_final=True)
    assert run.violations() == []


# Histories that prove nothing


def test_a_transaction_that_never_began_breaks_the_history() -> None:
    run = Run()
    run.send("p", TOPIC, "v", transaction="none")
    with pytest.raises(BrokenHistory, match="transaction none never began"):
        run.violations()


def test_a_write_after_the_commit_was_asked_for_breaks_the_history() -> None:
    run, transaction = two_writes()
    run.commit(transaction)
    run.send("p", TOPIC, "late", transaction=transaction)
    with pytest.raises(BrokenHistory, match="after its end was asked for"):
        run.violations()


def test_a_transaction_cannot_begin_twice_nor_end_unasked_nor_end_twice() -> None:
    run, transaction = two_writes()
    run.begin("p", transaction)
    with pytest.raises(BrokenHistory, match="begins again"):
        run.violations()
    run, transaction = two_writes()
    run.ended(transaction, "ok")
    with pytest.raises(BrokenHistory, match="neither commit nor abort"):
        run.violations()
    run, transaction = two_writes()
    run.committed(transaction)
    run.aborted(transaction)
    with pytest.raises(BrokenHistory, match="already ended"):
        run.violations()
