"""Batches that were refused a moment ago with nothing wrong about them: the node did not lead yet, or too few stores
took anything. Their producers send them again, in order. But what a producer has sent behind them on the same
connection may arrive when batches are taken again, and has a gap before it.

Such a batch is refused for the same reason as the one before it. OUT_OF_ORDER_SEQUENCE_NUMBER would be true, too, and
say too much: that records are lost. librdkafka then begins a new epoch for all that it has not had acknowledged, in all
partitions, so that what was written and not yet acknowledged is written twice.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.records.batch import BatchHeader

LIFETIME_S: Final = 30.0
"""Longer than any pipeline of requests takes. A gap that is still there then is answered as out of order."""
MAX_REMEMBERED: Final = 10_000
PASSING: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR}
)
"""Refusals for reasons that are not the batch's."""


@dataclass(frozen=True, slots=True)
class _Refused:
    base_sequence: int
    """Of the first batch that was refused since one was taken."""
    error: RequestError
    until_s: float


class RefusedBatches:
    def __init__(self) -> None:
        self._refused: OrderedDict[tuple[PartitionId, int, int], _Refused] = OrderedDict()

    def __len__(self) -> int:
        return len(self._refused)

    def refuse(self, partition: PartitionId, header: BatchHeader, error: RequestError, now_s: float) -> RequestError:
        """What to say to the producer of a batch that cannot be appended because of `error`."""
        if header.producer_id < 0:
            return error
        before = self._before(partition, header, now_s)
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self.behind(partition, header, now_s) or error
        if error.code in PASSING and (before is None or header.base_sequence < before.base_sequence):
            self._refused[_key(partition, header)] = _Refused(header.base_sequence, error, now_s + LIFETIME_S)
            if len(self._refused) > MAX_REMEMBERED:
                self._refused.popitem(last=False)
        return error

    def behind(self, partition: PartitionId, header: BatchHeader, now_s: float) -> RequestError | None:
        """Why a batch before this one was refused. To be asked before it is appended, if the partition knows nothing of
        the producer: it would take any batch for the first."""
        before = self._before(partition, header, now_s)
        return before.error if before is not None and header.base_sequence > before.base_sequence else None

    def took(self, partition: PartitionId, header: BatchHeader) -> None:
        """A batch was appended: nothing is missing before it."""
        self._refused.pop(_key(partition, header), None)

    def _before(self, partition: PartitionId, header: BatchHeader, now_s: float) -> _Refused | None:
        key = _key(partition, header)
        before = self._refused.get(key)
        if before is not None and before.until_s <= now_s:
            del self._refused[key]
            return None
        return before


def _key(partition: PartitionId, header: BatchHeader) -> tuple[PartitionId, int, int]:
    return partition, header.producer_id, header.producer_epoch
