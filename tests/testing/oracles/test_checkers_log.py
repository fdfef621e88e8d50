"""Each partition is one log: what is acknowledged stays where it is, once, in order, and nothing is made up."""

import pytest

from headwater.testing.oracles.checkers import BrokenHistory, ViolationKind, check
from tests.testing.oracles.checked_runs import COMMITTED, TOPIC, UNCOMMITTED, Run


def test_an_empty_history_has_no_violations() -> None:
    assert check([]) == []


def test_what_is_acknowledged_and_read_where_it_was_acknowledged_is_right() -> None:
    run = Run()
    for offset in range(5):
        run.sent(f"v{offset}", offset)
    run.given([(0, "v0"), (1, "v1")])
    run.given([(2, "v2")])
    for isolation in (COMMITTED, UNCOMMITTED):
        run.ends_with([(offset, f"v{offset}") for offset in range(5)], end=5, isolation=isolation)
    assert run.violations() == []


def test_a_send_without_an_outcome_may_be_there_or_not() -> None:
    run = Run()
    for value in ("told", "silent", "absent"):
        run.send("p", TOPIC, value)
    run.send_unknown(TOPIC, "told")
    run.ends_with([(0, "told"), (1, "silent")], end=2)
    assert run.violations() == []


def test_a_failed_send_that_is_not_there_is_right() -> None:
    run = Run()
    run.send("p", TOPIC, "refused", partition=0)
    run.send_failed(TOPIC, "refused")
    run.ends_with([], end=0)
    assert run.violations() == []


# Phantoms


def test_a_value_that_nobody_sent_is_a_phantom() -> None:
    run = Run()
    run.given([(0, "ghost")])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.PHANTOM
    assert "'ghost'" in violation.sentence and "offset 0" in violation.sentence and "consumer c" in violation.sentence
    assert violation.operations == (1,)


def test_a_value_of_another_topic_is_a_phantom() -> None:
    run = Run()
    run.send("p", "payments", "v0", partition=0)
    run.acknowledged("payments", "v0", 0, 0)
    run.ends_with([(0, "v0")], end=1)
    assert run.kinds() == [ViolationKind.PHANTOM]


def test_a_value_that_is_seen_before_it_is_sent_is_a_read_of_the_future() -> None:
    run = Run()
    run.given([(0, "v0")])
    run.sent("v0", 0)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.FUTURE_READ
    assert violation.operations == (1, 2)


def test_a_final_read_does_not_see_the_future_either() -> None:
    run = Run()
    run.ends_with([(0, "v0")], end=1)
    run.sent("v0", 0)
    assert run.kinds() == [ViolationKind.FUTURE_READ]


# Lost writes


def test_an_acknowledged_write_that_the_final_read_lacks_is_lost() -> None:
    run = Run()
    for offset in range(3):
        run.sent(f"v{offset}", offset)
    run.ends_with([(0, "v0"), (2, "v2")], end=3)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.LOST_WRITE
    assert "'v1'" in violation.sentence and "acknowledged at offset 1" in violation.sentence
    assert violation.operations == (3, 4)


def test_an_acknowledged_write_beyond_the_end_of_the_log_is_lost() -> None:
    run = Run()
    run.sent("v0", 0)
    run.sent("v1", 1)
    run.ends_with([(0, "v0")], end=1)
    assert run.kinds() == [ViolationKind.LOST_WRITE]


def test_without_a_final_read_a_write_is_lost_when_consumers_were_given_what_is_around_it() -> None:
    run = Run()
    for offset in range(4):
        run.sent(f"v{offset}", offset)
    run.given([(0, "v0")], consumer="c1")
    run.given([(2, "v2")], consumer="c2")
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.LOST_WRITE
    assert "'v1'" in violation.sentence


def test_without_a_final_read_what_no_consumer_reached_is_not_lost() -> None:
    run = Run()
    for offset in range(4):
        run.sent(f"v{offset}", offset)
    run.given([(1, "v1"), (2, "v2")])
    assert run.violations() == []


def test_after_a_seek_only_what_a_consumer_passed_can_be_lost() -> None:
    run = Run()
    for offset in range(9):
        run.sent(f"v{offset}", offset)
    run.given([(0, "v0")])
    run.sought("c", TOPIC, 0, 5)
    run.given([(5, "v5"), (7, "v7")])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.LOST_WRITE
    assert "'v6'" in violation.sentence


def test_a_write_without_an_outcome_that_was_seen_once_must_stay() -> None:
    run = Run()
    run.send("p", TOPIC, "v0", partition=0)
    run.given([(0, "v0")])
    run.ends_with([], end=0)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.LOST_WRITE
    assert "seen at offset 0 before" in violation.sentence


def test_what_lies_below_the_start_of_the_log_is_not_lost() -> None:
    run = Run()
    for offset in range(3):
        run.sent(f"v{offset}", offset)
    run.final_read(COMMITTED, TOPIC, 0, [(2, "v2")], start=2, end=3)
    assert run.violations() == []


def test_an_acknowledgement_without_an_offset_counts_too() -> None:
    run = Run()
    run.sent("v0", -1)
    run.ends_with([], end=0)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.LOST_WRITE
    assert "acknowledged" in violation.sentence


