"""What this node knows of the cluster, from memory: nodes, stores, topics, heads, reassignments and the controller.

It is never quite current, so nothing is written because of it except by compare-and-set on the versions in it.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headwater.broker.settings.key_cache import KeyCache
from headwater.metadata import keys
from headwater.metadata.store import MetaStore
from headwater.model.cluster import ControllerRecord, Node, Reassignment, StoreRecord, TopicRecord
from headwater.model.ids import NodeId, PartitionId, StoreId, TopicId
from headwater.model.segments import Head, SealedSegment
from headwater.peers.messages import PeerAddress
from headwater.replication.cluster_view import ClusterView, SealedKey, Versioned


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """What is no longer as it was."""

    nodes: bool = False
    stores: bool = False
    topics: frozenset[TopicId] = frozenset()
    heads: frozenset[PartitionId] = frozenset()
    reassignments: frozenset[PartitionId] = frozenset()
    controller: bool = False


class ClusterWatch:
    def __init__(self, metadata: MetaStore) -> None:
        tell = self._tell
        self._nodes: KeyCache[str, Node] = KeyCache(metadata, keys.NODES, str, keys.decode_node, self._nodes_changed)
        self.stores_read: KeyCache[StoreId, StoreRecord] = KeyCache(
            metadata, keys.STORES, StoreId, keys.decode_store, lambda _: tell(ClusterChange(stores=True))
        )
        self.topics_read: KeyCache[TopicId, TopicRecord] = KeyCache(
            metadata, keys.TOPICS, _topic_id, keys.decode_topic, lambda names: tell(ClusterChange(topics=names))
        )
        self.heads: KeyCache[PartitionId, Head] = KeyCache(
            metadata, keys.HEADS, PartitionId.parse, keys.decode_head, lambda names: tell(ClusterChange(heads=names))
        )
        self.reassignments: KeyCache[PartitionId, Reassignment] = KeyCache(
            metadata, keys.REASSIGNMENTS, PartitionId.parse, keys.decode_reassignment,
            lambda names: tell(ClusterChange(reassignments=names)),
        )  # fmt: skip
        self._controllers: KeyCache[str, ControllerRecord] = KeyCache(
            metadata, keys.CONTROLLERS, str, keys.decode_controller, lambda _: tell(ClusterChange(controller=True))
        )
        self._living: dict[NodeId, Node] = {}
        self._addresses: dict[StoreId, PeerAddress] = {}
        self._listeners: list[Callable[[ClusterChange], None]] = []

    def listen(self, listener: Callable[[ClusterChange], None]) -> None:
        """It is called after each change. It must not raise, nor take long."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self._caches:
                group.create_task(cache.run())

    async def synced(self) -> None:
        """Return when everything was read once."""
        for cache in self._caches:
            await cache.synced.wait()

    async def reread_topics(self, topic_ids: Iterable[TopicId]) -> None:
        """What was written of these topics before this call is known when it returns. Raises Unavailable, Unknown."""
        await self.topics_read.reread(*map(keys.topic_key, topic_ids))

    @property
    def is_synced(self) -> bool:
        return all(cache.synced.is_set() for cache in self._caches)

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        """Those that are alive; of one that registered anew, the newer record."""
        return self._living

    @property
    def stores(self) -> Mapping[StoreId, StoreRecord]:
        return {store_id: item.value for store_id, item in self.stores_read.items.items()}

    @property
    def topics(self) -> Mapping[TopicId, TopicRecord]:
        return {topic_id: item.value for topic_id, item in self.topics_read.items.items()}

    @property
    def placements(self) -> Mapping[PartitionId, Versioned[Reassignment]]:
        """The reassignments that were not cancelled."""
        return {partition: item for partition, item in self.reassignments.items.items() if item.value.nodes}

    @property
    def controller(self) -> ControllerRecord | None:
        """The controller that was elected and is alive."""
        item = self._controllers.items.get(keys.CONTROLLER_LEADER.removeprefix(keys.CONTROLLERS))
        return item.value if item is not None else None

    def store_address(self, store_id: StoreId) -> PeerAddress | None:
        """Where a store is served now."""
        return self._addresses.get(store_id)

    def view(
        self,
        *,
        sealed: Mapping[SealedKey, Versioned[SealedSegment]] | None = None,
        suspected: frozenset[NodeId] = frozenset(),
    ) -> ClusterView:
        """For decisions that are made before the next await: heads and sealed segments are not copied."""
        return ClusterView(
            nodes=self.nodes,
            stores=self.stores,
            topics=self.topics,
            heads=self.heads.items,
            sealed=sealed,
            reassignments=self.placements,
            suspected=suspected,
        )

    @property
    def _caches(
        self,
    ) -> tuple[
        KeyCache[str, Node],
        KeyCache[StoreId, StoreRecord],
        KeyCache[TopicId, TopicRecord],
        KeyCache[PartitionId, Head],
        KeyCache[PartitionId, Reassignment],
        KeyCache[str, ControllerRecord],
    ]:
        return self._nodes, self.stores_read, self.topics_read, self.heads, self.reassignments, self._controllers

    def _nodes_changed(self, _names: frozenset[str]) -> None:
        by_age = sorted((item.value for item in self._nodes.items.values()), key=lambda node: node.epoch)
        self._living = {node.node_id: node for node in by_age}
        self._addresses = {
            store: PeerAddress(node.peer_host, node.peer_port) for node in by_age for store in node.store_ids
        }
        self._tell(ClusterChange(nodes=True))

    def _tell(self, change: ClusterChange) -> None:
        for listener in self._listeners:
            listener(change)


def _topic_id(text: str) -> TopicId:
    return uuid.UUID(hex=text)
