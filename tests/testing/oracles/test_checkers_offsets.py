"""A group's offset moves by commits alone, never back, and past nothing that was not processed."""

import pytest

from headwater.testing.oracles.checkers import BrokenHistory, TopicPartition, ViolationKind
from tests.testing.oracles.checked_runs import COMMITTED, Run

INPUT = TopicPartition("in", 0)
GROUP = "g"


class Transformer(Run):
    """Ten records of input, and a consumer that processes them in transactions."""

    def __init__(self) -> None:
        super().__init__()
        for offset in range(10):
            self.send("source", INPUT.topic, f"i{offset}", partition=0)
            self.acknowledged(INPUT.topic, f"i{offset}", 0, offset)
        self._outputs = 0

    def polls(self, start: int, end: int, consumer: str = "c") -> None:
        self.polled(consumer, COMMITTED, [(*INPUT, offset, f"i{offset}") for offset in range(start, end)])

    def processes(self, start: int, end: int, consumer: str = "c", polls: bool = True) -> str:
        """Poll, write and add offsets; how it ends is the test's."""
        if polls:
            self.polls(start, end, consumer)
        transaction = self.begin(consumer)
        self.sent(f"o{self._outputs}", self._outputs * 2, producer=consumer, transaction=transaction)
        self._outputs += 1
        self.send_offsets(transaction, GROUP, {INPUT: end}, consumer=consumer)
        return transaction

    def finds(self, offset: int | None, reader: str = "r", is_final: bool = False) -> None:
        self.offsets_read(reader, GROUP, {INPUT: offset}, is_final=is_final)


def test_inputs_that_lie_end_to_end_are_right() -> None:
    run = Transformer()
    run.finds(None)
    run.committed(run.processes(0, 4))
    run.finds(4)
    run.committed(run.processes(4, 7))
    run.finds(7)
    run.finds(7, is_final=True)
    assert run.violations() == []


def test_an_aborted_transaction_is_processed_again_from_where_it_began() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4))
    run.aborted(run.processes(4, 7))
    run.sought("c", *INPUT, 4)
    run.committed(run.processes(4, 7))
    run.finds(7, is_final=True)
    assert run.violations() == []


def test_a_consumer_that_polls_more_than_a_transaction_takes_goes_on_with_the_rest() -> None:
    run = Transformer()
    run.polls(0, 9)
    run.committed(run.processes(0, 4, polls=False))
    run.committed(run.processes(4, 9, polls=False))
    run.finds(9, is_final=True)
    assert run.violations() == []


def test_a_commit_without_an_outcome_may_explain_an_offset_and_fill_a_hole() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4))
    run.committed(run.processes(4, 7), "unknown")
    run.assigned("c2", {INPUT: 7})
    run.committed(run.processes(7, 9, consumer="c2"))
    run.finds(9, is_final=True)
    assert run.violations() == []


# Dirty offsets


def test_an_offset_that_nobody_committed_is_dirty() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4))
    run.finds(6)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.DIRTY_OFFSET
    assert "r found the offset of group g in in-0 to be 6, which no client committed" in violation.sentence


def test_an_offset_of_an_aborted_transaction_is_dirty() -> None:
    run = Transformer()
    aborted = run.processes(0, 4)
    run.aborted(aborted)
    run.finds(4, is_final=True)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.DIRTY_OFFSET
    assert f"only transaction {aborted} tried to commit" in violation.sentence


def test_an_offset_that_is_seen_before_its_commit_was_asked_for_is_dirty() -> None:
    run = Transformer()
    transaction = run.processes(0, 4)
    run.finds(4)
    run.committed(transaction)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.DIRTY_OFFSET
    assert f"before transaction {transaction} asked to commit it" in violation.sentence


def test_an_offset_that_goes_back_for_one_reader_is_dirty() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4))
    run.committed(run.processes(4, 7))
    run.finds(7)
    run.finds(4)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.DIRTY_OFFSET
    assert "went back: r found 7, and later r found 4" in violation.sentence


def test_readers_that_overlap_may_find_offsets_in_any_order() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4))
    run.committed(run.processes(4, 7))
    run.finds(7, reader="r1")
    run.finds(4, reader="r2")
    assert run.violations() == []


def test_an_offset_that_is_gone_at_the_end_is_dirty() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4))
    run.finds(4)
    run.finds(None, reader="end", is_final=True)
    sentences = [each.sentence for each in run.violations() if each.kind is ViolationKind.DIRTY_OFFSET]
    assert any("is gone at the end" in sentence for sentence in sentences)
    assert any("r found 4, and later end found gone" in sentence for sentence in sentences)


def test_a_final_offset_that_a_later_commit_replaced_is_dirty() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4))
    last = run.processes(4, 7)
    run.committed(last)
    run.finds(4, is_final=True)
    violation = next(each for each in run.violations() if each.kind is ViolationKind.DIRTY_OFFSET)
    assert f"is 4 at the end, though transaction {last} set it to 7 later" in violation.sentence


