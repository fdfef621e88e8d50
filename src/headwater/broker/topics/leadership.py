"""Which partitions this node leads: it follows the heads.

A head that names this node is taken over, one that names another is let go. What is not yet led and ought to be is
tried until it is, or until the head names another node. A leader that finds itself fenced looks at the head again: it
may have been fenced by one who then failed, and take over anew.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from headwater.broker.log.node_ports import NodePorts
from headwater.broker.log.partition import Partition
from headwater.broker.log.partition_metadata import Metadata, Writes
from headwater.broker.log.takeover_runner import TakenOver, TakeoverRun
from headwater.broker.topics.topic import Topic
from headwater.broker.topics.topic_index import TopicIndex
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.ids import PartitionId, SegmentId
from headwater.model.replica import StoreError, StoreFailed
from headwater.model.segments import Head, SealedSegment
from headwater.transactions.partition_snapshot import CorruptSnapshot

AT_ONCE = 192
"""Partitions that are taken over at the same time."""
RETRY_S = 0.5
BEGIN_WAIT_S = 10.0
"""How long a request waits for a takeover that is under way."""

Sealed = Mapping[SegmentId, tuple[SealedSegment, int]]


class Leadership:
    def __init__(self, ports: NodePorts, metadata: Metadata, writes: Writes, topics: TopicIndex) -> None:
        self._ports = ports
        self._metadata = metadata
        self._writes = writes
        self._topics = topics
        self._runs: dict[PartitionId, asyncio.Task[None]] = {}
        self._permits = asyncio.Semaphore(AT_ONCE)
        self._is_stopped = False
        self.on_led: list[Callable[[Partition], None]] = []
        """Callbacks for each partition that this node leads from now on."""
        self.on_lost: list[Callable[[Partition], None]] = []
        """Callbacks for each partition that this node led until now."""

    def consider(self, partition: PartitionId, head: Head, version: int, sealed: Sealed | None = None) -> None:
        """What the metadata says of a partition, now or a moment ago."""
        topic = self._topics.find_id(partition.topic_id)
        if topic is None or self._is_stopped:
            return
        known = topic.heads.get(partition.index)
        if known is None or head.epoch >= known.epoch:
            topic.heads[partition.index] = head
        led = topic.led.get(partition.index)
        if led is not None:
            if head.epoch <= led.leader_epoch:
                return
            self._let_go(topic, led, f"node {head.leader} leads in epoch {head.epoch}")
        if head.leader == self._ports.node_id and partition not in self._runs:
            task = self._ports.spawn(self._lead(partition, head, version, sealed))
            self._runs[partition] = task
            task.add_done_callback(lambda _: self._runs.pop(partition, None))

    async def wait_for_takeovers(self, partitions: Iterable[PartitionId] | None = None) -> None:
        """Return when none of these, or none at all, is being taken over."""
        wanted = list(self._runs) if partitions is None else list(partitions)
        while runs := [self._runs[partition] for partition in wanted if partition in self._runs]:
            await asyncio.wait(runs)

    def is_beginning(self, partition: PartitionId) -> bool:
        """This node is to lead the partition, and does not yet."""
        return partition in self._runs

    async def begun(self, partition: PartitionId) -> None:
        """Return when this node leads the partition, if it is about to; or when that takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BEGIN_WAIT_S):
                await self.wait_for_takeovers([partition])

    def stop(self) -> None:
        self._is_stopped = True

    async def _lead(self, partition: PartitionId, head: Head, version: int, sealed: Sealed | None) -> None:
        while True:
            topic = self._topics.find_id(partition.topic_id)
            if topic is None or head.leader != self._ports.node_id or self._is_stopped:
                return
            topic.heads[partition.index] = head
            taken = await self._take_over(topic, partition, head, version, sealed)
            if taken is not None:
                self._begin(partition, taken)
                return
            sealed = None
            found = await self._read_head(partition)
            if found is None:
                return
            head, version = found

    async def _take_over(
        self, topic: Topic, partition: PartitionId, head: Head, version: int, sealed: Sealed | None
    ) -> TakenOver | None:
        async with self._permits:
            run = TakeoverRun(
                ports=self._environment_of(topic, partition),
                metadata=self._metadata,
                writes=self._writes,
                partition=partition,
                head=head,
                version=version,
                rules=topic.rules(partition.index),
                durability=topic.config.durability,
            )
            try:
                return await run.run(sealed)
            except StoreFailed:
                raise
            except (StoreError, Unavailable, Unknown, CorruptSnapshot) as error:
                log_event(
                    "takeover_failed", logging.WARNING, partition=partition, error=f"{type(error).__name__}: {error}"
                )
        await asyncio.sleep(RETRY_S)
        return None

    def _begin(self, partition_id: PartitionId, taken: TakenOver) -> None:
        topic = self._topics.find_id(partition_id.topic_id)
        if topic is None or self._is_stopped:
            return
        partition = Partition(
            ports=self._environment_of(topic, partition_id),
            partition_id=partition_id,
            topic_name=topic.name,
            register=taken.register,
            config=topic.config,
            rules=topic.rules(partition_id.index),
            transactions=taken.transactions,
            begun=taken.begun,
            on_over=self._stepped_down,
        )
        topic.led[partition_id.index] = partition
        topic.heads[partition_id.index] = taken.register.head
        for callback in self.on_led:
            callback(partition)

    def _environment_of(self, topic: Topic, partition: PartitionId) -> NodePorts:
        return self._ports.placing(lambda: topic.preferred(partition.index))

    def _stepped_down(self, partition: Partition) -> None:
        """It was fenced, or lost its head."""
        topic = self._topics.find_id(partition.id.topic_id)
        if topic is None or topic.led.get(partition.id.index) is not partition:
            return
        self._forget(topic, partition)
        if not self._is_stopped:
            self._ports.spawn(self._look_again(partition.id))

    def _let_go(self, topic: Topic, partition: Partition, reason: str) -> None:
        self._forget(topic, partition)
        partition.resign(reason)

    def _forget(self, topic: Topic, partition: Partition) -> None:
        del topic.led[partition.id.index]
        for callback in self.on_lost:
            callback(partition)

    async def _look_again(self, partition: PartitionId) -> None:
        found = await self._read_head(partition)
        if found is not None:
            self.consider(partition, *found)

    async def _read_head(self, partition: PartitionId) -> tuple[Head, int] | None:
        """None if there is none any more."""
        while not self._is_stopped:
            try:
                kv = await self._metadata.get(keys.head_key(partition))
            except (Unavailable, Unknown):
                await asyncio.sleep(RETRY_S)
                continue
            return (keys.decode_head(kv.value), kv.version) if kv is not None else None
        return None
