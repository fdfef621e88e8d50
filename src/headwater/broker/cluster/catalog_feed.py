"""Tells the catalog, and the partitions that are led here, what the metadata says: now, and whenever it changes."""

from headwater.broker.cluster.cluster_nodes import ClusterNodes
from headwater.broker.cluster.open_replicas import OpenReplicas
from headwater.broker.cluster.watch import ClusterChange, ClusterWatch
from headwater.broker.topics.catalog import Catalog
from headwater.model.ids import PartitionId, StoreId, TopicId


class CatalogFeed:
    def __init__(
        self, watch: ClusterWatch, cluster_nodes: ClusterNodes, catalog: Catalog, open_replicas: OpenReplicas
    ) -> None:
        self._watch = watch
        self._cluster_nodes = cluster_nodes
        self._catalog = catalog
        self._open_replicas = open_replicas
        self._present = self._stores()
        watch.listen(self._changed)

    async def start(self) -> None:
        """Take in what the metadata says now, also of topics that were deleted since the catalog was loaded. Raises
        Unavailable, Unknown."""
        for topic_id in list(self._watch.topics_read.items):
            self._follow_topic(topic_id)
        unseen = [topic.topic_id for topic in self._catalog if topic.topic_id not in self._watch.topics_read.items]
        if unseen:  # deleted meanwhile, or so new that the watch has not seen them yet
            await self._watch.reread_topics(unseen)
            for topic_id in unseen:
                self._follow_topic(topic_id)

    def _changed(self, change: ClusterChange) -> None:
        if change.nodes or change.stores:
            self._stores_changed()
        for topic_id in change.topics:
            self._follow_topic(topic_id)
        for partition in change.reassignments:
            self._follow_placement(partition)
        for partition in change.heads:
            item = self._watch.heads.items.get(partition)
            if item is not None:
                self._catalog.put_head(partition, item.value, item.version)

    def _stores_changed(self) -> None:
        present = self._stores()
        gone, self._present = self._present - present, present
        for partition in self._catalog.partitions():
            for store in gone.intersection(partition.replicas):
                partition.store_lost(store)
        self._open_replicas.tend_all()

    def _stores(self) -> frozenset[StoreId]:
        """Those of the nodes that are alive."""
        return frozenset(store for node in self._cluster_nodes.alive() for store in node.store_ids)

    def _follow_topic(self, topic_id: TopicId) -> None:
        """A topic that is new to this node may have heads that were heard of before it."""
        item = self._watch.topics_read.items.get(topic_id)
        if item is None:
            self._catalog.removed(topic_id)
            return
        self._catalog.put(item.value, item.version)
        for index in range(item.value.partitions):
            partition = PartitionId(topic_id, index)
            if partition in self._watch.reassignments.items:
                self._follow_placement(partition)
            head = self._watch.heads.items.get(partition)
            if head is not None:
                self._catalog.put_head(partition, head.value, head.version)

    def _follow_placement(self, partition: PartitionId) -> None:
        item = self._watch.reassignments.items.get(partition)
        self._catalog.put_placement(partition, item.value if item is not None else None)