# Inconsistent offsets


def test_two_acknowledgements_of_one_offset_are_inconsistent() -> None:
    run = Run()
    run.sent("v0", 3)
    run.sent("v1", 3)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.INCONSISTENT_OFFSET
    assert "offset 3 of orders-0" in violation.sentence
    assert "'v0'" in violation.sentence and "'v1'" in violation.sentence


def test_two_readers_that_see_different_values_at_one_offset_are_inconsistent() -> None:
    run = Run()
    for value in ("v0", "v1"):
        run.send("p", TOPIC, value)
    run.given([(0, "v0")], consumer="c1")
    run.given([(0, "v1")], consumer="c2")
    assert ViolationKind.INCONSISTENT_OFFSET in run.kinds()


def test_a_value_elsewhere_than_acknowledged_is_inconsistent() -> None:
    run = Run()
    run.sent("v0", 3)
    run.given([(4, "v0")])
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.INCONSISTENT_OFFSET
    assert "acknowledged at offset 3, but stands at offset 4" in violation.sentence


def test_a_value_in_another_partition_than_it_was_sent_to_is_inconsistent() -> None:
    run = Run()
    run.send("p", TOPIC, "v0", partition=0)
    run.given([(0, "v0")], partition=1)
    assert run.kinds() == [ViolationKind.INCONSISTENT_OFFSET]


def test_an_acknowledgement_from_another_partition_is_inconsistent() -> None:
    run = Run()
    run.send("p", TOPIC, "v0", partition=0)
    run.acknowledged(TOPIC, "v0", 1, 0)
    assert run.kinds() == [ViolationKind.INCONSISTENT_OFFSET]


# Duplicates


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    run = Run()
    run.sent("v0", 0)
    run.ends_with([(0, "v0"), (1, "v0")], end=2)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.DUPLICATE
    assert "at offset 0 and again at offset 1" in violation.sentence


def test_a_value_that_two_consumers_see_at_two_offsets_is_a_duplicate() -> None:
    run = Run()
    run.send("p", TOPIC, "v0", partition=0)
    run.given([(0, "v0")], consumer="c1")
    run.given([(7, "v0")], consumer="c2")
    assert run.kinds() == [ViolationKind.DUPLICATE]


def test_a_value_in_two_partitions_is_a_duplicate() -> None:
    run = Run()
    run.send("p", TOPIC, "v0")
    run.given([(0, "v0")], partition=0)
    run.given([(0, "v0")], partition=1)
    assert run.kinds() == [ViolationKind.DUPLICATE]


def test_a_producer_without_idempotence_may_write_twice() -> None:
    run = Run()
    run.sent("v0", 1, is_idempotent=False)
    run.ends_with([(0, "v0"), (1, "v0")], end=2)
    assert run.violations() == []


# Order


def test_values_of_one_producer_in_another_order_than_sent_are_reordered() -> None:
    run = Run()
    run.sent("v0", 1)
    run.sent("v1", 0)
    (violation,) = run.violations()
    assert violation.kind is ViolationKind.REORDERED
    assert "'v1'" in violation.sentence and "'v0'" in violation.sentence


def test_the_order_is_judged_by_what_readers_saw_when_offsets_were_not_told() -> None:
    run = Run()
    run.sent("v0", -1)
    run.sent("v1", -1)
    run.ends_with([(0, "v1"), (1, "v0")], end=2)
    assert run.kinds() == [ViolationKind.REORDERED]


def test_producers_partitions_and_sends_without_idempotence_have_no_common_order() -> None:
    run = Run()
    run.sent("v0", 9, producer="p1")
    run.sent("v1", 0, producer="p2")
    run.sent("v2", 1, producer="p1", partition=1)
    run.sent("v3", 5, producer="p3", is_idempotent=False)
    run.sent("v4", 4, producer="p3", is_idempotent=False)
    assert run.violations() == []


# Histories that prove nothing


def test_a_value_that_is_sent_twice_breaks_the_history() -> None:
    run = Run()
    run.sent("v0", 0)
    run.send("p", TOPIC, "v0")
    with pytest.raises(BrokenHistory, match=r"operation 3: 'v0' is sent to topic orders again"):
        run.violations()


def test_an_acknowledgement_of_nothing_breaks_the_history() -> None:
    run = Run()
    run.acknowledged(TOPIC, "v0", 0, 0)
    with pytest.raises(BrokenHistory, match="never began"):
        run.violations()


def test_a_send_cannot_end_twice() -> None:
    run = Run()
    run.sent("v0", 0)
    run.acknowledged(TOPIC, "v0", 0, 0)
    with pytest.raises(BrokenHistory, match="already ended"):
        run.violations()


# Reports


def test_a_thousand_losses_are_counted_but_not_all_listed() -> None:
    run = Run()
    for offset in range(1_000):
        run.sent(f"v{offset}", offset)
    run.ends_with([], end=0)
    violations = run.violations()
    assert len(violations) == 101
    assert violations[-1].sentence == "900 more of this kind are not listed"
