"""A consumer moves forward one record after the other, unless it says that it goes elsewhere."""

from headwater.testing.oracles.checkers import ViolationKind
from tests.testing.oracles.checked_runs import COMMITTED, TOPIC, UNCOMMITTED, Run


def five() -> Run:
    run = Run()
    for offset in range(5):
        run.sent(f"v{offset}", offset)
    run.ends_with([(offset, f"v{offset}") for offset in range(5)], end=5)
    return run


def test_a_consumer_may_begin_and_stop_anywhere() -> None:
    run = five()
    run.given([(2, "v2"), (3, "v3")])
    assert run.violations() == []


def test_a_consumer_that_is_given_an_offset_again_went_back() -> None:
    run = five()
    run.given([(0, "v0"), (1, "v1")])
    run.given([(1, "v1"), (2, "v2")])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.BACKWARD_POLL
    assert "from offset 2 of orders-0 back to 1" in violation.sentence
    assert violation.operations == (13,)


def test_records_of_one_poll_in_the_wrong_order_went_back() -> None:
    run = five()
    run.given([(1, "v1"), (0, "v0")])
    assert ViolationKind.BACKWARD_POLL in run.kinds()


def test_a_final_read_must_not_go_back() -> None:
    run = Run()
    run.sent("v0", 0)
    run.sent("v1", 1)
    run.ends_with([(1, "v1"), (0, "v0")], end=2)
    assert run.kinds() == [ViolationKind.BACKWARD_POLL]


def test_a_position_that_goes_back_by_itself_went_back_even_if_the_poll_is_empty() -> None:
    run = five()
    run.given([(0, "v0"), (1, "v1")])
    run.polled("c", COMMITTED, [], before={(TOPIC, 0): 0})
    assert run.kinds() == [ViolationKind.BACKWARD_POLL]


def test_records_between_two_polls_that_were_not_given_are_skipped() -> None:
    run = five()
    run.given([(0, "v0")])
    run.given([(3, "v3")])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.SKIPPED_RECORDS
    assert violation.sentence.endswith("was not given 'v1' at 1, 'v2' at 2")


def test_records_within_one_poll_that_were_not_given_are_skipped() -> None:
    run = five()
    run.given([(0, "v0"), (2, "v2"), (3, "v3")])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.SKIPPED_RECORDS
    assert violation.sentence.endswith("was not given 'v1' at 1")


def test_a_position_that_moves_past_records_without_giving_them_skips_them() -> None:
    run = five()
    run.polled("c", COMMITTED, [(TOPIC, 0, 0, "v0")], before={(TOPIC, 0): 0}, after={(TOPIC, 0): 4})
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.SKIPPED_RECORDS
    assert "'v1' at 1, 'v2' at 2, 'v3' at 3" in violation.sentence


def test_a_seek_or_a_new_assignment_may_go_anywhere() -> None:
    run = five()
    run.assigned("c", {(TOPIC, 0): 0})
    run.given([(0, "v0"), (1, "v1")])
    run.sought("c", TOPIC, 0, 4)
    run.given([(4, "v4")])
    run.assigned("c", [(TOPIC, 0)])
    run.given([(1, "v1")])
    assert run.violations() == []


def test_a_consumer_must_begin_where_it_was_assigned() -> None:
    run = five()
    run.assigned("c", {(TOPIC, 0): 1})
    run.given([(3, "v3")])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.SKIPPED_RECORDS


def test_markers_and_aborted_records_are_passed_in_silence() -> None:
    run = Run()
    aborted = run.begin("p")
    run.sent("gone", 0, transaction=aborted)
    run.aborted(aborted)
    run.sent("v2", 2)
    run.assigned("c", {(TOPIC, 0): 0})
    run.given([(2, "v2")])
    assert run.violations() == []


def test_a_read_uncommitted_consumer_must_not_pass_aborted_records_that_others_saw() -> None:
    run = Run()
    aborted = run.begin("p")
    run.sent("gone", 0, transaction=aborted)
    run.aborted(aborted)
    run.sent("v2", 2)
    run.given([(0, "gone"), (2, "v2")], consumer="c1", isolation=UNCOMMITTED)
    run.assigned("c2", {(TOPIC, 0): 0})
    run.given([(2, "v2")], consumer="c2", isolation=UNCOMMITTED)
    assert run.kinds() == [ViolationKind.SKIPPED_RECORDS]
