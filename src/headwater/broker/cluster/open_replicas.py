"""Sees to it that the open segments led here lie on as many stores as they should, and on the right ones.

Every change (a store comes, is drained, a partition is reassigned) is looked at at once; and everything is looked at
again from time to time, because a store that has just failed is not trusted for some seconds, and no event marks the
end of that.
"""

import asyncio
from typing import Final

from headwater.broker.cluster.cluster_nodes import ClusterNodes
from headwater.broker.log.partition import Partition
from headwater.broker.topics.catalog import Catalog
from headwater.model.ids import StoreId

LOOK_EVERY_S: Final = 1.0
AT_ONCE: Final = 500
"""Partitions that are looked at before others get their turn."""


class OpenReplicas:
    def __init__(self, catalog: Catalog, cluster_nodes: ClusterNodes) -> None:
        self._catalog = catalog
        self._cluster_nodes = cluster_nodes

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            leaving, stores = self._cluster_nodes.leaving(), self._cluster_nodes.store_count
            for count, partition in enumerate(list(self._catalog.partitions()), 1):
                self._tend(partition, leaving, stores)
                if count % AT_ONCE == 0:
                    await asyncio.sleep(0)

    def tend_all(self) -> None:
        leaving, stores = self._cluster_nodes.leaving(), self._cluster_nodes.store_count
        for partition in self._catalog.partitions():
            self._tend(partition, leaving, stores)

    def _tend(self, partition: Partition, leaving: frozenset[StoreId], stores: int) -> None:
        replicas = partition.replicas
        if partition.is_over:
            return
        wrong = leaving.intersection(replicas) | self._misplaced(partition)
        if wrong and len(wrong.intersection(partition.choose(partition.open_segment))) >= len(wrong):
            wrong = frozenset()  # a new segment would lie no better
        if wrong or len(replicas) < min(partition.rules.replication_factor, stores):
            partition.reconsider_replicas(wrong)

    def _misplaced(self, partition: Partition) -> frozenset[StoreId]:
        """Replicas that a reassignment moves elsewhere, until it is done."""
        topic = self._catalog.find_id(partition.id.topic_id)
        placed = topic.placed.get(partition.id.index) if topic is not None else None
        if placed is None or placed.is_complete:
            return frozenset()
        return frozenset(
            store for store in partition.replicas if self._cluster_nodes.node_of(store) not in placed.nodes
        )
