"""Calls that the leader of a partition answers: here by a function, on another node by a request (`node_client`).

Whether this node is the leader is decided here and nowhere else, at the moment of the call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from headwater.broker.nodes.node_client import NodeClient, NodeRequest
from headwater.broker.topics.catalog import Catalog
from headwater.model.ids import PartitionId

T = TypeVar("T")


class Route:
    """The way to the leader of one partition."""

    def __init__(
        self,
        nodes: NodeClient,
        is_led: Callable[[], bool],
        partition: PartitionId | Callable[[], Coroutine[Any, Any, PartitionId]],
    ) -> None:
        """`is_led` says whether this node leads the partition. A `partition` of an internal topic that may not exist
        yet is found, and its topic created, when a request is sent."""
        self._nodes = nodes
        self._is_led = is_led
        self._partition = partition

    @property
    def is_here(self) -> bool:
        """Whether a call stays here: this node leads the partition, or is standalone, so that no other node can."""
        return self._nodes.is_standalone or self._is_led()

    async def call(self, here: Callable[[], Awaitable[T]], request: NodeRequest[T]) -> T:
        """Raises RequestError."""
        return await here() if self.is_here else await self.send(request)

    def start(self, here: Callable[[], "asyncio.Future[T]"], request: NodeRequest[T]) -> "asyncio.Future[T]":
        """As `call`, for a function that decides before it returns. Requests are sent in the order of the calls: tasks
        begin in the order in which they are created, and the requests of one connection class keep it."""
        return here() if self.is_here else asyncio.get_running_loop().create_task(self.send(request))

    async def send(self, request: NodeRequest[T]) -> T:
        """Call the node that leads the partition, which is not this one. Raises RequestError."""
        partition = self._partition if isinstance(self._partition, PartitionId) else await self._partition()
        return await self._nodes.call_leader(partition, request)


def route_to(partition: PartitionId, catalog: Catalog, nodes: NodeClient) -> Route:
    """The way to the leader of a partition of any topic."""

    def is_led() -> bool:
        topic = catalog.find_id(partition.topic_id)
        return topic is not None and partition.index in topic.led

    return Route(nodes, is_led, partition)
