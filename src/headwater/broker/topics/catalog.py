"""The topics of the cluster, and the partitions that this node leads.

The metadata store is the truth; the catalog is its image in memory, which follows what others change and runs ahead
with what this node changes itself. A topic exists once its key does: its heads are written before, and removed after.
A new partition is a head that names a leader and no segment yet; the leader opens one.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from headwater.broker.log.node_ports import NodePorts
from headwater.broker.log.partition import Partition
from headwater.broker.settings.topic_config import BrokerDefaults, TopicConfig
from headwater.broker.topics.grouped_writes import GroupedWrites
from headwater.broker.topics.leadership import Leadership
from headwater.broker.topics.topic import Topic
from headwater.broker.topics.topic_changes import LED_WITHIN_S, Announce, Spread, TopicChanges, remove_keys
from headwater.broker.topics.topic_index import TopicIndex
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import KV, MetaStore, Unavailable, Unknown
from headwater.model.cluster import Reassignment
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId, SegmentId, TopicId
from headwater.model.replica import ReplicaState
from headwater.model.segments import Head, SealedSegment
from headwater.replication.effects import Rules

MANY_PARTITIONS = 1_000
"""So many take about a second to take over: the log says how far it is."""
REREAD_S = 2.0
"""How long a question waits for what the metadata says, before it is answered by what is known."""

Reread: TypeAlias = Callable[[Sequence[TopicId]], Coroutine[Any, Any, None]]
"""Take in what the metadata says of these topics now. Raises Unavailable, Unknown."""


class Catalog:
    def __init__(
        self,
        metadata: MetaStore,
        ports: NodePorts,
        defaults: BrokerDefaults,
        spread: Spread,
        internal_replication: Rules = Rules(),
        *,
        known: TopicIndex | None = None,
        reread: Reread | None = None,
        announce: Announce | None = None,
        on_removed: Iterable[Callable[[Topic], None]] = (),
    ) -> None:
        """`known` is the table to fill, if other parts look topics up in it. `reread` and `announce` are None on a
        standalone node."""
        self._known = known if known is not None else TopicIndex()
        self._metadata = metadata
        self._ports = ports
        self.defaults = defaults
        self._by_name, self._by_id = self._known.by_name, self._known.by_id
        self.leadership = Leadership(ports, metadata, GroupedWrites(metadata, ports.spawn), self._known)
        self.changes = TopicChanges(self, metadata, ports, spread, internal_replication, announce)
        self.on_change: list[Callable[[str], None]] = []
        """Callbacks for each topic that was created, extended, configured or deleted, with its name."""
        self.on_removed: list[Callable[[Topic], None]] = list(on_removed)
        """Callbacks for each topic that was deleted."""
        self._reread = reread

    # Looking up

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def find_id(self, topic_id: TopicId) -> Topic | None:
        return self._by_id.get(topic_id)

    def topic(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} does not exist.")
        return topic

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, f"No topic has the id {topic_id}.")
        return topic

    def resolve(self, name: str | None, topic_id: TopicId | None) -> Topic:
        """By name where there is one, else by id."""
        return self.topic(name) if name is not None else self.topic_by_id(topic_id or uuid.UUID(int=0))

    async def is_deleted(self, topic_id: TopicId) -> bool:
        """Whether a topic that is not known here is no more, by the metadata's word: this node may be behind. Raises
        RequestError if that cannot be said now."""
        return topic_id not in self._by_id and await self._is_gone(keys.topic_key(topic_id))

    async def is_name_free(self, name: str) -> bool:
        """As `is_deleted`, of whatever topic has the name."""
        return name not in self._by_name and await self._is_gone(keys.name_key(name))

    async def _is_gone(self, key: str) -> bool:
        try:
            return await self._metadata.get(key) is None
        except (Unavailable, Unknown) as error:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The metadata cannot be read: {error}") from error

    def partitions(self) -> Iterator[Partition]:
        """All that are led here."""
        return self._known.partitions()

    @property
    def partition_count(self) -> int:
        """Of the whole cluster."""
        return sum(topic.partition_count for topic in self._by_name.values())

    # Starting, and following what others change

    async def load(self, *, is_alone: bool) -> None:
        """Read all topics, and take over the partitions that are this node's. A node that is alone waits until it leads
        all of them, and removes what crashes and half-done changes left behind; among others it starts with what can
        be had."""
        inventory = self._ports.store.replicas() if self._ports.store is not None else []
        topics = await self._metadata.list(keys.TOPICS)
        heads = await self._metadata.list(keys.HEADS)
        sealed = _by_partition(await self._metadata.list(keys.SEALED))
        for kv in topics:
            self.put(keys.decode_topic(kv.value), kv.version)
        led = [(PartitionId.parse(kv.key.removeprefix(keys.HEADS)), kv) for kv in heads]
        if len(led) >= MANY_PARTITIONS:
            log_event("taking_over", partitions=len(led))
        for partition, kv in sorted(led, key=lambda entry: entry[0]):
            self.leadership.consider(partition, keys.decode_head(kv.value), kv.version, sealed.get(partition, {}))
        if is_alone:
            for partition, kv in led:
                topic = self._by_id.get(partition.topic_id)
                if topic is None or not topic.has(partition.index):
                    segments = sealed.get(partition, {})
                    await remove_keys(
                        self._metadata, [kv.key, *(keys.sealed_key(partition, segment) for segment in segments)]
                    )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if is_alone else LED_WITHIN_S):
                await self.leadership.wait_for_takeovers()
        if is_alone:
            await self._delete_orphans(inventory)
        self._ports.spawn(self._measure_segments())

    def put(self, stored: keys.TopicRecord, version: int) -> None:
        """What the metadata says of a topic."""
        known = self._by_id.get(stored.topic_id)
        if known is not None and known.version == version:
            return
        config = TopicConfig.stored(stored.config, self.defaults)
        if known is None:
            topic = Topic(
                topic_id=stored.topic_id,
                name=stored.name,
                overrides=stored.config,
                config=config,
                version=version,
                partition_count=stored.partitions,
                replication_factor=stored.replication_factor,
            )
            self._by_name[topic.name] = topic
            self._by_id[topic.topic_id] = topic
        else:
            known.version = version
            known.replication_factor = stored.replication_factor
            known.partition_count = stored.partitions
            self._configure(known, dict(stored.config), config)
        self._changed(stored.name)

    def default_to(self, defaults: BrokerDefaults) -> None:
        """The broker's defaults for topics are others from now on."""
        self.defaults = defaults
        for topic in self:
            config = TopicConfig.stored(topic.overrides, defaults)
            if config != topic.config:
                self._configure(topic, topic.overrides, config)

    def put_head(self, partition: PartitionId, head: Head, version: int) -> None:
        """What the metadata says of a partition."""
        self.leadership.consider(partition, head, version)

    def put_placement(self, partition: PartitionId, reassignment: Reassignment | None) -> None:
        """The nodes that an administrator placed a partition on; None, or no nodes, if it may lie anywhere."""
        topic = self._by_id.get(partition.topic_id)
        if topic is None:
            return
        if reassignment is not None and reassignment.nodes:
            topic.placed[partition.index] = reassignment
        else:
            topic.placed.pop(partition.index, None)
        led = topic.led.get(partition.index)
        if led is not None:
            led.configure(topic.config, topic.rules(partition.index))

    def removed(self, topic_id: TopicId) -> None:
        """The topic is not in the metadata any more."""
        topic = self._by_id.pop(topic_id, None)
        if topic is None:
            return
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        self._changed(topic.name)
        for callback in self.on_removed:
            callback(topic)
        for partition in topic.partitions():
            self._ports.spawn(partition.close())

    async def _delete_orphans(self, inventory: Sequence[ReplicaState]) -> None:
        """Replicas that no head and no sealed segment names: of segments that a crash or a failed write kept from being
        published, and of what was being deleted. The inventory was taken first, so that what was created meanwhile is
        not in it (docs/replication.md, 10); what the takeovers replaced is gone already."""
        store = self._ports.store
        assert store is not None, "who is alone has a store"
        if any(index not in topic.led for topic in self for index in range(topic.partition_count)):
            return  # a takeover failed, and the segments of its partition are not known
        known = {segment.id for partition in self.partitions() for segment in partition.register.chain}
        for state in inventory:
            if state.segment not in known and store.replica(state.segment) is not None:
                log_event(
                    "orphan_deleted", segment=state.segment, partition=state.partition, size_bytes=state.size_bytes
                )
                await store.delete(state.segment, state.instance)

    async def _measure_segments(self) -> None:
        """Have the stores flush and measure what was sealed without it: by the start, or before a crash. One at a
        time, because no request waits for it."""
        for partition in self.partitions():
            for segment in partition.register.chain.sealed:
                if segment.crc32c is None and not partition.is_over:
                    await partition.measure(segment)

    async def reread(self, topic_ids: Sequence[TopicId]) -> None:
        """What was acknowledged on any node before this call is known here when it returns. Raises Unavailable,
        Unknown."""
        if self._reread is not None:
            await self._reread(topic_ids)

    async def reread_if_possible(self, topics: Iterable[Topic]) -> None:
        """As `reread`; what is known holds if the metadata is away."""
        if self._reread is not None:
            with contextlib.suppress(Unavailable, Unknown, TimeoutError):
                async with asyncio.timeout(REREAD_S):
                    await self._reread([topic.topic_id for topic in topics])

    # In order

    def _configure(self, topic: Topic, overrides: dict[str, str], config: TopicConfig) -> None:
        topic.overrides = overrides
        topic.config = config
        for partition in topic.partitions():
            partition.configure(config, topic.rules(partition.id.index))

    def _changed(self, name: str) -> None:
        for callback in self.on_change:
            callback(name)


def _by_partition(items: Iterable[KV]) -> dict[PartitionId, dict[SegmentId, tuple[SealedSegment, int]]]:
    found: dict[PartitionId, dict[SegmentId, tuple[SealedSegment, int]]] = {}
    for kv in items:
        name, _, _ = kv.key.removeprefix(keys.SEALED).partition("/")
        segment = keys.decode_sealed(kv.value)
        found.setdefault(PartitionId.parse(name), {})[segment.id] = (segment, kv.version)
    return found
