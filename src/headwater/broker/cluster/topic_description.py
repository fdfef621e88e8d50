"""Topics as clients see them: which node leads a partition, which nodes hold it, which of those are down."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headwater.broker.cluster.cluster_nodes import ClusterNodes
from headwater.broker.topics.topic import Topic
from headwater.model.errors import ErrorCode
from headwater.model.ids import NO_LEADER_EPOCH, NO_NODE, LeaderEpoch, NodeId
from headwater.model.segments import Head


class DescribedPartition(NamedTuple):
    partition_index: int
    error_code: ErrorCode
    leader_id: NodeId
    leader_epoch: LeaderEpoch
    nodes: "PartitionNodes"


class PartitionNodes(NamedTuple):
    """The nodes of a partition."""

    in_sync: Sequence[NodeId]
    replicas: Sequence[NodeId]
    offline: Sequence[NodeId]
    is_led: bool
    is_reachable: bool
    """Whether the leader has the listener that the client came in by."""


NO_HOLDERS = PartitionNodes((), (), (), is_led=False, is_reachable=False)
UNREACHABLE: Final = ErrorCode.LISTENER_NOT_FOUND
"""Of a partition whose leader clients of this listener cannot reach."""


def describe_partitions(
    cluster_nodes: ClusterNodes, topic: Topic, listener: str, first: int = 0, end: int | None = None
) -> Iterator[DescribedPartition]:
    """The topic's partitions from `first` to `end`, for every API that tells clients of `listener` where partitions
    are."""
    nodes = _Nodes(cluster_nodes, listener)
    return (_describe_partition(nodes, topic, index) for index in range(topic.partition_count)[first:end])


def _describe_partition(nodes: "_Nodes", topic: Topic, index: int) -> DescribedPartition:
    """A partition whose leader is not there, or has not taken it up yet, has none: clients ask again in a while. In
    sync are the nodes that hold its open segment; if they are fewer than wanted, there are replicas besides."""
    head = topic.head(index)
    if head is None:
        holding = NO_HOLDERS
    else:
        placed = topic.placed.get(index)
        holding = nodes.holding(head, topic.replication_factor, placed.nodes if placed is not None else None)
    is_led = holding.is_led and holding.is_reachable
    return DescribedPartition(
        index,
        ErrorCode.NONE if is_led else UNREACHABLE if holding.is_led else ErrorCode.LEADER_NOT_AVAILABLE,
        head.leader if is_led and head is not None else NO_NODE,
        head.epoch if head is not None else NO_LEADER_EPOCH,
        holding,
    )


class _Nodes:
    """Which nodes have what, worked out once for all partitions of which the same is known: there may be thousands."""

    def __init__(self, cluster_nodes: ClusterNodes, listener: str) -> None:
        self._cluster_nodes = cluster_nodes
        self._listener = listener
        self._known: dict[object, PartitionNodes] = {}

    def holding(self, head: Head, wanted: int, placed: Sequence[NodeId] | None) -> PartitionNodes:
        key = (head.leader, head.open.replicas if head.open is not None else None, placed)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._work_out(head, wanted if placed is None else len(placed), placed or ())
        return found

    def _work_out(self, head: Head, wanted: int, preferred: Sequence[NodeId]) -> PartitionNodes:
        cluster_nodes = self._cluster_nodes
        in_sync = cluster_nodes.in_sync_nodes(head)
        replicas = list(dict.fromkeys([*in_sync, *cluster_nodes.missing_nodes(head, wanted, preferred)]))
        offline = [node for node in replicas if cluster_nodes.find(node) is None]
        leader = cluster_nodes.find(head.leader)
        return PartitionNodes(
            in_sync,
            replicas,
            offline,
            is_led=head.open is not None and leader is not None,
            is_reachable=leader is not None and leader.address_on(self._listener) is not None,
        )
