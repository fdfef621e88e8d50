"""Markers of other nodes that come too late are refused.

A coordinator that loses a connection tries again on another one. The first try may still be on its way then, and arrive
when the producer's next transaction is open: in version 1 of the protocol that one has the same epoch, and would be
ended. So tries are numbered, and one that is older than another that has come is refused; so is one of a coordinator
which another has replaced, even if that one found nothing to write.

Nothing of this is stored: what is on its way to a process does not outlive it.
"""

from collections.abc import Collection
from typing import Final

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId

MAX_REMEMBERED: Final = 20_000
"""Producers in partitions. The least recently used is forgotten."""


class LateMarkers:
    def __init__(self, max_remembered: int = MAX_REMEMBERED) -> None:
        self._max_remembered = max_remembered
        self._newest: dict[tuple[PartitionId, int], tuple[int, int]] = {}

    def check(self, partition: PartitionId, producer_id: int, coordinator_epoch: int, attempt: int) -> None:
        """Raises RequestError if a later try has come before."""
        name, this = (partition, producer_id), (coordinator_epoch, attempt)
        newest = self._newest.pop(name, this)
        self._newest[name] = max(newest, this)
        if len(self._newest) > self._max_remembered:
            del self._newest[next(iter(self._newest))]
        if this < newest:
            raise RequestError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED, "A later marker of the producer has come before this one."
            )

    def forget(self, partitions: Collection[PartitionId]) -> None:
        """They are no more."""
        for name in [name for name in self._newest if name[0] in partitions]:
            del self._newest[name]
