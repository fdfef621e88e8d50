"""What one node knows of the whole cluster at one moment, with the versions it was read at.

It is put together from reads at different moments, so it may be wrong in any way that was once right. Decisions that
follow from it are written only by compare-and-set on the versions in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Generic, TypeVar

from headwater.model.cluster import Node, Reassignment, Role, StoreRecord, StoreState, TopicRecord
from headwater.model.ids import NodeId, PartitionId, SegmentId, StoreId, TopicId
from headwater.model.segments import Head, SealedSegment
from headwater.replication.placement import StoreInfo

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    value: T
    version: int


SealedKey = tuple[PartitionId, SegmentId]
THROTTLE_KEYS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Of a topic's configuration: KIP-73."""


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    """Nodes that have a session."""
    stores: Mapping[StoreId, StoreRecord] = field(default_factory=dict)
    topics: Mapping[TopicId, TopicRecord] = field(default_factory=dict)
    heads: Mapping[PartitionId, Versioned[Head]] = field(default_factory=dict)
    sealed: Mapping[SealedKey, Versioned[SealedSegment]] | None = None
    """None if they were not read: nothing is decided about them then."""
    reassignments: Mapping[PartitionId, Versioned[Reassignment]] = field(default_factory=dict)
    suspected: frozenset[NodeId] = frozenset()
    """They have a session, but do not answer."""

    @cached_property
    def store_infos(self) -> Mapping[StoreId, StoreInfo]:
        """Every store that is registered, and what its node says of it if that node is alive."""
        living = {store.store_id: (node, store) for node in self.nodes.values() for store in node.stores}
        infos = {}
        for store_id, record in self.stores.items():
            found = living.get(store_id)
            if found is None:
                infos[store_id] = StoreInfo(
                    store_id=store_id,
                    node_id=record.node_id,
                    rack=None,
                    free_bytes=0,
                    total_bytes=0,
                    state=record.state,
                    is_alive=False,
                )
            else:
                node, store = found
                is_alive = node.node_id not in self.suspected
                infos[store_id] = StoreInfo(
                    store_id=store_id,
                    node_id=node.node_id,
                    rack=node.rack,
                    free_bytes=store.free_bytes,
                    total_bytes=store.total_bytes,
                    state=record.state,
                    is_alive=is_alive,
                    in_doubt=store.in_doubt,
                )
        return infos

    @cached_property
    def brokers(self) -> Sequence[Node]:
        """Nodes that can lead, in the order of their ids."""
        return [node for _, node in sorted(self.nodes.items()) if self.can_lead(node.node_id)]

    def can_lead(self, node_id: NodeId) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and Role.BROKER in node.roles and node_id not in self.suspected

    def is_emptying(self, node_id: NodeId) -> bool:
        """The node should lead nothing: it is about to stop, or every store of it is being drained."""
        node = self.nodes[node_id]
        states = {self.stores[store].state for store in node.store_ids if store in self.stores}
        return node.is_leaving or states == {StoreState.DRAINING}

    def nodes_of(self, stores: Sequence[StoreId]) -> tuple[NodeId, ...]:
        """Where stores are, as far as that is known; each node once, in the order of the stores."""
        return tuple(dict.fromkeys(self.stores[store].node_id for store in stores if store in self.stores))

    def target_replica_count(self, partition: PartitionId) -> int:
        """As many as an administrator's reassignment names; else what the topic says."""
        reassignment = self.reassignments.get(partition)
        if reassignment is not None:
            return len(reassignment.value.nodes)
        return self.topics[partition.topic_id].replication_factor

    def is_throttled(self, partition: PartitionId) -> bool:
        """Whether an operator bounds how fast its segments are copied."""
        topic = self.topics.get(partition.topic_id)
        return topic is not None and any(topic.config.get(key) for key in THROTTLE_KEYS)

    def preferred_nodes(self, partition: PartitionId) -> frozenset[NodeId]:
        """Where new segments of a partition should go; empty if it does not matter."""
        reassignment = self.reassignments.get(partition)
        return frozenset(reassignment.value.nodes) if reassignment is not None else frozenset()

    def leaving_stores(self, partition: PartitionId) -> frozenset[StoreId]:
        """Which stores the open segment of a partition should leave: stores that are drained or lost, and, while a
        reassignment is under way, stores that it does not name."""
        leaving = {id_ for id_, record in self.stores.items() if record.state is not StoreState.ACTIVE}
        reassignment = self.reassignments.get(partition)
        if reassignment is not None and not reassignment.value.is_complete:
            targets = reassignment.value.nodes
            leaving |= {id_ for id_, record in self.stores.items() if record.node_id not in targets}
        return frozenset(leaving)


def is_recovering(head: Head) -> bool:
    """The leader of this epoch has not published a segment yet."""
    return head.open is None or head.open.epoch < head.epoch
