"""/v1/cluster: nodes, who leads what, and what lacks replicas."""

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from headwater.client.address import BrokerAddress
from headwater.client.admin.cluster import describe_cluster, last_seen_ms
from headwater.gateway.http.openapi import Operation, answer
from headwater.gateway.kafka.admin import Admin, is_internal
from headwater.wire.typed.describe_cluster import DescribeClusterBroker

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata, PartitionMetadata


class Node(Struct):
    node_id: int
    host: str
    port: int
    rack: str | None
    is_up: bool
    """Otherwise it is gone, and its store is missed."""
    down_since_ms: int | None
    """None while it is up, or if that is not known."""
    leads: int
    """Partitions of the topics that people made."""
    internal_leads: int
    """Partitions of the cluster's own topics."""
    replicas: int
    """Of partitions of the topics that people made, that it holds or, while it is down, is to hold."""
    size_bytes: int | None
    """On its disk; None if it does not tell."""


class Cluster(Struct):
    cluster_id: str | None
    controller: int | None
    nodes: list[Node]
    under_replicated: int
    """Partitions that have fewer replicas in sync than they should."""
    offline: int
    """Partitions that no node leads."""


class ClusterRoutes:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def operations(self) -> list[Operation]:
        return [
            Operation(
                "GET", "/v1/cluster", self.describe_cluster, "Nodes, leaders, and what lacks replicas",
                answers={200: Cluster}, problems=(502,),
            )
        ]  # fmt: skip

    async def describe_cluster(self, request: Request) -> Response:
        described = await self._admin.answer(describe_cluster())
        metadata = await self._admin.metadata()
        own, internal = _partitions(metadata, internal=False), _partitions(metadata, internal=True)
        partitions = own + internal
        sizes = await asyncio.gather(*(self._size_bytes(node) for node in described.brokers))
        is_whole = not any(node.is_fenced for node in described.brokers)
        down_since_ms = {} if is_whole else await self._admin.answer(last_seen_ms())
        nodes = [
            Node(
                node_id=node.broker_id,
                host=node.host,
                port=node.port,
                rack=node.rack or None,
                is_up=not node.is_fenced,
                down_since_ms=down_since_ms.get(node.broker_id) if node.is_fenced else None,
                leads=sum(partition.leader == node.broker_id for partition in own),
                internal_leads=sum(partition.leader == node.broker_id for partition in internal),
                replicas=sum(node.broker_id in partition.replicas for partition in own),
                size_bytes=size_bytes,
            )
            for node, size_bytes in zip(described.brokers, sizes, strict=True)
        ]
        return answer(
            Cluster(
                cluster_id=described.cluster_id,
                controller=described.controller_id if described.controller_id >= 0 else None,
                nodes=sorted(nodes, key=lambda node: node.node_id),
                under_replicated=sum(len(partition.isrs) < len(partition.replicas) for partition in partitions),
                offline=sum(partition.leader < 0 for partition in partitions),
            )
        )

    async def _size_bytes(self, node: DescribeClusterBroker) -> int | None:
        usage = await self._admin.disk_usage(BrokerAddress(node.host, node.port)) if not node.is_fenced else None
        return usage.used_bytes if usage is not None else None


def _partitions(metadata: "ClusterMetadata", *, internal: bool) -> "list[PartitionMetadata]":
    topics = [topic for name, topic in metadata.topics.items() if is_internal(name) == internal]
    return [partition for topic in topics for partition in topic.partitions.values()]
