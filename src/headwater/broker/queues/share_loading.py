"""Reading what share groups did with the partitions that this node has begun to lead.

The state of a partition's queues is spread over the whole internal topic, so each of its partitions is asked, wherever
it is kept, for many partitions at once. Until all have answered, a queue that is missing does not mean that it does
not exist. A keeper that cannot answer is asked again, for as long as the lead lasts.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from headwater.broker.log.partition import Partition
from headwater.broker.nodes.node_messages import Claimed, ShareKey
from headwater.broker.queues.state_keepers import LOAD_WAIT_S, StateKeepers
from headwater.broker.state.record_log import Spawn
from headwater.logs.events import log_event
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId

FIRST_RETRY_S: Final = 0.05
LONGEST_RETRY_S: Final = 1.0
PARTITIONS_AT_ONCE: Final = 500
"""Of one question: their state is the answer, and must fit into one."""

OnClaimed = Callable[[ShareKey, Partition, Claimed], None]


class ShareLoading:
    def __init__(self, states: StateKeepers, spawn: Spawn, on_claimed: OnClaimed) -> None:
        """`on_claimed` is given each state that is found."""
        self._states = states
        self._spawn = spawn
        self._on_claimed = on_claimed
        self._missing: dict[Partition, asyncio.Event] = {}
        """Partitions of which not everything is known yet."""
        self._next: list[Partition] = []

    def add(self, partition: Partition) -> None:
        """This node leads it from now on."""
        self._missing[partition] = asyncio.Event()
        self._next.append(partition)
        if len(self._next) == 1:
            asyncio.get_running_loop().call_soon(self._begin)

    def remove(self, partition: Partition) -> None:
        """It does so no more."""
        event = self._missing.pop(partition, None)
        if event is not None:
            event.set()

    @property
    def is_done(self) -> bool:
        return not self._missing

    async def done(self, partition: Partition) -> None:
        """Return when everything is known of a partition. Raises RequestError if that takes too long."""
        await self._wait([self._missing[partition]] if partition in self._missing else [])

    async def all_done(self) -> None:
        await self._wait(list(self._missing.values()))

    async def _wait(self, events: Sequence[asyncio.Event]) -> None:
        try:
            async with asyncio.timeout(LOAD_WAIT_S):
                for event in events:
                    await event.wait()
        except TimeoutError:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None

    def _begin(self) -> None:
        """Those that came in one turn of the event loop are read together."""
        partitions, self._next = self._next, []
        for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
            self._spawn(self._load({each.id: each for each in partitions[start : start + PARTITIONS_AT_ONCE]}))

    async def _load(self, partitions: dict[PartitionId, Partition]) -> None:
        await asyncio.gather(*(self._load_from(index, partitions) for index in range(self._states.partition_count)))
        for partition in partitions.values():
            self.remove(partition)

    async def _load_from(self, index: int, partitions: dict[PartitionId, Partition]) -> None:
        retry_s = FIRST_RETRY_S
        while led := {id_: each.leader_epoch for id_, each in partitions.items() if not each.is_over}:
            try:
                found = await self._states.claim_all(index, led)
            except RequestError as error:
                log_event("shares_not_loaded", logging.WARNING, index=index, error=error)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
                continue
            for key, claimed in found:
                self._on_claimed(key, partitions[key.partition], claimed)
            return
