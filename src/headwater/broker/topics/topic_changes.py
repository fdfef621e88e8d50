"""Topics that this node creates, deletes, extends or configures, one change at a time.

Each change is a transaction of the metadata store, on condition that no other node has changed the topic meanwhile, and
is taken into the catalog at once. It returns when new partitions are led and the other nodes know of the change, or
have not answered in time.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.broker.log.node_ports import NodePorts
from headwater.broker.settings.carried_through import carried_through
from headwater.broker.settings.topic_config import TopicConfig, canonical
from headwater.broker.settings.topic_name import check_no_collision, check_topic_name
from headwater.broker.topics.topic import Topic
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import Condition, Del, Is, MetaStore, Operation, Put, Unavailable, Unknown
from headwater.model.cluster import AUDIT_TOPIC
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import FIRST_OFFSET, LeaderEpoch, NodeId, PartitionId, TopicId
from headwater.model.segments import Head
from headwater.replication.effects import Rules

if TYPE_CHECKING:
    from headwater.broker.topics.catalog import Catalog

OPERATIONS_PER_TXN = 96
MAX_PARTITIONS = 100_000
LED_WITHIN_S = 10.0
"""How long a change waits for its new partitions to be led. They will be, even if the change does not wait."""
LOOK_EVERY_S = 0.02
MAX_TRIES = 5
"""To change what others change at the same time."""
WARN_EVERY_S = 60.0

Announce: TypeAlias = Callable[[TopicId], Coroutine[Any, Any, None]]
"""Returns when what was just written of a topic is in force on all nodes that answer soon."""
Spread: TypeAlias = Callable[[int], Sequence[NodeId]]
"""So many leaders for new partitions, spread over the brokers that are alive."""


class TopicChanges:
    def __init__(
        self,
        catalog: "Catalog",
        metadata: MetaStore,
        ports: NodePorts,
        spread: Spread,
        internal_replication: Rules,
        announce: Announce | None,
    ) -> None:
        """`internal_replication`: how many replicas internal topics should have. `announce` tells the other nodes of a
        change; a standalone node has none."""
        self._catalog = catalog
        self._metadata = metadata
        self._ports = ports
        self._spread = spread
        self._internal_replication = internal_replication
        self._announce = announce
        self._lock = asyncio.Lock()
        """One change of topics by this node at a time."""
        self._warned_at_s: float | None = None

    @carried_through
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
        if not is_internal:
            _check_not_audit(name)
        config = TopicConfig.parse(overrides, self._catalog.defaults)
        async with self._lock:
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
                await remove_keys(self._metadata, [keys.head_key(partition) for partition, _, _ in versions])
                raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name} was just created by another request.")
            self._catalog.put(stored, txn.versions[key])
        topic = self._catalog.topic_by_id(stored.topic_id)
        await self._lead_new(topic, versions)
        return topic

    async def create_internal(self, name: str, partitions: int, overrides: Mapping[str, str]) -> None:
        """A topic of the cluster's own. It wants as many replicas as it may ever get, and takes what there is: more are
        added when there are more stores."""
        replication = self._internal_replication
        config = {**overrides, "min.insync.replicas": str(replication.min_insync)}
        await self.create(name, partitions, config, replication_factor=replication.replication_factor, is_internal=True)

    @carried_through
    async def delete(self, topic: Topic) -> None:
        async with self._lock:
            await self._catalog.reread([topic.topic_id])
            self._check_known(topic)
            key, name_key = keys.topic_key(topic.topic_id), keys.name_key(topic.name)
            txn = await self._metadata.txn([Is(key, topic.version)], [Del(key), Del(name_key)])
            if not txn.ok:
                raise _changed_meanwhile(topic.name)
            led = list(topic.partitions())
            self._catalog.removed(topic.topic_id)
        leftovers: list[str] = []
        for index in range(topic.partition_count):
            partition_id = PartitionId(topic.topic_id, index)
            leftovers.append(keys.head_key(partition_id))
            leftovers += [keys.reassignment_key(partition_id)] * (index in topic.placed)
            if index in topic.led:
                leftovers += [keys.sealed_key(partition_id, each.id) for each in topic.led[index].register.chain.sealed]
            else:
                leftovers += [kv.key for kv in await self._metadata.list(keys.sealed_prefix(partition_id))]
        await remove_keys(self._metadata, leftovers)
        await asyncio.gather(*(partition.close() for partition in led))
        await self._delete_replicas(topic.topic_id)
        await self._announce_change(topic)

    @carried_through
    async def add_partitions(self, topic: Topic, total: int, *, validate_only: bool = False) -> None:
        async with self._lock:
            await self._catalog.reread([topic.topic_id])
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

    @carried_through
    async def alter_config(
        self, topic: Topic, change: Callable[[dict[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Change a topic's overrides; they hold from now on. `change` makes the new ones of the old: no other
        change comes in between."""
        _check_not_audit(topic.name)
        async with self._lock:
            for _ in range(MAX_TRIES):
                named = canonical(change(dict(topic.overrides)))
                TopicConfig.parse(named, self._catalog.defaults)
                if validate_only:
                    return
                stored = keys.TopicRecord(
                    topic.topic_id, topic.name, topic.partition_count, topic.replication_factor, named
                )
                if await self._store_topic(topic, stored):
                    break
                await self._catalog.reread([topic.topic_id])  # another node was faster, and its change is to stay
                self._check_known(topic)
            else:
                raise _changed_meanwhile(topic.name)
        await self._announce_change(topic)

    # In order

    async def _name_is_free(self, name: str) -> list[Condition]:
        """What must hold for a topic to get the name. Another node may have given it away a moment ago, so a name that
        is there counts as free only if its topic is not."""
        key = keys.name_key(name)
        taken = await self._metadata.get(key)
        if taken is None:
            return [Is(key, 0)]
        return [Is(key, taken.version), Is(keys.topic_key(uuid.UUID(hex=taken.value.decode())), 0)]

    def _check_new(self, name: str, partitions: int) -> None:
        if self._catalog.find(name) is not None:
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name} exists already.")
        check_no_collision(name, (topic.name for topic in self._catalog))
        if partitions < 1:
            raise RequestError(ErrorCode.INVALID_PARTITIONS, f"A topic has at least one partition, not {partitions}.")
        self._check_room(partitions)

    def _check_room(self, more: int) -> None:
        if self._catalog.partition_count + more > MAX_PARTITIONS:
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
        """At most once a minute: clients retry, and many do not show the reason of the refusal."""
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
            (PartitionId(topic.topic_id, first + place), Head(leader, LeaderEpoch(0), FIRST_OFFSET, None))
            for place, leader in enumerate(leaders)
        ]
        put: list[tuple[PartitionId, Head, int]] = []
        for start in range(0, len(heads), OPERATIONS_PER_TXN):
            step = heads[start : start + OPERATIONS_PER_TXN]
            operations = [Put(keys.head_key(id_), keys.encode(head)) for id_, head in step]
            versions = await _txn(self._metadata, operations, [Is(keys.topic_key(topic.topic_id), version)])
            if not versions:
                raise _changed_meanwhile(topic.name)
            put += [(id_, head, versions[keys.head_key(id_)]) for id_, head in step]
        return put

    async def _lead_new(self, topic: Topic, heads: Sequence[tuple[PartitionId, Head, int]]) -> None:
        """Wait until every new partition has a leader that can be written to."""
        for partition, head, version in heads:
            self._catalog.leadership.consider(partition, head, version)
        await self._catalog.leadership.wait_for_takeovers(partition for partition, _, _ in heads)
        loop = asyncio.get_running_loop()
        until = loop.time() + LED_WITHIN_S
        while loop.time() < until and self._catalog.find_id(topic.topic_id) is topic:
            found = [topic.head(partition.index) for partition, _, _ in heads]
            if all(head is not None and head.open is not None for head in found):
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _store_topic(self, topic: Topic, stored: keys.TopicRecord) -> bool:
        """False if another node has changed the topic since it was read."""
        key = keys.topic_key(topic.topic_id)
        txn = await self._metadata.txn([Is(key, topic.version)], [Put(key, keys.encode(stored))])
        if txn.ok:
            self._catalog.put(stored, txn.versions[key])
        return txn.ok

    async def _announce_change(self, topic: Topic) -> None:
        if self._announce is not None:
            await self._announce(topic.topic_id)

    def _check_known(self, topic: Topic) -> None:
        if self._catalog.find_id(topic.topic_id) is not topic:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic.name} was deleted already.")

    async def _delete_replicas(self, topic_id: TopicId) -> None:
        """From the store of this node, at once. Other stores find out by themselves."""
        store = self._ports.store
        for state in store.replicas() if store is not None else ():
            if store is not None and state.partition.startswith(topic_id.hex):
                await store.delete(state.segment, state.instance)


async def remove_keys(metadata: MetaStore, names: Iterable[str]) -> None:
    pending = list(names)
    for start in range(0, len(pending), OPERATIONS_PER_TXN):
        await _txn(metadata, [Del(key) for key in pending[start : start + OPERATIONS_PER_TXN]])


async def _txn(
    metadata: MetaStore, operations: Sequence[Operation], conditions: Sequence[Condition] = ()
) -> dict[str, int]:
    """The new versions; none if a condition did not hold."""
    try:
        return (await metadata.txn(conditions, operations)).versions
    except (Unavailable, Unknown) as error:
        raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata could not be changed: {error}") from error


def _check_not_audit(name: str) -> None:
    """What the audit says, and how long, is not for those whom it is about. Raises RequestError."""
    if name == AUDIT_TOPIC:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"Topic {name} is the audit's: nodes create it, and its settings stay as they are.",
        )


def _changed_meanwhile(name: str) -> RequestError:
    return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} changed meanwhile.")
