"""The other nodes of the cluster, to be asked what only the leader of a partition can do.

A connection is made when it is needed and kept; what is under way on it is bounded, and so is the time that an answer
may take. An answer is RequestError where there is nobody to ask, the other node refuses, or does not answer; with
`NETWORK_EXCEPTION` it is not known whether the question was understood. Nothing is asked twice.
"""

import asyncio
import enum
from collections.abc import Sequence
from typing import Final, Protocol

from headwater.broker.nodes.node_messages import Kind
from headwater.broker.topics.catalog import Catalog
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId, PartitionId
from headwater.peers.channel import ChannelOptions
from headwater.peers.messages import Address
from headwater.peers.remote_node import RemoteNode
from headwater.wire.codec import Cursor

CHANNELS: Final = ChannelOptions(connect_timeout_s=0.5, call_timeout_s=10.0, in_flight_bytes=8 * 1024 * 1024)
"""Longer than a coordinator lets anybody wait for the end of a transaction."""

NOT_REACHED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Nobody was there to ask, or somebody else is to be asked by now. Clients that asked for something else would not
understand it."""


class Lane(enum.IntEnum):
    """Questions of different lanes do not wait for each other. An admission can wait for another transaction's markers,
    so it must not be in their way."""

    MARKERS = 0
    ADMISSIONS = 1
    STATE = 2
    BULK = 3


class Peers(Protocol):
    """Who else is there, from memory."""

    def node_ids(self) -> Sequence[NodeId]:
        """Brokers that are alive, without this one."""

    def address(self, node_id: NodeId) -> Address | None:
        """None if the node is not there now."""

    @property
    def state_format(self) -> int:
        """The newest format of internal topics that every node reads."""


class NodeClient:
    def __init__(self, own_id: NodeId, catalog: Catalog, peers: Peers | None, secret: bytes = b"") -> None:
        """Without peers the node is alone, for ever."""
        self._own_id = own_id
        self._catalog = catalog
        self._peers = peers
        self._secret = secret
        self._nodes: dict[NodeId, RemoteNode] = {}

    @property
    def is_alone(self) -> bool:
        return self._peers is None

    def is_alive(self, node_id: NodeId) -> bool:
        return node_id == self._own_id or (self._peers is not None and self._peers.address(node_id) is not None)

    def all_read(self, state_format: int) -> bool:
        """Whether no node of the cluster would fail to read this format of internal topics."""
        return self._peers is None or self._peers.state_format >= state_format

    def leader(self, partition: PartitionId) -> NodeId:
        """Who leads a partition. Raises RequestError while nobody does, or nobody knows of it."""
        topic = self._catalog.find_id(partition.topic_id)
        head = topic.head(partition.index) if topic is not None else None
        if head is None or head.leader < 0:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"Nobody leads partition {partition} now.")
        return head.leader

    async def ask_leader(self, partition: PartitionId, kind: Kind, body: bytes, lane: Lane) -> Cursor:
        """Ask whoever leads a partition, if that is another node. Raises RequestError."""
        return await self.ask(self.leader(partition), kind, body, lane)

    async def ask(self, node_id: NodeId, kind: Kind, body: bytes, lane: Lane) -> Cursor:
        """Raises RequestError."""
        if node_id == self._own_id:
            raise RequestError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node is to lead the partition, and does not yet."
            )
        return await self._node(node_id).ask(kind, body, lane)

    async def ask_all(self, kind: Kind, body: bytes, lane: Lane) -> Sequence[Cursor]:
        """All other brokers. Raises RequestError if one of them does not answer."""
        others = self._peers.node_ids() if self._peers is not None else ()
        return await asyncio.gather(*(self.ask(node_id, kind, body, lane) for node_id in others))

    async def tell_all(self, kind: Kind, body: bytes, lane: Lane, patience_s: float) -> None:
        """All other brokers, as far as they answer in time: those that do not will find out by themselves."""
        others = self._peers.node_ids() if self._peers is not None else ()
        telling = [asyncio.ensure_future(self.ask(node_id, kind, body, lane)) for node_id in others]
        if telling:
            _, late = await asyncio.wait(telling, timeout=patience_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*telling, return_exceptions=True)

    def refresh(self) -> None:
        """Nodes came or went: connections to where they are no more are closed, and what waits for them fails."""
        for node_id, node in list(self._nodes.items()):
            if self._peers is None or self._peers.address(node_id) != node.address:
                del self._nodes[node_id]
                node.close()

    def close(self) -> None:
        for node in self._nodes.values():
            node.close()
        self._nodes.clear()

    def _node(self, node_id: NodeId) -> RemoteNode:
        address = self._peers.address(node_id) if self._peers is not None else None
        if address is None:
            raise RequestError(ErrorCode.BROKER_NOT_AVAILABLE, f"Node {node_id} is not there.")
        found = self._nodes.get(node_id)
        if found is None or found.address != address:
            if found is not None:
                found.close()
            found = self._nodes[node_id] = RemoteNode(address, self._secret, CHANNELS)
        return found
