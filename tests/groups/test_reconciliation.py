from headwater.groups.assignment import Assignment
from headwater.groups.consumer_events import CurrentStored, MemberState
from headwater.groups.reconciliation import reconcile
from tests.groups.driven_consumers import partitions

ALL_FREE = lambda topic_id, index: True  # noqa: E731
NONE_FREE = lambda topic_id, index: False  # noqa: E731


def current(epoch: int, assigned: Assignment, **fields: object) -> CurrentStored:
    return CurrentStored(
        group_id="g",
        member_id="m",
        epoch=epoch,
        previous_epoch=epoch - 1,
        assigned=assigned,
        **fields,  # type: ignore[arg-type]
    )


def test_a_member_at_its_target_stays_as_it_is() -> None:
    at_target = current(3, partitions("t", 0))
    assert reconcile(at_target, 3, partitions("t", 0), None, ALL_FREE) is at_target


def test_a_new_member_takes_what_is_free_and_is_done() -> None:
    after = reconcile(CurrentStored(group_id="g", member_id="m"), 1, partitions("t", 0, 1), {}, ALL_FREE)
    assert (after.epoch, after.previous_epoch, after.state) == (1, 0, MemberState.STABLE)
    assert after.assigned == partitions("t", 0, 1)


def test_what_others_hold_is_waited_for() -> None:
    after = reconcile(
        CurrentStored(group_id="g", member_id="m"), 2, partitions("t", 0, 1), {}, lambda _, index: index == 1
    )
    assert (after.epoch, after.state) == (2, MemberState.UNRELEASED_PARTITIONS)
    assert after.assigned == partitions("t", 1)
    later = reconcile(after, 2, partitions("t", 0, 1), None, ALL_FREE)
    assert (later.epoch, later.previous_epoch, later.state) == (2, 0, MemberState.STABLE)
    assert later.assigned == partitions("t", 0, 1)
    assert reconcile(after, 2, partitions("t", 0, 1), None, lambda _, index: index == 1) == after


def test_what_is_too_much_is_given_up_before_anything_is_taken() -> None:
    asked = reconcile(current(1, partitions("t", 0, 1)), 2, partitions("t", 1, 2), None, ALL_FREE)
    assert (asked.epoch, asked.state) == (1, MemberState.UNREVOKED_PARTITIONS)
    assert asked.assigned == partitions("t", 1) and asked.revoking == partitions("t", 0)
    assert reconcile(asked, 3, partitions("t", 2), None, ALL_FREE) is asked, "it has not said that it stopped"
    assert reconcile(asked, 2, partitions("t", 1, 2), partitions("t", 0, 1), ALL_FREE) is asked
    done = reconcile(asked, 2, partitions("t", 1, 2), partitions("t", 1), ALL_FREE)
    assert (done.epoch, done.previous_epoch, done.state) == (2, 1, MemberState.STABLE)
    assert done.assigned == partitions("t", 1, 2) and not done.revoking


def test_a_member_that_joins_with_nothing_has_nothing_to_give_up() -> None:
    after = reconcile(current(1, partitions("t", 0, 1)), 2, partitions("t", 1), {}, NONE_FREE, joins=True)
    assert (after.epoch, after.state, after.assigned) == (2, MemberState.STABLE, partitions("t", 1))


def test_a_member_that_has_not_begun_to_read_what_it_was_given_is_asked_to_give_it_up() -> None:
    """It says what it owned before: librdkafka does so when an acknowledgement was due as the assignment came."""
    asked = reconcile(current(1, partitions("t", 0, 1)), 2, partitions("t", 0), {}, ALL_FREE)
    assert (asked.epoch, asked.state) == (1, MemberState.UNREVOKED_PARTITIONS)
    assert asked.assigned == partitions("t", 0) and asked.revoking == partitions("t", 1)
    assert reconcile(asked, 2, partitions("t", 0), partitions("t", 0, 1), ALL_FREE) is asked, "now it reads both"
    done = reconcile(asked, 2, partitions("t", 0), partitions("t", 0), ALL_FREE)
    assert (done.epoch, done.state) == (2, MemberState.STABLE)


def test_a_target_that_moves_while_a_member_gives_up_is_met_afterwards() -> None:
    asked = reconcile(current(1, partitions("t", 0, 1)), 2, partitions("t", 1), None, ALL_FREE)
    again = reconcile(asked, 3, partitions("t", 0), partitions("t", 1), ALL_FREE)
    assert (again.epoch, again.state) == (1, MemberState.UNREVOKED_PARTITIONS)
    assert not again.assigned and again.revoking == partitions("t", 1)
    done = reconcile(again, 3, partitions("t", 0), {}, ALL_FREE)
    assert (done.epoch, done.state, done.assigned) == (3, MemberState.STABLE, partitions("t", 0))
