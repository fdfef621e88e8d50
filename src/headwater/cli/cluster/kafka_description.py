"""A cluster as its brokers describe it, over the Kafka protocol."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from headwater.cli.brokers import Brokers
from headwater.cli.client import cluster
from headwater.cli.cluster.description import NO_LEADER, ClusterDescription, NodeDescription, PartitionProblem

if TYPE_CHECKING:
    from headwater.client.address import BrokerAddress
    from headwater.client.blocking_cluster import BlockingCluster
    from headwater.wire.typed.describe_cluster import DescribeClusterResponse
    from headwater.wire.typed.metadata import MetadataResponse, MetadataResponsePartition

_Partitions: TypeAlias = "Sequence[tuple[str, MetadataResponsePartition]]"
"""Each with the name of its topic."""


def ask_brokers(brokers: Brokers) -> ClusterDescription:
    """Raises CommandFailed if no broker answers."""
    with cluster(brokers) as client:
        return _describe(client)


def _describe(client: "BlockingCluster") -> ClusterDescription:
    from headwater.client.address import BrokerAddress
    from headwater.client.errors import ClientError

    metadata, described, down_since_ms = _first_answer(client)
    partitions = [(topic.name or "", partition) for topic in metadata.topics for partition in topic.partitions]
    leads = Counter[int](partition.leader_id for _, partition in partitions)
    in_sync = Counter[int](node for _, partition in partitions for node in partition.isr_nodes)
    nodes, silent = [], []
    for broker in sorted(described.brokers, key=lambda broker: broker.broker_id):
        number = broker.broker_id
        address = BrokerAddress(broker.host, broker.port)
        node = NodeDescription(
            node=number,
            address=f"{broker.host}:{broker.port}",
            rack=broker.rack,
            is_controller=number == described.controller_id,
            leads=leads[number],
            in_sync=in_sync[number],
            is_up=not broker.is_fenced,
            down_since_ms=down_since_ms.get(number) if broker.is_fenced else None,
        )
        if node.is_up:
            try:
                node = _with_disk_usage(client, node, address)
            except ClientError:
                silent.append(node.address)
        nodes.append(node)
    return ClusterDescription(
        cluster_id=described.cluster_id,
        controller=described.controller_id,
        partitions=len(partitions),
        nodes=tuple(nodes),
        problems=tuple(_problems(partitions)),
        cannot_tell=tuple(silent),
    )


def _first_answer(client: "BlockingCluster") -> "tuple[MetadataResponse, DescribeClusterResponse, dict[int, int]]":
    """Metadata, cluster, and since when nodes are down, from the first broker that answers."""
    from headwater.client.admin.cluster import describe_cluster, last_seen_ms
    from headwater.client.cluster_view import metadata_request
    from headwater.client.errors import ConnectionLost

    failure = ConnectionLost("no address is known")
    for broker in client.view.addresses:
        try:
            metadata = client.ask_at(broker, metadata_request(None))
            described = client.answer_at(broker, describe_cluster())
            are_all_up = not any(each.is_fenced for each in described.brokers)
            return metadata, described, {} if are_all_up else client.answer_at(broker, last_seen_ms())
        except ConnectionLost as error:
            failure = error
    raise failure


def _problems(partitions: _Partitions) -> Iterator[PartitionProblem]:
    for topic, partition in partitions:
        in_sync, replicas = tuple(partition.isr_nodes), len(partition.replica_nodes)
        if partition.leader_id == NO_LEADER or len(in_sync) < replicas:
            problem = "no leader" if partition.leader_id == NO_LEADER else "under-replicated"
            yield PartitionProblem(topic, partition.partition_index, partition.leader_id, in_sync, replicas, problem)


def _with_disk_usage(client: "BlockingCluster", node: NodeDescription, address: "BrokerAddress") -> NodeDescription:
    from headwater.client.admin.log_dirs import disk_usage

    usage = client.answer_at(address, disk_usage())
    if usage.free_bytes is None:
        return node
    return replace(node, used_bytes=usage.used_bytes, free_bytes=usage.free_bytes)
