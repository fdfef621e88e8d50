"""Markers of other nodes come in the order in which they were sent, or not at all."""

import uuid

import pytest

from headwater.broker.transactions.late_markers import LateMarkers
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId

HERE, THERE = (PartitionId(uuid.UUID(int=1), index) for index in range(2))


def refused(late: LateMarkers, *marker: object) -> bool:
    try:
        late.check(*marker)  # type: ignore[arg-type]
    except RequestError as error:
        assert error.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return True
    return False


def test_a_try_that_comes_after_a_later_one_is_refused() -> None:
    late = LateMarkers()
    assert not refused(late, HERE, 7, 1, 10)
    assert not refused(late, HERE, 7, 1, 12)
    assert refused(late, HERE, 7, 1, 11)
    assert refused(late, HERE, 7, 1, 10)
    assert not refused(late, HERE, 7, 1, 13)


def test_a_coordinator_that_was_replaced_is_refused_whatever_it_counts() -> None:
    late = LateMarkers()
    assert not refused(late, HERE, 7, 2, 1)
    assert refused(late, HERE, 7, 1, 99)
    assert not refused(late, HERE, 7, 2, 2)


def test_partitions_and_producers_do_not_know_of_each_other() -> None:
    late = LateMarkers()
    assert not refused(late, HERE, 7, 1, 10)
    assert not refused(late, THERE, 7, 1, 9)
    assert not refused(late, HERE, 8, 1, 9)


@pytest.mark.parametrize("count", [3, 4])
def test_only_so_many_are_remembered(count: int) -> None:
    late = LateMarkers(max_remembered=3)
    for producer_id in range(count):
        late.check(HERE, producer_id, 1, 10)
    assert refused(late, HERE, 0, 1, 9) is (count == 3)


def test_partitions_that_are_no_more_are_forgotten() -> None:
    late = LateMarkers()
    for partition in (HERE, THERE):
        assert not refused(late, partition, 7, 1, 10)
    late.forget({HERE})
    assert [refused(late, partition, 7, 1, 9) for partition in (HERE, THERE)] == [False, True]
