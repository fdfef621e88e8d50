import pytest

from headwater.groups.transaction_ends import MAX_COORDINATORS, TransactionEnds
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import refusal

PRODUCER, OTHER = 1, 2


@pytest.mark.parametrize(
    ("version", "ended_in", "refused"),
    [
        (1, 4, ErrorCode.NONE),
        (1, 5, ErrorCode.INVALID_TXN_STATE),
        (1, 6, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, ErrorCode.NONE),
        (2, 5, ErrorCode.NONE),
        (2, 6, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_commit_is_refused_if_its_transaction_ended_since_it_was_announced(
    version: int, ended_in: int, refused: ErrorCode
) -> None:
    """The newer protocol ends a transaction in the next epoch: an end in the same one was that of its predecessor."""
    ends = TransactionEnds()
    with ends.announced(PRODUCER, 5, version) as commit:
        ends.ended(PRODUCER, ended_in, 0)
        assert refusal(commit.check) is refused


def test_what_ended_before_a_commit_was_announced_does_not_concern_it() -> None:
    ends = TransactionEnds()
    ends.ended(PRODUCER, 5, 0)
    with ends.announced(PRODUCER, 5, 1) as commit:
        assert refusal(commit.check) is ErrorCode.NONE


def test_the_end_of_another_producers_transaction_does_not_concern_a_commit() -> None:
    ends = TransactionEnds()
    with ends.announced(PRODUCER, 5, 1) as commit:
        ends.ended(OTHER, 5, 0)
        assert refusal(commit.check) is ErrorCode.NONE


def test_an_end_concerns_every_commit_that_is_announced() -> None:
    ends = TransactionEnds()
    with ends.announced(PRODUCER, 5, 1) as first:
        with ends.announced(PRODUCER, 5, 1) as second:
            ends.ended(PRODUCER, 5, 0)
        with ends.announced(PRODUCER, 5, 1) as third:
            assert [refusal(each.check) for each in (first, second, third)] == [
                ErrorCode.INVALID_TXN_STATE,
                ErrorCode.INVALID_TXN_STATE,
                ErrorCode.NONE,
            ]


def test_a_coordinator_that_was_replaced_is_refused() -> None:
    ends = TransactionEnds()
    ends.ended(PRODUCER, 5, 7)
    assert refusal(lambda: ends.ended(PRODUCER, 5, 6)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal(lambda: ends.ended(PRODUCER, 5, 6)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal(lambda: ends.ended(PRODUCER, 5, 7)) is ErrorCode.NONE
    assert refusal(lambda: ends.ended(OTHER, 5, 1)) is ErrorCode.NONE, "another producer has another coordinator"


def test_the_producer_that_was_not_heard_of_for_longest_is_forgotten() -> None:
    ends = TransactionEnds()
    ends.ended(PRODUCER, 0, 7)
    ends.ended(OTHER, 0, 7)
    for producer_id in range(10, 10 + MAX_COORDINATORS - 2):
        ends.ended(producer_id, 0, 7)
    ends.ended(PRODUCER, 0, 7)
    ends.ended(9, 0, 7)
    assert refusal(lambda: ends.ended(PRODUCER, 0, 6)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal(lambda: ends.ended(OTHER, 0, 6)) is ErrorCode.NONE
