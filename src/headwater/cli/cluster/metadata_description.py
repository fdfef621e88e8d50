"""A cluster as its metadata describes it: also roles, stores, and partitions that are being taken over."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwater.cli.cluster.description import (
    NO_LEADER,
    ClusterDescription,
    NodeDescription,
    PartitionProblem,
    StoreDescription,
)
from headwater.cli.output import CommandFailed
from headwater.metadata import keys
from headwater.metadata.store import MetaStore
from headwater.model.cluster import NO_CONTROLLER, Node, StoreRecord, StoreState, TopicRecord
from headwater.model.ids import NodeId, PartitionId, StoreId, TopicId
from headwater.model.segments import Head, SealedSegment
from headwater.replication.cluster_view import is_recovering

BEING_TAKEN_OVER = "being taken over"


async def read_metadata(metadata: MetaStore) -> ClusterDescription:
    """Raises Unavailable, Unknown; CommandFailed if there is no cluster."""
    records = await _read_records(metadata)
    usage = _usage(records)
    problems = tuple(_problems(records))
    nodes = (*_nodes_up(records, usage), *_nodes_down(records, usage))
    return ClusterDescription(
        cluster_id=records.cluster_id,
        controller=records.controller,
        partitions=len(records.heads),
        nodes=tuple(sorted(nodes, key=lambda node: node.node)),
        problems=problems,
        stores=tuple(_stores(records, usage)),
        takeovers=sum(problem.problem == BEING_TAKEN_OVER for problem in problems),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Records:
    """What the metadata store holds of a cluster."""

    cluster_id: str
    controller: NodeId
    nodes: Mapping[NodeId, Node]
    stores: Sequence[StoreRecord]
    topics: Mapping[TopicId, TopicRecord]
    heads: Sequence[tuple[PartitionId, Head]]
    sealed: Sequence[SealedSegment]
    reassignments: Mapping[str, tuple[NodeId, ...]]
    """By key, the nodes that an administrator placed a partition on."""

    @property
    def living_stores(self) -> dict[StoreId, int]:
        """With the free bytes of each."""
        return {store.store_id: store.free_bytes for node in self.nodes.values() for store in node.stores}

    @property
    def owners(self) -> dict[StoreId, NodeId]:
        return {record.store_id: record.node_id for record in self.stores}


async def _read_records(metadata: MetaStore) -> _Records:
    cluster = await metadata.get(keys.CLUSTER)
    if cluster is None:
        raise CommandFailed(
            "There is no cluster in this metadata.", "Check the URL: the part after the address names it."
        )
    controller = await metadata.get(keys.CONTROLLER_LEADER)
    nodes = [keys.decode_node(kv.value) for kv in await metadata.list(keys.NODES)]
    stores = [keys.decode_store(kv.value) for kv in await metadata.list(keys.STORES)]
    topics = [keys.decode_topic(kv.value) for kv in await metadata.list(keys.TOPICS)]
    reassignments = {kv.key: keys.decode_reassignment(kv.value).nodes for kv in await metadata.list(keys.REASSIGNMENTS)}
    heads = [
        (PartitionId.parse(kv.key.removeprefix(keys.HEADS)), keys.decode_head(kv.value))
        for kv in await metadata.list(keys.HEADS)
    ]
    return _Records(
        cluster_id=keys.decode_cluster(cluster.value).cluster_id,
        controller=keys.decode_controller(controller.value).node if controller is not None else NO_CONTROLLER,
        nodes={node.node_id: node for node in nodes},
        stores=stores,
        topics={topic.topic_id: topic for topic in topics},
        heads=heads,
        sealed=[keys.decode_sealed(kv.value) for kv in await metadata.list(keys.SEALED)],
        reassignments=reassignments,
    )


@dataclass(frozen=True, slots=True)
class _Usage:
    leads: Counter[NodeId]
    in_sync: Counter[NodeId]
    open: Counter[StoreId]
    segments: Counter[StoreId]
    size_bytes: Counter[StoreId]


def _usage(records: _Records) -> _Usage:
    usage, owners = _Usage(Counter(), Counter(), Counter(), Counter(), Counter()), records.owners
    for partition, head in records.heads:
        if partition.topic_id in records.topics:
            usage.leads[head.leader] += 1
            usage.in_sync.update(_in_sync(head, owners))
            usage.open.update(_open_replicas(head))
    for segment in records.sealed:
        usage.segments.update(segment.replicas)
        usage.size_bytes.update(dict.fromkeys(segment.replicas, segment.size_bytes))
    return usage


def _open_replicas(head: Head) -> tuple[StoreId, ...]:
    return head.open.replicas if head.open is not None else ()


def _in_sync(head: Head, owners: Mapping[StoreId, NodeId]) -> tuple[NodeId, ...]:
    return tuple(dict.fromkeys(owners[store] for store in _open_replicas(head) if store in owners))


def _problems(records: _Records) -> Iterator[PartitionProblem]:
    living, owners = records.living_stores, records.owners
    able = sum(record.state is StoreState.ACTIVE for record in records.stores)
    for partition, head in records.heads:
        topic = records.topics.get(partition.topic_id)
        if topic is None:
            continue
        assigned = records.reassignments.get(keys.reassignment_key(partition)) or ()
        target = len(assigned) or min(topic.replication_factor, able)
        replicas = _open_replicas(head)
        leader = head.leader if head.leader in records.nodes else NO_LEADER
        if leader == NO_LEADER:
            problem = "no leader"
        elif is_recovering(head):
            problem = BEING_TAKEN_OVER
        elif len(replicas) < target or any(store not in living for store in replicas):
            problem = "under-replicated"
        else:
            continue
        yield PartitionProblem(topic.name, partition.index, leader, _in_sync(head, owners), target, problem)


def _nodes_up(records: _Records, usage: _Usage) -> Iterator[NodeDescription]:
    for number, node in records.nodes.items():
        yield NodeDescription(
            node=number,
            address=f"{node.host}:{node.port}",
            rack=node.rack,
            is_controller=number == records.controller,
            leads=usage.leads[number],
            in_sync=usage.in_sync[number],
            free_bytes=sum(store.free_bytes for store in node.stores) if node.stores else None,
            roles=tuple(node.roles),
            is_leaving=node.is_leaving,
        )


def _nodes_down(records: _Records, usage: _Usage) -> Iterator[NodeDescription]:
    """Nodes that are missed: they are gone, and a store of theirs is active or holds segments."""
    down: dict[NodeId, NodeDescription] = {}
    for record in records.stores:
        number, store = record.node_id, record.store_id
        is_missed = record.state is StoreState.ACTIVE or usage.segments[store] or usage.open[store]
        if number in records.nodes or record.state is StoreState.LOST or not is_missed:
            continue
        known_bytes = (down[number].used_bytes or 0) if number in down else 0
        down[number] = NodeDescription(
            node=number,
            address=f"{record.host}:{record.port}" if record.host else "-",
            rack=record.rack,
            is_controller=False,
            leads=usage.leads[number],
            in_sync=usage.in_sync[number],
            used_bytes=usage.size_bytes[store] + known_bytes,
            is_up=False,
            down_since_ms=record.away_since_ms,
        )
    yield from down.values()


def _stores(records: _Records, usage: _Usage) -> Iterator[StoreDescription]:
    living = records.living_stores
    for record in sorted(records.stores, key=lambda record: (record.node_id, record.store_id)):
        store = record.store_id
        yield StoreDescription(
            store=store,
            node=record.node_id,
            state=record.state.value,
            is_alive=store in living,
            segments=usage.segments[store],
            open=usage.open[store],
            bytes=usage.size_bytes[store],
            free_bytes=living.get(store),
        )
