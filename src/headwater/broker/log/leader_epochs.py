"""Where leader epochs end: what tells a client whether the log it read is still the log there is (KIP-101, KIP-320)."""

from collections.abc import Sequence
from itertools import pairwise

from headwater.broker.log.segment_chain import EpochStart
from headwater.model.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset

UNDEFINED: tuple[LeaderEpoch, Offset] = (NO_LEADER_EPOCH, NO_OFFSET)


def end_of_epoch(
    starts: Sequence[EpochStart], log_start: Offset, log_end: Offset, epoch: LeaderEpoch
) -> tuple[LeaderEpoch, Offset]:
    """The last epoch not after `epoch`, and the offset at which it ended.

    `starts` is in order, and its last epoch is the one in which `log_end` still moves. An epoch older than all that are
    known ended where the first of these begins: a tail that was carried over is older than the epoch of its segment. Of
    one that is yet to come nothing is known."""
    if epoch < 0 or epoch > starts[-1].epoch:
        return UNDEFINED
    if epoch < starts[0].epoch:
        return epoch, max(starts[0].start, log_start)
    for current, following in pairwise(starts):
        if epoch < following.epoch:
            return current.epoch, max(following.start, log_start)
    return starts[-1].epoch, log_end
