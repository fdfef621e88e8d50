"""Frees what is garbage in this node's store: asks the metadata, in the order that makes it safe, and deletes.

Every round looks at some partitions, so that what it reads is bounded; one round after the other reaches all of them.
When retention, compaction or a deletion leaves something to free in a partition, that partition comes next.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headwater.broker.topics.topic import Topic
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import MetaStore, Unavailable, Unknown
from headwater.model.ids import PartitionId, SegmentId
from headwater.model.replica import LocalStore, ReplicaState, StoreError, StoreFailed
from headwater.replication.garbage import collect, topic_of

INTERVAL_S: Final = 30.0
PARTITIONS_PER_ROUND: Final = 500
PARTITIONS_AT_ONCE: Final = 4
MAX_ASKED: Final = 10_000


class GarbageCollector:
    def __init__(
        self,
        store: LocalStore,
        metadata: MetaStore,
        *,
        interval_s: float = INTERVAL_S,
        partitions_per_round: int = PARTITIONS_PER_ROUND,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._interval_s = interval_s
        self._partitions_per_round = partitions_per_round
        self._asked: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._last = ""

    def ask(self, partition: PartitionId) -> None:
        """Look at this partition soon."""
        if len(self._asked) < MAX_ASKED:
            self._asked[str(partition)] = None
            self._wake.set()

    def topic_removed(self, topic: Topic) -> None:
        """Look at its partitions soon."""
        for index in range(topic.partition_count):
            self.ask(topic.partition_id(index))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            except TimeoutError:
                await self.collect_some()
            else:
                self._wake.clear()
                asked, self._asked = self._asked, {}
                await self.collect(asked)

    async def collect_some(self) -> int:
        """Collect in the next partitions, in the order of their names."""
        names = sorted({replica.partition for replica in self._store.replicas()})
        later = [name for name in names if name > self._last]
        round_names = (later + [name for name in names if name <= self._last])[: self._partitions_per_round]
        self._last = round_names[-1] if round_names else ""
        return await self.collect(round_names)

    async def collect(self, partitions: Iterable[str]) -> int:
        """How many replicas were deleted. A partition that fails is left for the next time."""
        inventory = defaultdict(list)  # first of all reads, for everything that follows
        for replica in self._store.replicas():
            inventory[replica.partition].append(replica)
        permits = asyncio.Semaphore(PARTITIONS_AT_ONCE)

        async def collect_one(name: str) -> int:
            async with permits:
                return await self._guarded(name, inventory[name])

        return sum(await asyncio.gather(*(collect_one(name) for name in partitions if name in inventory)))

    async def _guarded(self, name: str, inventory: Sequence[ReplicaState]) -> int:
        try:
            return await self._collect(name, inventory)
        except StoreFailed:
            raise
        except (StoreError, Unavailable, Unknown, ValueError, TypeError, KeyError) as error:
            log_event(
                "garbage_not_collected", logging.WARNING, partition=name, error=f"{type(error).__name__}: {error}"
            )
            return 0

    async def _collect(self, name: str, inventory: Sequence[ReplicaState]) -> int:
        topic_id = topic_of(name)
        if topic_id is None:
            return 0
        partition = PartitionId.parse(name)
        topic = await self._metadata.get(keys.topic_key(topic_id))
        head = await self._metadata.get(keys.head_key(partition))
        staged = await self._metadata.list(keys.staged_prefix(partition))
        listed = await self._metadata.list(keys.sealed_prefix(partition))
        sealed = {segment.id: segment for segment in (keys.decode_sealed(kv.value) for kv in listed)}
        garbage = collect(
            inventory,
            self._store.store_id,
            {name: keys.decode_head(head.value)} if head is not None else {},
            {SegmentId(kv.key.removeprefix(keys.staged_prefix(partition))) for kv in staged},
            sealed,
            {topic_id} if topic is not None else set(),
        )
        for segment, instance in garbage:
            await self._store.delete(segment, instance)
        if garbage:
            freed = _sizes(inventory)
            log_event(
                "garbage_collected",
                partition=name,
                segments=len(garbage),
                freed_bytes=sum(freed[segment] for segment, _ in garbage),
            )
        return len(garbage)


def _sizes(inventory: Sequence[ReplicaState]) -> Mapping[SegmentId, int]:
    return {replica.segment: replica.size_bytes for replica in inventory}
