"""Where an epoch ended is arithmetic on where epochs began."""

import pytest

from headwater.broker.log.leader_epochs import UNDEFINED, end_of_epoch
from headwater.broker.log.segment_chain import EpochStart

# Epochs 3, 5 and 6 wrote; 4 did not.
STARTS = [EpochStart(3, 100), EpochStart(5, 150), EpochStart(6, 180)]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (6, (6, 200)),
        (5, (5, 180)),
        (4, (3, 150)),
        (3, (3, 150)),
        (2, (2, 100)),
        (7, UNDEFINED),
        (-1, UNDEFINED),
    ],
)
def test_an_epoch_ends_where_the_next_one_that_wrote_began(epoch: int, answer: tuple[int, int]) -> None:
    assert end_of_epoch(STARTS, log_start=100, log_end=200, epoch=epoch) == answer


def test_an_epoch_before_all_that_are_known_ends_where_the_first_of_them_begins() -> None:
    """A tail that was carried over lies before the beginning of its segment's epoch: nothing of it was truncated."""
    assert end_of_epoch([EpochStart(1, 50)], log_start=0, log_end=60, epoch=0) == (0, 50)
    assert end_of_epoch([EpochStart(1, 50)], log_start=55, log_end=60, epoch=0) == (0, 55)


def test_an_epoch_whose_records_are_gone_ends_where_the_log_starts() -> None:
    assert end_of_epoch(STARTS, log_start=190, log_end=200, epoch=3) == (3, 190)


def test_a_log_of_one_epoch_ends_with_the_log() -> None:
    assert end_of_epoch([EpochStart(0, 0)], log_start=0, log_end=7, epoch=0) == (0, 7)
