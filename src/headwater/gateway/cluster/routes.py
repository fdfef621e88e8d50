"""/v1/cluster: nodes, who leads what, and what lacks replicas."""

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.gateway.context import Context
from headwater.gateway.kafka.admin import is_internal
from headwater.gateway.openapi import answer, operation
from headwater.wire.codec import Message

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
    """Partitions that nobody leads."""


async def _size_bytes(context: Context, node: Message) -> int | None:
    held = await context.admin.sizes_at((node.host, node.port)) if not node.is_fenced else None
    return sum(held.values()) if held is not None else None


def routes(context: Context) -> list[BaseRoute]:
    async def describe_cluster(request: Request) -> Response:
        described = await context.admin.cluster()
        metadata = await context.admin.metadata()
        own, internal = _partitions(metadata, internal=False), _partitions(metadata, internal=True)
        partitions = own + internal
        sizes = await asyncio.gather(*(_size_bytes(context, node) for node in described.brokers))
        is_whole = not any(node.is_fenced for node in described.brokers)
        last_seen_ms = {} if is_whole else await context.admin.last_seen_ms()
        nodes = [
            Node(
                node.broker_id,
                node.host,
                node.port,
                node.rack or None,
                not node.is_fenced,
                last_seen_ms.get(node.broker_id) if node.is_fenced else None,
                sum(partition.leader == node.broker_id for partition in own),
                sum(partition.leader == node.broker_id for partition in internal),
                sum(node.broker_id in partition.replicas for partition in own),
                held,
            )
            for node, held in zip(described.brokers, sizes, strict=True)
        ]
        return answer(
            Cluster(
                described.cluster_id,
                described.controller_id if described.controller_id >= 0 else None,
                sorted(nodes, key=lambda node: node.node_id),
                sum(len(partition.isrs) < len(partition.replicas) for partition in partitions),
                sum(partition.leader < 0 for partition in partitions),
            )
        )

    return [
        operation(
            "GET", "/v1/cluster", describe_cluster, "Nodes, leaders, and what lacks replicas", context,
            answers={200: Cluster}, problems=(502,),
        )
    ]  # fmt: skip


def _partitions(metadata: "ClusterMetadata", *, internal: bool) -> "list[PartitionMetadata]":
    topics = [topic for name, topic in metadata.topics.items() if is_internal(name) == internal]
    return [partition for topic in topics for partition in topic.partitions.values()]
