"""The topics of the cluster, and the partitions that this node leads.

The metadata store is the truth; the catalog is its image in memory, which follows what others change and runs ahead
with what this node changes itself. A topic exists once its key does: its heads are written before, and removed after.
A new partition is a head that names a leader and no segment yet; the leader opens one.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from headwater.broker.log.node_ports import NodePorts
from headwater.broker.log.partition import Partition
from headwater.broker.settings.carried_through import carried_through as _carried_through
from headwater.broker.settings.topic_config import BrokerDefaults, TopicConfig, canonical
from headwater.broker.settings.topic_name import check_no_collision, check_topic_name
from headwater.broker.topics.grouped_writes import GroupedWrites
from headwater.broker.topics.known_topics import KnownTopics
from headwater.broker.topics.leadership import Leadership
from headwater.broker.topics.topic import Topic
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import KV, Condition, Del, Is, MetaStore, Operation, Put, Unavailable, Unknown
from headwater.model.cluster import Reassignment
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId, PartitionId, SegmentId, TopicId
from headwater.model.replica import ReplicaState
from headwater.model.segments import Head, SealedSegment
from headwater.replication.effects import Rules

OPERATIONS_PER_TXN = 96
MANY_PARTITIONS = 1_000
"""So many take about a second to take over: the log says how far it is."""
MAX_PARTITIONS = 100_000
LED_WITHIN_S = 10.0
"""How long a change waits for its new partitions to be led. They will be, even if nobody waits."""
LOOK_EVERY_S = 0.02
REREAD_S = 2.0
"""How long a question waits for what the metadata says, before it is answered by what is known."""
MAX_TRIES = 5
"""To change what others change at the same time."""
WARN_EVERY_S = 60.0

Reread: TypeAlias = Callable[[Sequence[TopicId]], Coroutine[Any, Any, None]]
"""Take in what the metadata says of these topics now. Raises Unavailable, Unknown."""
Announce: TypeAlias = Callable[[TopicId], Coroutine[Any, Any, None]]
"""Return when what was just written of a topic is in force on all nodes that answer soon."""

Spread: TypeAlias = Callable[[int], Sequence[NodeId]]
"""So many leaders for new partitions, spread over the brokers that are alive."""


class Catalog:
    def __init__(
        self,
        metadata: MetaStore,
        ports: NodePorts,
        defaults: BrokerDefaults,
        spread: Spread,
        internal_replication: Rules = Rules(),
        *,
        known: KnownTopics | None = None,
        reread: Reread | None = None,
        announce: Announce | None = None,
        on_removed: Iterable[Callable[[Topic], None]] = (),
    ) -> None:
        """`known` is the table to fill, if other parts look topics up in it. `reread` and `announce` are None on a
        standalone node."""
        self._known = known if known is not None else KnownTopics()
        self._metadata = metadata
        self._ports = ports
        self._defaults = defaults
        self._spread = spread
        self._by_name, self._by_id = self._known.by_name, self._known.by_id
        self.leadership = Leadership(ports, metadata, GroupedWrites(metadata, ports.spawn), self._known)
        self.internal_replication = internal_replication
        """How many replicas internal topics want."""
        self._changes = asyncio.Lock()
        """One change of topics by this node at a time."""
        self.on_change: list[Callable[[str], None]] = []
        """Told of each topic that came, grew or went, by its name."""
        self.on_removed: list[Callable[[Topic], None]] = list(on_removed)
        """Called with each topic that was removed."""
        self._reread = reread
        self._announce = announce
        self._warned_at_s: float | None = None

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
                    await self._remove([kv.key, *(keys.sealed_key(partition, segment) for segment in segments)])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if is_alone else LED_WITHIN_S):
                await self.leadership.settled()
        if is_alone:
            await self._delete_orphans(inventory)
        self._ports.spawn(self._measure_segments())

    def put(self, stored: keys.TopicRecord, version: int) -> None:
        """What the metadata says of a topic."""
        known = self._by_id.get(stored.topic_id)
        if known is not None and known.version == version:
            return
        config = TopicConfig.stored(stored.config, self._defaults)
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
        self._defaults = defaults
        for topic in self:
            config = TopicConfig.stored(topic.overrides, defaults)
            if config != topic.config:
                self._configure(topic, topic.overrides, config)

    def put_head(self, partition: PartitionId, head: Head, version: int) -> None:
        """What the metadata says of a partition."""
        self.leadership.consider(partition, head, version)

    def put_placement(self, partition: PartitionId, reassignment: Reassignment | None) -> None:
        """Where somebody wants the replicas of a partition; None, or one without nodes: it does not matter."""
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
        for told in self.on_removed:
            told(topic)
        for partition in topic.partitions():
            self._ports.spawn(partition.close())

    async def _delete_replicas(self, topic_id: TopicId) -> None:
        """From the store of this node, at once. Other stores find out by themselves."""
        store = self._ports.store
        for state in store.replicas() if store is not None else ():
            if store is not None and state.partition.startswith(topic_id.hex):
                await store.delete(state.segment, state.instance)

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
        time, because nobody waits for it."""
        for partition in self.partitions():
            for segment in partition.register.chain.sealed:
                if segment.crc32c is None and not partition.is_over:
                    await partition.measure(segment)

    # Changing

    @_carried_through
    async def create(
        self,
        name: str,
        partitions: int,
        overrides: Mapping[str, str | None],
        *,
        replication_factor: int = 1,
        leaders: Sequence[NodeId] | None = None,
        validate_only: bool = False,
        is_internal: bool = False,
    ) -> Topic | None:
        """A new topic, led. Raises RequestError with Kafka's codes; None when it was only to be validated."""
        check_topic_name(name)
        config = self._parse(overrides)
        async with self._changes:
            self._check_new(name, partitions)
            self._check_stores(config.min_insync_replicas if is_internal else replication_factor)
            if validate_only:
                return None
            stored = keys.TopicRecord(uuid.uuid4(), name, partitions, replication_factor, canonical(overrides))
            versions = await self._put_heads(stored, 0, 0, leaders or self._spread(partitions))
            key, name_key = keys.topic_key(stored.topic_id), keys.name_key(name)
            txn = await self._metadata.txn(
                [Is(key, 0), *await self._name_is_free(name)],
                [Put(key, keys.encode(stored)), Put(name_key, stored.topic_id.hex.encode())],
            )
            if not txn.ok:
                await self._remove(keys.head_key(partition) for partition, _, _ in versions)
                raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name} was just created by somebody else.")
            self.put(stored, txn.versions[key])
        topic = self._by_id[stored.topic_id]
        await self._lead_new(topic, versions)
        return topic

    async def create_internal(self, name: str, partitions: int, overrides: Mapping[str, str]) -> None:
        """A topic of the cluster's own. It wants as many replicas as it may ever get, and takes what there is: more are
        added when there are more stores."""
        replication = self.internal_replication
        config = {**overrides, "min.insync.replicas": str(replication.min_insync)}
        await self.create(name, partitions, config, replication_factor=replication.replication_factor, is_internal=True)

    @_carried_through
    async def delete(self, topic: Topic) -> None:
        async with self._changes:
            await self.reread([topic.topic_id])
            self._check_known(topic)
            key, name_key = keys.topic_key(topic.topic_id), keys.name_key(topic.name)
            txn = await self._metadata.txn([Is(key, topic.version)], [Del(key), Del(name_key)])
            if not txn.ok:
                raise _changed_meanwhile(topic.name)
            led = list(topic.partitions())
            self.removed(topic.topic_id)
        leftovers: list[str] = []
        for index in range(topic.partition_count):
            partition_id = PartitionId(topic.topic_id, index)
            leftovers.append(keys.head_key(partition_id))
            leftovers += [keys.reassignment_key(partition_id)] * (index in topic.placed)
            if index in topic.led:
                leftovers += [keys.sealed_key(partition_id, each.id) for each in topic.led[index].register.chain.sealed]
            else:
                leftovers += [kv.key for kv in await self._metadata.list(keys.sealed_prefix(partition_id))]
        await self._remove(leftovers)
        await asyncio.gather(*(partition.close() for partition in led))
        await self._delete_replicas(topic.topic_id)
        await self._announce_change(topic)

    @_carried_through
    async def add_partitions(self, topic: Topic, total: int, *, validate_only: bool = False) -> None:
        async with self._changes:
            await self.reread([topic.topic_id])
            current = topic.partition_count
            if total <= current:
                raise RequestError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"Topic {topic.name} has {current} partitions; {total} would not be more.",
                )
            self._check_room(total - current)
            if validate_only:
                return
            stored = keys.TopicRecord(
                topic.topic_id, topic.name, total, topic.replication_factor, dict(topic.overrides)
            )
            versions = await self._put_heads(stored, topic.version, current, self._spread(total - current))
            if not await self._store_topic(topic, stored):
                raise _changed_meanwhile(topic.name)
        await self._lead_new(topic, versions)
        await self._announce_change(topic)

    @_carried_through
    async def alter_config(
        self, topic: Topic, change: Callable[[dict[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Change a topic's overrides; they hold from now on. `change` makes the new ones of the old: nobody else's
        change comes in between."""
        async with self._changes:
            for _ in range(MAX_TRIES):
                named = canonical(change(dict(topic.overrides)))
                self._parse(named)
                if validate_only:
                    return
                stored = keys.TopicRecord(
                    topic.topic_id, topic.name, topic.partition_count, topic.replication_factor, named
                )
                if await self._store_topic(topic, stored):
                    break
                await self.reread([topic.topic_id])  # another node was faster, and its change is to stay
                self._check_known(topic)
            else:
                raise _changed_meanwhile(topic.name)
        await self._announce_change(topic)

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

    async def _name_is_free(self, name: str) -> list[Condition]:
        """What must hold for a topic to get the name. Another node may have given it away a moment ago, so a name that
        is there counts as free only if its topic is not."""
        key = keys.name_key(name)
        taken = await self._metadata.get(key)
        if taken is None:
            return [Is(key, 0)]
        return [Is(key, taken.version), Is(keys.topic_key(uuid.UUID(hex=taken.value.decode())), 0)]

    def _parse(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        return TopicConfig.parse(overrides, self._defaults)

    def _configure(self, topic: Topic, overrides: dict[str, str], config: TopicConfig) -> None:
        topic.overrides = overrides
        topic.config = config
        for partition in topic.partitions():
            partition.configure(config, topic.rules(partition.id.index))

    def _changed(self, name: str) -> None:
        for told in self.on_change:
            told(name)

    def _check_new(self, name: str, partitions: int) -> None:
        if name in self._by_name:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name} exists already.")
        check_no_collision(name, self._by_name)
        if partitions < 1:
            raise RequestError(ErrorCode.INVALID_PARTITIONS, f"A topic has at least one partition, not {partitions}.")
        self._check_room(partitions)

    def _check_room(self, more: int) -> None:
        if self.partition_count + more > MAX_PARTITIONS:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"{more} more partitions would be over the limit of {MAX_PARTITIONS} for one cluster.",
            )

    def _check_stores(self, replication_factor: int) -> None:
        """Raises RequestError if there are not enough stores with room."""
        if replication_factor < 1:
            raise RequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"A replication factor is at least 1, not {replication_factor}."
            )
        found = len(self._ports.choose(replication_factor, frozenset(), self._ports.new_segment_id()))
        if found == 0:
            reason = "No store has room for a new segment: make room on a disk, or add a store."
            self._warn_of_full_stores(reason)
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        if found < replication_factor:
            raise RequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor {replication_factor} needs more stores than the {found} that can take segments.",
            )

    def _warn_of_full_stores(self, reason: str) -> None:
        """Clients ask again and again, and many show nobody why."""
        now_s = self._ports.clock.monotonic()
        if self._warned_at_s is None or now_s - self._warned_at_s >= WARN_EVERY_S:
            self._warned_at_s = now_s
            log_event("no_store_has_room", logging.WARNING, reason=reason)

    async def _put_heads(
        self, topic: keys.TopicRecord, version: int, first: int, leaders: Sequence[NodeId]
    ) -> list[tuple[PartitionId, Head, int]]:
        """Only while the topic has this version: partitions that another node has added meanwhile have heads that
        tell where their records are."""
        heads = [
            (PartitionId(topic.topic_id, first + place), Head(leader, 0, 0, None))
            for place, leader in enumerate(leaders)
        ]
        put: list[tuple[PartitionId, Head, int]] = []
        for start in range(0, len(heads), OPERATIONS_PER_TXN):
            step = heads[start : start + OPERATIONS_PER_TXN]
            operations = [Put(keys.head_key(id_), keys.encode(head)) for id_, head in step]
            versions = await self._txn(operations, [Is(keys.topic_key(topic.topic_id), version)])
            if not versions:
                raise _changed_meanwhile(topic.name)
            put += [(id_, head, versions[keys.head_key(id_)]) for id_, head in step]
        return put

    async def _lead_new(self, topic: Topic, heads: Sequence[tuple[PartitionId, Head, int]]) -> None:
        """Wait until every new partition has a leader that can be written to."""
        for partition, head, version in heads:
            self.leadership.consider(partition, head, version)
        await self.leadership.settled(partition for partition, _, _ in heads)
        loop = asyncio.get_running_loop()
        until = loop.time() + LED_WITHIN_S
        while loop.time() < until and self._by_id.get(topic.topic_id) is topic:
            found = [topic.head(partition.index) for partition, _, _ in heads]
            if all(head is not None and head.open is not None for head in found):
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _store_topic(self, topic: Topic, stored: keys.TopicRecord) -> bool:
        """False if somebody else has changed it since it was read."""
        key = keys.topic_key(topic.topic_id)
        txn = await self._metadata.txn([Is(key, topic.version)], [Put(key, keys.encode(stored))])
        if txn.ok:
            self.put(stored, txn.versions[key])
        return txn.ok

    async def _announce_change(self, topic: Topic) -> None:
        if self._announce is not None:
            await self._announce(topic.topic_id)

    def _check_known(self, topic: Topic) -> None:
        if self._by_id.get(topic.topic_id) is not topic:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name} was deleted already.")

    async def _remove(self, names: Iterable[str]) -> None:
        pending = list(names)
        for start in range(0, len(pending), OPERATIONS_PER_TXN):
            await self._txn([Del(key) for key in pending[start : start + OPERATIONS_PER_TXN]])

    async def _txn(self, operations: Sequence[Operation], conditions: Sequence[Condition] = ()) -> dict[str, int]:
        """The new versions; none if a condition did not hold."""
        try:
            return (await self._metadata.txn(conditions, operations)).versions
        except (Unavailable, Unknown) as error:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata could not be changed: {error}") from error


def _changed_meanwhile(name: str) -> RequestError:
    return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} changed meanwhile.")


def _by_partition(items: Iterable[KV]) -> dict[PartitionId, dict[SegmentId, tuple[SealedSegment, int]]]:
    found: dict[PartitionId, dict[SegmentId, tuple[SealedSegment, int]]] = {}
    for kv in items:
        name, _, _ = kv.key.removeprefix(keys.SEALED).partition("/")
        segment = keys.decode_sealed(kv.value)
        found.setdefault(PartitionId.parse(name), {})[segment.id] = (segment, kv.version)
    return found