def test_a_transaction_that_moves_a_group_back_is_dirty() -> None:
    run = Transformer()
    run.committed(run.processes(0, 7))
    zombie = run.begin("zombie")
    run.send_offsets(zombie, GROUP, {INPUT: 4})
    run.committed(zombie)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.DIRTY_OFFSET
    assert f"transaction {zombie} moved the offset of group g in in-0 back to 4" in violation.sentence


def test_an_offset_past_input_of_an_aborted_transaction_is_dirty() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4))
    run.aborted(run.processes(4, 7))
    careless = run.processes(7, 9)  # without a seek back
    run.committed(careless)
    run.finds(9, is_final=True)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.DIRTY_OFFSET
    assert f"{careless} moved the offset of group g in in-0 past 'i4' at 4, 'i5' at 5, 'i6' at 6" in violation.sentence


def test_an_offset_past_input_that_the_consumer_never_polled_is_dirty() -> None:
    run = Transformer()
    run.assigned("c", {INPUT: 0})
    run.committed(run.processes(0, 4))
    run.assigned("c", {INPUT: 6})
    run.committed(run.processes(6, 9))
    run.final_read(COMMITTED, *INPUT, [(offset, f"i{offset}") for offset in range(10)], end=10)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.DIRTY_OFFSET
    assert "'i4' at 4, 'i5' at 5, which no committed transaction processed" in violation.sentence


# Processed twice


def test_input_of_two_committed_transactions_is_processed_twice() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4))
    run.assigned("c2", {INPUT: 2})  # a stale offset
    run.committed(run.processes(2, 7, consumer="c2"))
    run.finds(7, is_final=True)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.PROCESSED_TWICE
    assert "group g processed 'i2' at 2, 'i3' at 3 of in-0 twice" in violation.sentence


def test_input_of_a_commit_without_an_outcome_that_can_be_seen_is_processed_twice_too() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4), "unknown")
    run.assigned("c2", {INPUT: 0})
    run.committed(run.processes(0, 4, consumer="c2"))
    run.ends_with([(0, "o0"), (2, "o1")], end=4)
    assert run.kinds() == [ViolationKind.PROCESSED_TWICE]


def test_input_of_a_commit_without_an_outcome_that_cannot_be_seen_was_processed_once() -> None:
    run = Transformer()
    run.committed(run.processes(0, 4), "unknown")
    run.assigned("c2", {INPUT: 0})
    run.committed(run.processes(0, 4, consumer="c2"))
    run.ends_with([(2, "o1")], end=4)
    assert run.violations() == []


# Plain commits


def plain(run: Run, offset: int, outcome: str = "ok") -> None:
    run.commit_ended(run.commit_offsets(GROUP, {INPUT: offset}), outcome)


def test_plain_commits_may_go_anywhere() -> None:
    run = Run()
    for offset in (5, 9, 2):
        plain(run, offset)
        run.offsets_read("r", GROUP, {INPUT: offset})
    run.offsets_read("r", GROUP, {INPUT: 2}, is_final=True)
    assert run.violations() == []


def test_a_plain_commit_without_an_outcome_may_happen_late() -> None:
    run = Run()
    plain(run, 5, "unknown")
    plain(run, 9)
    run.offsets_read("r", GROUP, {INPUT: 5}, is_final=True)
    assert run.violations() == []


def test_a_plain_commit_that_failed_must_not_be_found() -> None:
    run = Run()
    plain(run, 5, "failed")
    run.offsets_read("r", GROUP, {INPUT: 5})
    assert run.kinds() == [ViolationKind.DIRTY_OFFSET]


def test_a_plain_commit_that_was_acknowledged_must_not_be_undone() -> None:
    run = Run()
    plain(run, 5)
    plain(run, 9)
    run.offsets_read("r", GROUP, {INPUT: 5}, is_final=True)
    assert run.kinds() == [ViolationKind.DIRTY_OFFSET]


def test_a_group_whose_commits_are_not_recorded_is_not_judged() -> None:
    run = Run()
    run.offsets_read("r", GROUP, {INPUT: 3})
    run.offsets_read("r", GROUP, {INPUT: 8}, is_final=True)
    assert run.violations() == []


def test_a_commit_cannot_begin_twice_nor_end_unasked() -> None:
    run = Run()
    run.commit_offsets(GROUP, {INPUT: 1}, name="once")
    run.commit_offsets(GROUP, {INPUT: 1}, name="once")
    with pytest.raises(BrokenHistory, match="begins again"):
        run.violations()
    run = Run()
    run.commit_ended("none", "ok")
    with pytest.raises(BrokenHistory, match="not under way"):
        run.violations()
