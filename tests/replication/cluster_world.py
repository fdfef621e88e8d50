"""A small cluster as the controller sees it, and what becomes of it when its actions are carried out."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from headwater.model.cluster import Node, NodeStore, Reassignment, Role, StoreRecord, StoreState, TopicRecord
from headwater.model.ids import NodeId, PartitionId, SegmentId, StoreId
from headwater.model.segments import Head, OpenSegment, SealedSegment
from headwater.replication.actions import Action, Copy, FinishReassignment, MoveLeader
from headwater.replication.cluster_view import ClusterView, SealedKey, Versioned

GB = 1 << 30
TOPIC = uuid.UUID(int=1)


def store_of(node: NodeId) -> StoreId:
    return StoreId(f"{node:032x}")


def segment_name(number: int) -> SegmentId:
    return SegmentId(f"{number:032x}")


def partition(index: int = 0, topic: uuid.UUID = TOPIC) -> PartitionId:
    return PartitionId(topic, index)


def stores(*nodes: NodeId) -> tuple[StoreId, ...]:
    return tuple(map(store_of, nodes))


T = TypeVar("T")


@dataclass
class World:
    """Each node has one store."""

    nodes: dict[NodeId, Node] = field(default_factory=dict)
    records: dict[StoreId, StoreRecord] = field(default_factory=dict)
    topics: dict[uuid.UUID, TopicRecord] = field(default_factory=dict)
    heads: dict[PartitionId, Versioned[Head]] = field(default_factory=dict)
    sealed: dict[SealedKey, Versioned[SealedSegment]] = field(default_factory=dict)
    reassignments: dict[PartitionId, Versioned[Reassignment]] = field(default_factory=dict)
    suspected: frozenset[NodeId] = frozenset()
    revision: int = 0

    @classmethod
    def of(cls, *nodes: NodeId, replication_factor: int = 3, partitions: int = 0) -> "World":
        world = cls()
        world.topics[TOPIC] = TopicRecord(TOPIC, "t", partitions, replication_factor)
        for node in nodes:
            world.join(node)
        return world

    def join(self, node: NodeId, rack: str | None = None, **facts: object) -> None:
        store = NodeStore(store_of(node), 50 * GB, 100 * GB)
        made = Node(
            node_id=node, epoch=1, host="h", port=node, peer_host="h", peer_port=node, rack=rack, stores=(store,)
        )
        self.nodes[node] = replace(made, **facts)  # type: ignore[arg-type]
        self.records.setdefault(store_of(node), StoreRecord(store_of(node), node))

    def leave(self, node: NodeId) -> None:
        del self.nodes[node]

    def mark(self, node: NodeId, state: StoreState) -> None:
        self.records[store_of(node)] = replace(self.records[store_of(node)], state=state)

    def lead(
        self, index: int, node: NodeId, *, on: Iterable[NodeId] = (), epoch: int = 1, topic: uuid.UUID = TOPIC
    ) -> PartitionId:
        """A partition whose leader has published its segment."""
        segment = OpenSegment(segment_name(10_000 + index), 0, epoch, 0, stores(*(on or (node,))))
        self.heads[partition(index, topic)] = self.written(Head(node, epoch, 0, segment))
        return partition(index, topic)

    def seal(
        self,
        number: int,
        *nodes: NodeId,
        adding: Iterable[NodeId] = (),
        size_bytes: int = 1000,
        topic: uuid.UUID = TOPIC,
    ) -> SealedKey:
        key = (partition(0, topic), segment_name(number))
        segment = SealedSegment(
            id=key[1],
            base=number,
            end=number + 1,
            epoch=1,
            epoch_start=number,
            replicas=stores(*nodes),
            size_bytes=size_bytes,
            max_timestamp=0,
            crc32c=7,
            adding=stores(*adding),
        )
        self.sealed[key] = self.written(segment)
        return key

    def publish(self, partition_id: PartitionId, on: Iterable[NodeId] = ()) -> None:
        """The leader has recovered."""
        head = self.heads[partition_id].value
        self.lead(partition_id.index, head.leader, on=on, epoch=head.epoch, topic=partition_id.topic_id)

    def written(self, value: T) -> Versioned[T]:
        self.revision += 1
        return Versioned(value, self.revision)

    def view(self) -> ClusterView:
        return ClusterView(
            nodes=dict(self.nodes),
            stores=dict(self.records),
            topics=dict(self.topics),
            heads=dict(self.heads),
            sealed=dict(self.sealed),
            reassignments=dict(self.reassignments),
            suspected=self.suspected,
        )

    def carry_out(self, actions: Iterable[Action]) -> list[Copy]:
        """As a metadata store does, by comparing versions; return the copies, which are for stores to do."""
        copies = []
        for action in actions:
            match action:
                case Copy():
                    copies.append(action)
                case MoveLeader():
                    if self.heads[action.partition].version == action.version:
                        self.heads[action.partition] = self.written(action.new_head)
                case FinishReassignment():
                    if self.reassignments[action.partition].version == action.version:
                        self.reassignments[action.partition] = self.written(action.new_reassignment)
                case _:
                    key = (action.partition, action.sealed.id)
                    if self.sealed[key].version == action.version:
                        self.sealed[key] = self.written(action.new_sealed)
        return copies


def leaders(heads: Mapping[PartitionId, Versioned[Head]]) -> list[NodeId]:
    return [head.value.leader for _, head in sorted(heads.items(), key=lambda item: item[0])]


__all__ = ["GB", "TOPIC", "Role", "World", "leaders", "partition", "segment_name", "store_of", "stores"]
