"""What a controller has from its election to its end: the planner's memory, the sealed segments, copies under way."""

import asyncio
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any

from headwater.broker.cluster.action_writer import ActionWriter
from headwater.broker.cluster.controller_election import Mandate
from headwater.broker.cluster.watch import ClusterWatch
from headwater.broker.settings.key_cache import KeyCache
from headwater.metadata import keys
from headwater.metadata.store import MetaStore
from headwater.model.ids import PartitionId, SegmentId
from headwater.model.segments import SealedSegment
from headwater.replication.cluster_view import SealedKey
from headwater.replication.controller import ControllerPlanner, ControllerRules


class ControllerTerm:
    def __init__(self, mandate: Mandate, metadata: MetaStore, cluster: ClusterWatch, rules: ControllerRules) -> None:
        self.mandate = mandate
        self.planner = ControllerPlanner(rules)
        self.sealed: KeyCache[SealedKey, SealedSegment] = KeyCache(
            metadata, keys.SEALED, _sealed_key, keys.decode_sealed, self._stir
        )
        self.writer = ActionWriter(metadata, mandate, cluster, self.sealed)
        self.repaired_at = float("-inf")
        self.is_stirred = False
        """Some sealed segment has changed."""
        self.has_progressed = False
        """A step of this controller's own was done: the next one may follow at once."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.spawn(self.sealed.run())

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """How many copies run is the planner's to bound."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def check(self) -> None:
        """Raises what ended a task that should not have ended so."""
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _stir(self, _changed: frozenset[SealedKey]) -> None:
        self.is_stirred = True

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()


def _sealed_key(text: str) -> SealedKey:
    partition, _, segment = text.partition("/")
    return _partition(partition), SegmentId(segment)


@lru_cache(maxsize=16_384)
def _partition(text: str) -> PartitionId:
    """One object for all segments of a partition: there may be very many segments."""
    return PartitionId.parse(text)
