"""/v1/cluster: nodes, who leads what, and what lacks replicas."""

import asyncio

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.gateway.context import Context
from headwater.gateway.openapi import answer, operation


class Node(Struct):
    node_id: int
    host: str
    port: int
    rack: str | None
    leads: int
    """Partitions."""
    replicas: int
    size_bytes: int
    """On its disk."""


class Cluster(Struct):
    cluster_id: str | None
    controller: int | None
    nodes: list[Node]
    under_replicated: int
    """Partitions that have fewer replicas in sync than they should."""
    offline: int
    """Partitions that nobody leads."""


def routes(context: Context) -> list[BaseRoute]:
    async def describe_cluster(request: Request) -> Response:
        described = await context.admin.cluster()
        metadata = await context.admin.metadata()
        partitions = [partition for topic in metadata.topics.values() for partition in topic.partitions.values()]
        addresses = [(node.host, node.port) for node in described.nodes]
        sizes = await asyncio.gather(*(context.admin.sizes_at(address) for address in addresses))
        nodes = [
            Node(
                node.id,
                node.host,
                node.port,
                node.rack or None,
                sum(partition.leader == node.id for partition in partitions),
                sum(node.id in partition.replicas for partition in partitions),
                sum(held.values()),
            )
            for node, held in zip(described.nodes, sizes, strict=True)
        ]
        return answer(
            Cluster(
                described.cluster_id,
                described.controller.id if described.controller is not None else None,
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
