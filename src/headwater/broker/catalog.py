"""The topics of the cluster and the partitions that this node leads.

The metadata store is the truth; the catalog is its image in memory. A topic exists once its key does:
its heads and segments are written before, and removed after.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.broker.partition import Environment, Partition
from headwater.broker.recovery import Takeover, recall_aborted, take_over
from headwater.broker.register import Register
from headwater.broker.topic_config import BrokerDefaults, TopicConfig, canonical
from headwater.broker.topic_name import check_no_collision, check_topic_name
from headwater.metadata import keys
from headwater.metadata.keys import Head, OpenSegment, SealedSegment
from headwater.metadata.store import KV, Del, Is, MetaStore, Operation, Put, Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId, SegmentId, TopicId
from headwater.model.replica import NoSpace
from headwater.transactions.partition_transactions import PartitionTransactions
from headwater.transport.facts import log_fact

OPERATIONS_PER_TXN = 96
PARTITIONS_AT_ONCE = 48
"""Taken over together: their changes fit into one transaction, two operations each."""
CHUNKS_AT_ONCE = 8
MANY_PARTITIONS = 1_000
"""So many take about a second to take over: the log says how far it is."""
MAX_PARTITIONS = 100_000
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(slots=True)
class Topic:
    topic_id: TopicId
    name: str
    overrides: dict[str, str]
    config: TopicConfig
    version: int
    """Of its metadata key."""
    partitions: list[Partition] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition:
        if not 0 <= index < len(self.partitions):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {self.name} has no partition {index}.")
        return self.partitions[index]


class Catalog:
    def __init__(self, metadata: MetaStore, environment: Environment, defaults: BrokerDefaults) -> None:
        self._metadata = metadata
        self._environment = environment
        self._defaults = defaults
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[TopicId, Topic] = {}
        self._changes = asyncio.Lock()
        """One change of topics at a time."""
        self.on_change: Callable[[str], None] = lambda name: None
        """Told of each topic that came, grew or went, by its name."""

    # Looking up

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._by_name.values()))

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

    def partitions(self) -> Iterator[Partition]:
        for topic in self:
            yield from topic.partitions

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self._by_name.values())

    # Starting

    async def load(self) -> None:
        """Read all topics and take over all their partitions; remove what half-done changes left behind."""
        topics = {
            topic.topic_id: (topic, kv.version)
            for kv in await self._metadata.list(keys.TOPICS)
            for topic in (keys.decode_topic(kv.value),)
        }
        heads = await self._metadata.list(keys.HEADS)
        sealed = _by_partition(await self._metadata.list(keys.SEALED))
        strays: list[str] = []
        led: list[tuple[PartitionId, Head, int]] = []
        for kv in heads:
            partition = PartitionId.parse(kv.key.removeprefix(keys.HEADS))
            known = topics.get(partition.topic_id)
            if known is None or partition.index >= known[0].partitions:
                strays += [kv.key, *(keys.sealed_key(partition, id_) for id_ in sealed.pop(partition, {}))]
            else:
                led.append((partition, keys.decode_head(kv.value), kv.version))
        await self._remove(strays)
        for topic, version in topics.values():
            self._add(Topic(topic.topic_id, topic.name, topic.config, self._parse(topic.config), version))
        await self._lead(led, sealed)
        await self.collect_garbage()
        self._environment.spawn(self._measure_segments())

    async def _lead(
        self,
        led: Sequence[tuple[PartitionId, Head, int]],
        sealed: dict[PartitionId, dict[SegmentId, tuple[SealedSegment, int]]],
    ) -> None:
        found: dict[PartitionId, Partition] = {}
        turns = asyncio.Semaphore(CHUNKS_AT_ONCE)

        async def lead_chunk(chunk: Sequence[tuple[PartitionId, Head, int]]) -> None:
            async with turns:
                takeovers = await asyncio.gather(*(self._take_over(*entry) for entry in chunk))
                txn = await self._metadata.txn(
                    [condition for takeover in takeovers for condition in takeover.conditions],
                    [operation for takeover in takeovers for operation in takeover.operations],
                )
            if not txn.ok:
                raise RuntimeError("another process changed the partitions of this node while it was starting")
            before = len(found)
            for takeover in takeovers:
                found[takeover.partition] = self._led(takeover, txn.versions, sealed.get(takeover.partition, {}))
            if before // MANY_PARTITIONS < len(found) // MANY_PARTITIONS:
                log_fact("taking_over", done=len(found), partitions=len(led))

        if len(led) >= MANY_PARTITIONS:
            log_fact("taking_over", partitions=len(led))
        async with asyncio.TaskGroup() as chunks:
            for start in range(0, len(led), PARTITIONS_AT_ONCE):
                chunks.create_task(lead_chunk(led[start : start + PARTITIONS_AT_ONCE]))
        for partition_id in sorted(found):
            self._by_id[partition_id.topic_id].partitions.append(found[partition_id])

    async def _take_over(self, partition: PartitionId, head: Head, version: int) -> Takeover:
        durability = self._by_id[partition.topic_id].config.durability
        return await take_over(self._environment, partition, head, version, durability)

    def _led(
        self,
        takeover: Takeover,
        versions: dict[str, int],
        sealed: dict[SegmentId, tuple[SealedSegment, int]],
    ) -> Partition:
        segments = dict(sealed)
        if takeover.sealed is not None:
            key = keys.sealed_key(takeover.partition, takeover.sealed.id)
            segments[takeover.sealed.id] = (takeover.sealed, versions[key])
        version = versions[keys.head_key(takeover.partition)]
        register = Register(self._metadata, takeover.partition, takeover.head, version, segments)
        recall_aborted(self._environment, takeover.transactions, register.chain, register.start)
        topic = self._by_id[takeover.partition.topic_id]
        config = topic.config
        return Partition(
            self._environment, takeover.partition, topic.name, register, config, takeover.transactions, takeover.end,
            config.durability, takeover.open_bytes,
        )  # fmt: skip

    async def _measure_segments(self) -> None:
        """Have the store flush and measure what was sealed without it: by the start, or before a crash. One at a time,
        because nobody waits for it."""
        for partition in self.partitions():
            for segment in partition.register.chain.sealed:
                if segment.crc32c is None and not partition.is_deleted:
                    await partition.measure(segment)

    async def collect_garbage(self) -> None:
        """Delete replicas that no head and no sealed segment names: leftovers of crashes and deletions. The inventory
        is taken first, so that what is created meanwhile is not in it (REPLICATION.md, 1.9)."""
        inventory = self._environment.store.replicas()
        known = {segment.id for partition in self.partitions() for segment in partition.register.chain}
        for state in inventory:
            if state.segment not in known:
                log_fact("orphan_deleted", segment=state.segment, partition=state.partition)
                await self._environment.store.delete(state.segment, state.instance)

    # Changing

    async def create(
        self, name: str, partitions: int, overrides: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Topic | None:
        """A new topic. Raises RequestError with Kafka's codes; None when it was only to be validated."""
        check_topic_name(name)
        config = self._parse(overrides)
        async with self._changes:
            self._check_new(name, partitions)
            if validate_only:
                return None
            topic = Topic(uuid.uuid4(), name, canonical(overrides), config, 0)
            heads = await self._open_partitions(topic, 0, partitions)
            value = keys.encode(keys.Topic(topic.topic_id, name, partitions, 1, topic.overrides))
            key, name_key = keys.topic_key(topic.topic_id), keys.name_key(name)
            taken = await self._metadata.get(name_key)
            txn = await self._metadata.txn(
                [Is(key, 0), Is(name_key, taken.version if taken is not None else 0)],
                [Put(key, value), Put(name_key, topic.topic_id.hex.encode())],
            )
            if not txn.ok:
                raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name} was just created by somebody else.")
            topic.version = txn.versions[key]
            topic.partitions = heads
            self._add(topic)
            self.on_change(name)
            return topic

    async def delete(self, topic: Topic) -> None:
        async with self._changes:
            if self._by_id.get(topic.topic_id) is not topic:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name} was deleted already.")
            key, name_key = keys.topic_key(topic.topic_id), keys.name_key(topic.name)
            txn = await self._metadata.txn([Is(key, topic.version)], [Del(key), Del(name_key)])
            if not txn.ok:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name} changed meanwhile.")
            del self._by_name[topic.name], self._by_id[topic.topic_id]
            self.on_change(topic.name)
        leftovers: list[str] = []
        for partition in topic.partitions:
            chain = partition.register.chain
            leftovers.append(keys.head_key(partition.id))
            leftovers += [keys.sealed_key(partition.id, segment.id) for segment in chain.sealed]
            await partition.close()
        await self._remove(leftovers)
        for partition in topic.partitions:
            for segment in partition.register.chain:
                await partition.delete_replica(segment.id)

    async def add_partitions(self, topic: Topic, total: int, *, validate_only: bool = False) -> None:
        async with self._changes:
            current = len(topic.partitions)
            if total <= current:
                raise RequestError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"Topic {topic.name} has {current} partitions; {total} would not be more.",
                )
            self._check_room(total - current)
            if validate_only:
                return
            added = await self._open_partitions(topic, current, total)
            await self._store_topic(topic, topic.overrides, total)
            topic.partitions = [*topic.partitions, *added]
            self.on_change(topic.name)

    async def alter_config(
        self, topic: Topic, change: Callable[[dict[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Change a topic's overrides; they hold from now on. `change` makes the new ones of the old: nobody else's
        change comes in between."""
        async with self._changes:
            named = canonical(change(dict(topic.overrides)))
            config = self._parse(named)
            if validate_only:
                return
            await self._store_topic(topic, named, len(topic.partitions))
            topic.overrides = named
            topic.config = config
            for partition in topic.partitions:
                partition.config = config

    # In order

    def _parse(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        return TopicConfig.parse(overrides, self._defaults)

    def _add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic

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
                f"{more} more partitions would be over the limit of {MAX_PARTITIONS} for one node.",
            )

    async def _open_partitions(self, topic: Topic, first: int, end: int) -> list[Partition]:
        environment = self._environment
        segments = [
            OpenSegment(environment.new_segment_id(), 0, 0, 0, (environment.store.store_id,)) for _ in range(first, end)
        ]
        ids = [PartitionId(topic.topic_id, index) for index in range(first, end)]
        header = PartitionTransactions().snapshot(0, 0)
        try:
            await asyncio.gather(
                *(
                    environment.store.create(segment.id, str(id_), 0, 0, header, topic.config.durability)
                    for id_, segment in zip(ids, segments, strict=True)
                )
            )
        except NoSpace as error:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk is full: {error}") from error
        heads = [Head(environment.node_id, 0, 0, segment) for segment in segments]
        versions = await self._put_heads(ids, heads)
        return [
            Partition(
                environment, id_, topic.name, Register(self._metadata, id_, head, version, {}), topic.config,
                PartitionTransactions(), 0, topic.config.durability, 0,
            )
            for id_, head, version in zip(ids, heads, versions, strict=True)
        ]  # fmt: skip

    async def _put_heads(self, ids: Sequence[PartitionId], heads: Sequence[Head]) -> list[int]:
        versions: list[int] = []
        for start in range(0, len(ids), OPERATIONS_PER_TXN):
            named = [(keys.head_key(id_), head) for id_, head in zip(ids[start:], heads[start:], strict=True)][
                :OPERATIONS_PER_TXN
            ]
            txn = await self._txn([Put(key, keys.encode(head)) for key, head in named])
            versions += [txn[key] for key, _ in named]
        return versions

    async def _store_topic(self, topic: Topic, overrides: dict[str, str], partitions: int) -> None:
        key = keys.topic_key(topic.topic_id)
        value = keys.encode(keys.Topic(topic.topic_id, topic.name, partitions, 1, dict(overrides)))
        txn = await self._metadata.txn([Is(key, topic.version)], [Put(key, value)])
        if not txn.ok:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name} changed meanwhile.")
        topic.version = txn.versions[key]

    async def _remove(self, names: Iterable[str]) -> None:
        pending = list(names)
        for start in range(0, len(pending), OPERATIONS_PER_TXN):
            await self._txn([Del(key) for key in pending[start : start + OPERATIONS_PER_TXN]])

    async def _txn(self, operations: Sequence[Operation]) -> dict[str, int]:
        try:
            return (await self._metadata.txn([], operations)).versions
        except (Unavailable, Unknown) as error:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata could not be changed: {error}") from error


def _by_partition(items: Iterable[KV]) -> dict[PartitionId, dict[SegmentId, tuple[SealedSegment, int]]]:
    found: dict[PartitionId, dict[SegmentId, tuple[SealedSegment, int]]] = {}
    for kv in items:
        name, _, _ = kv.key.removeprefix(keys.SEALED).partition("/")
        segment = keys.decode_sealed(kv.value)
        found.setdefault(PartitionId.parse(name), {})[segment.id] = (segment, kv.version)
    return found
