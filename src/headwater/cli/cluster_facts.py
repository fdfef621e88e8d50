"""What a cluster tells of itself: to any Kafka client, and, to whoever may read its metadata, what only that knows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headwater.cli.client import client_config
from headwater.cli.output import Problem
from headwater.cli.raw_request import NoAnswer, ask

if TYPE_CHECKING:
    from headwater.metadata.store import MetaStore
    from headwater.wire.codec import Message

METADATA, DESCRIBE_LOG_DIRS, DESCRIBE_QUORUM, DESCRIBE_CLUSTER = 3, 35, 55, 60
NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class NodeFacts:
    node: int
    address: str
    rack: str | None
    is_controller: bool
    leads: int
    in_sync: int
    """Partitions whose open segment it holds."""
    used_bytes: int | None = None
    free_bytes: int | None = None
    roles: tuple[str, ...] | None = None
    is_leaving: bool = False
    is_up: bool = True
    down_since_ms: int | None = None
    """None while it is up, or if that is not known."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    store: str
    node: int
    state: str
    is_alive: bool
    segments: int
    """Sealed ones that name it."""
    open: int
    """Partitions whose open segment names it."""
    bytes: int
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition with which something is not as it should be."""

    topic: str
    partition: int
    leader: int
    in_sync: tuple[int, ...]
    wanted: int
    problem: str


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    cluster_id: str
    controller: int
    partitions: int
    nodes: tuple[NodeFacts, ...]
    problems: tuple[PartitionFacts, ...] = ()
    stores: tuple[StoreFacts, ...] | None = None
    """None if the metadata was not asked; so is the next one."""
    takeovers: int | None = None
    """Partitions whose new leader has not begun yet."""
    cannot_tell: tuple[str, ...] = field(default=())
    """Nodes that did not answer."""

    @property
    def under_replicated(self) -> int:
        return sum(problem.leader != NO_LEADER for problem in self.problems)

    @property
    def leaderless(self) -> int:
        return len(self.problems) - self.under_replicated

    @property
    def nodes_up(self) -> int:
        return sum(node.is_up for node in self.nodes)

    @property
    def is_healthy(self) -> bool:
        """Every node is up, and every partition has a leader and all its replicas."""
        are_up = 0 < len(self.nodes) == self.nodes_up
        return are_up and self.controller >= 0 and not self.problems and not self.takeovers


# By the Kafka protocol


def ask_brokers(bootstrap: str) -> ClusterFacts:
    """Raises Problem if nobody answers."""
    client_config(bootstrap)
    addresses = [_address(each) for each in bootstrap.split(",")]
    metadata, cluster, last_seen_ms = _first_answer(addresses)
    leads, in_sync = Counter[int](), Counter[int]()
    problems, partitions = [], 0
    for topic in metadata.topics:
        for each in topic.partitions or ():
            partitions += 1
            leads[each.leader_id] += 1
            in_sync.update(each.isr_nodes)
            problem = None
            if each.leader_id == NO_LEADER:
                problem = "no leader"
            elif len(each.isr_nodes) < len(each.replica_nodes):
                problem = "under-replicated"
            if problem is not None:
                problems.append(
                    PartitionFacts(
                        topic.name, each.partition_index, each.leader_id, tuple(each.isr_nodes),
                        len(each.replica_nodes), problem,
                    )
                )  # fmt: skip
    nodes, silent = [], []
    for broker in sorted(cluster.brokers, key=lambda broker: int(broker.broker_id)):
        node = NodeFacts(
            broker.broker_id, f"{broker.host}:{broker.port}", broker.rack, broker.broker_id == cluster.controller_id,
            leads[broker.broker_id], in_sync[broker.broker_id], is_up=not broker.is_fenced,
        )  # fmt: skip
        if broker.is_fenced:
            nodes.append(replace(node, down_since_ms=last_seen_ms.get(broker.broker_id)))
            continue
        try:
            nodes.append(_with_space(node, (broker.host, broker.port)))
        except NoAnswer:
            nodes.append(node)
            silent.append(node.address)
    return ClusterFacts(
        cluster.cluster_id, cluster.controller_id, partitions, tuple(nodes), tuple(problems), cannot_tell=tuple(silent)
    )


def _first_answer(addresses: Sequence[tuple[str, int]]) -> "tuple[Message, Message, dict[int, int]]":
    problem: NoAnswer | None = None
    for address in addresses:
        try:
            metadata = ask(
                address, METADATA, 12, topics=None, allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )  # fmt: skip
            cluster = ask(address, DESCRIBE_CLUSTER, 2, include_fenced_brokers=True)
            is_whole = not any(broker.is_fenced for broker in cluster.brokers)
            return metadata, cluster, {} if is_whole else _last_seen_ms(address)
        except NoAnswer as error:
            problem = error
    assert problem is not None, "there is at least one address"
    raise problem


def _last_seen_ms(address: tuple[str, int]) -> dict[int, int]:
    """Of nodes that are gone, when they were noticed to be."""
    from headwater.wire.codec import Message

    quorum = Message(topic_name="__cluster_metadata", partitions=[Message(partition_index=0)])
    return {
        node.replica_id: node.last_fetch_timestamp
        for topic in ask(address, DESCRIBE_QUORUM, 1, topics=[quorum]).topics
        for partition in topic.partitions
        for node in partition.observers
        if node.last_fetch_timestamp >= 0
    }


def _with_space(node: NodeFacts, address: tuple[str, int]) -> NodeFacts:
    answer = ask(address, DESCRIBE_LOG_DIRS, 4, topics=None)
    if not answer.results:
        return node
    used = sum(
        partition.partition_size
        for directory in answer.results
        for topic in directory.topics or ()
        for partition in topic.partitions or ()
    )
    return replace(node, used_bytes=used, free_bytes=sum(directory.usable_bytes for directory in answer.results))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)


# By the metadata


async def read_metadata(metadata: "MetaStore") -> ClusterFacts:
    """Raises Unavailable, Unknown; Problem if there is no cluster."""
    from headwater.metadata import keys
    from headwater.model.ids import PartitionId
    from headwater.replication.cluster_view import is_recovering

    found = await metadata.get(keys.CLUSTER)
    if found is None:
        raise Problem("There is no cluster in this metadata.", "Check the URL: the part after the address names it.")
    controller = await metadata.get(keys.CONTROLLER_LEADER)
    controller_id = keys.decode_controller(controller.value).node if controller is not None else -1
    nodes = {node.node_id: node for node in (keys.decode_node(kv.value) for kv in await metadata.list(keys.NODES))}
    records = [keys.decode_store(kv.value) for kv in await metadata.list(keys.STORES)]
    topics = {it.topic_id: it for it in (keys.decode_topic(kv.value) for kv in await metadata.list(keys.TOPICS))}
    placed = {kv.key: keys.decode_reassignment(kv.value).nodes for kv in await metadata.list(keys.REASSIGNMENTS)}
    heads = [
        (PartitionId.parse(kv.key.removeprefix(keys.HEADS)), keys.decode_head(kv.value))
        for kv in await metadata.list(keys.HEADS)
    ]
    sealed = [keys.decode_sealed(kv.value) for kv in await metadata.list(keys.SEALED)]

    owners = {record.store_id: record.node_id for record in records}
    living = {store.store_id: store for node in nodes.values() for store in node.stores}
    able = sum(record.state == "active" for record in records)
    leads, in_sync, opened, segments, size_bytes = (Counter[int | str]() for _ in range(5))
    problems = []
    takeovers = 0
    for partition, head in heads:
        topic = topics.get(partition.topic_id)
        if topic is None:
            continue
        replicas = head.open.replicas if head.open is not None else ()
        here = tuple(dict.fromkeys(owners[store] for store in replicas if store in owners))
        leads[head.leader] += 1
        in_sync.update(here)
        opened.update(replicas)
        nodes_wanted = placed.get(keys.reassignment_key(partition)) or ()
        wanted = len(nodes_wanted) or min(topic.replication_factor, able)
        is_led = head.leader in nodes
        problem = None
        if not is_led:
            problem = "no leader"
        elif is_recovering(head):
            takeovers += 1
            problem = "being taken over"
        elif len(replicas) < wanted or any(store not in living for store in replicas):
            problem = "under-replicated"
        if problem is not None:
            leader = head.leader if is_led else NO_LEADER
            problems.append(PartitionFacts(topic.name, partition.index, leader, here, wanted, problem))
    for segment in sealed:
        segments.update(segment.replicas)
        size_bytes.update(dict.fromkeys(segment.replicas, segment.size_bytes))
    up = [
        NodeFacts(
            number, f"{node.host}:{node.port}", node.rack, number == controller_id, leads[number], in_sync[number],
            free_bytes=sum(store.free_bytes for store in node.stores) if node.stores else None,
            roles=tuple(node.roles), is_leaving=node.is_leaving,
        )
        for number, node in nodes.items()
    ]  # fmt: skip
    down: dict[int, NodeFacts] = {}
    for record in records:
        number, store = record.node_id, record.store_id
        is_missed = record.state == "active" or segments[store] or opened[store]
        if number not in nodes and record.state != "lost" and is_missed:
            known = down.get(number)
            down[number] = NodeFacts(
                number, f"{record.host}:{record.port}" if record.host else "-", record.rack, False, leads[number],
                in_sync[number], size_bytes[store] + ((known.used_bytes or 0) if known is not None else 0),
                is_up=False, down_since_ms=record.away_since_ms,
            )  # fmt: skip
    return ClusterFacts(
        keys.decode_cluster(found.value).cluster_id,
        controller_id,
        len(heads),
        tuple(sorted((*up, *down.values()), key=lambda node: node.node)),
        tuple(problems),
        tuple(
            StoreFacts(
                record.store_id, record.node_id, record.state.value, record.store_id in living,
                segments[record.store_id], opened[record.store_id], size_bytes[record.store_id],
                living[record.store_id].free_bytes if record.store_id in living else None,
            )
            for record in sorted(records, key=lambda record: (record.node_id, record.store_id))
        ),
        takeovers,
    )  # fmt: skip


def together(by_kafka: ClusterFacts, by_metadata: ClusterFacts) -> ClusterFacts:
    """What brokers say of the space they use; everything else as the metadata has it."""
    used = {node.node: node for node in by_kafka.nodes}
    nodes = tuple(
        replace(node, used_bytes=used[node.node].used_bytes) if node.is_up and node.node in used else node
        for node in by_metadata.nodes
    )
    return replace(by_metadata, nodes=nodes, cannot_tell=by_kafka.cannot_tell)
