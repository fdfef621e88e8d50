"""A cluster as its brokers describe it, over the Kafka protocol."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.cli.bootstrap import Address, addresses
from headwater.cli.client import client_config
from headwater.cli.cluster.description import NO_LEADER, ClusterDescription, NodeDescription, PartitionProblem
from headwater.cli.log_dirs import disk_usage
from headwater.cli.raw_request import BrokerDidNotAnswer, ask, message

if TYPE_CHECKING:
    from headwater.wire.message import Message

METADATA, DESCRIBE_QUORUM, DESCRIBE_CLUSTER = 3, 55, 60


def ask_brokers(bootstrap: str) -> ClusterDescription:
    """Raises CommandFailed if no broker answers."""
    client_config(bootstrap)
    metadata, cluster, last_seen_ms = _first_answer(addresses(bootstrap))
    partitions = [(topic.name, partition) for topic in metadata.topics for partition in topic.partitions or ()]
    leads = Counter[int](partition.leader_id for _, partition in partitions)
    in_sync = Counter[int](node for _, partition in partitions for node in partition.isr_nodes)
    nodes, silent = [], []
    for broker in sorted(cluster.brokers, key=lambda broker: int(broker.broker_id)):
        number = broker.broker_id
        node = NodeDescription(
            node=number,
            address=f"{broker.host}:{broker.port}",
            rack=broker.rack,
            is_controller=number == cluster.controller_id,
            leads=leads[number],
            in_sync=in_sync[number],
            is_up=not broker.is_fenced,
            down_since_ms=last_seen_ms.get(number),
        )
        if node.is_up:
            try:
                node = _with_disk_usage(node, (broker.host, broker.port))
            except BrokerDidNotAnswer:
                silent.append(node.address)
        nodes.append(node)
    return ClusterDescription(
        cluster_id=cluster.cluster_id,
        controller=cluster.controller_id,
        partitions=len(partitions),
        nodes=tuple(nodes),
        problems=tuple(_problems(partitions)),
        cannot_tell=tuple(silent),
    )


def _first_answer(brokers: Sequence[Address]) -> "tuple[Message, Message, dict[int, int]]":
    """Metadata, cluster, and since when nodes are down, from the first broker that answers."""
    failure: BrokerDidNotAnswer | None = None
    for broker in brokers:
        try:
            metadata = ask(
                broker, METADATA, 12, topics=None, allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )  # fmt: skip
            cluster = ask(broker, DESCRIBE_CLUSTER, 2, include_fenced_brokers=True)
            are_all_up = not any(each.is_fenced for each in cluster.brokers)
            return metadata, cluster, {} if are_all_up else _last_seen_ms(broker, cluster)
        except BrokerDidNotAnswer as error:
            failure = error
    assert failure is not None, "there is at least one address"
    raise failure


def _last_seen_ms(broker: Address, cluster: "Message") -> dict[int, int]:
    """By node that is down, when the cluster noticed it."""
    quorum = message(topic_name="__cluster_metadata", partitions=[message(partition_index=0)])
    down = {each.broker_id for each in cluster.brokers if each.is_fenced}
    return {
        node.replica_id: node.last_fetch_timestamp
        for topic in ask(broker, DESCRIBE_QUORUM, 1, topics=[quorum]).topics
        for partition in topic.partitions
        for node in partition.observers
        if node.last_fetch_timestamp >= 0 and node.replica_id in down
    }


def _problems(partitions: Sequence[tuple[str, Any]]) -> Iterator[PartitionProblem]:
    for topic, partition in partitions:
        in_sync, replicas = tuple(partition.isr_nodes), len(partition.replica_nodes)
        if partition.leader_id == NO_LEADER or len(in_sync) < replicas:
            problem = "no leader" if partition.leader_id == NO_LEADER else "under-replicated"
            yield PartitionProblem(topic, partition.partition_index, partition.leader_id, in_sync, replicas, problem)


def _with_disk_usage(node: NodeDescription, broker: Address) -> NodeDescription:
    usage = disk_usage(broker)
    return node if usage is None else replace(node, used_bytes=usage.used_bytes, free_bytes=usage.free_bytes)
