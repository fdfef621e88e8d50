"""RPCs to the brokers of other nodes, for what only the leader of a partition can do (`routed` decides whether it is
this node).

A connection is made when it is needed and kept; the requests under way on it are bounded, and so is the time that a
response may take. A call fails with RequestError if there is no node to call, the other node refuses, or it does not
respond; with `NETWORK_EXCEPTION` it is not known whether the call was carried out. No request is sent twice.
"""

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from headwater.broker.nodes.node_messages import NodeCallKind
from headwater.broker.topics.topic_index import TopicIndex
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId, PartitionId
from headwater.peers.channel import ChannelOptions
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import PeerAddress
from headwater.peers.remote_node import RemoteNode
from headwater.records.byte_reader import ByteReader, MalformedBytes

CHANNELS: Final = ChannelOptions(connect_timeout_s=0.5, call_timeout_s=10.0, in_flight_bytes=8 * 1024 * 1024)
"""A call may take longer than a coordinator lets a request wait for the end of a transaction."""

NOT_REACHED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""The leader could not be called, or another node leads by now. A client whose request led to the call would not
understand these codes."""

T = TypeVar("T")


class ConnectionClass(enum.IntEnum):
    """Calls of different classes have different connections, so that none waits for another. An admission can wait for
    the markers of another transaction: on one connection the markers would wait behind it."""

    MARKERS = 0
    ADMISSIONS = 1
    STATE = 2
    BULK = 3


@dataclass(frozen=True, slots=True)
class NodeRequest(Generic[T]):
    kind: NodeCallKind
    connection_class: ConnectionClass
    body: Callable[[], bytes]
    """Called when the request is sent: a call that stays on this node costs no encoding."""
    read: Callable[[ByteReader], T]
    """Reads the body of the response."""


def no_response(body: ByteReader) -> None:
    """The response to a request that is answered with an error code alone."""


class Peers(Protocol):
    """The other nodes, from memory."""

    def node_ids(self) -> Sequence[NodeId]:
        """Brokers that are alive, without this one."""

    def address(self, node_id: NodeId) -> PeerAddress | None:
        """None while the node is not alive."""

    @property
    def state_format(self) -> int:
        """The newest format of internal topics that every node reads."""


class NodeClient:
    def __init__(
        self, own_id: NodeId, topics: TopicIndex, peers: Peers | None, identity: PeerIdentity | None = None
    ) -> None:
        """Without peers the node is standalone, for ever."""
        self._own_id = own_id
        self._topics = topics
        self._peers = peers
        self._identity = identity
        self._nodes: dict[NodeId, RemoteNode] = {}

    @property
    def is_standalone(self) -> bool:
        return self._peers is None

    def check_led(self, partition: PartitionId) -> None:
        """Raises RequestError while no live node leads the partition."""
        if self._peers is None:
            return
        leader = self.leader(partition)
        if leader != self._own_id and self._peers.address(leader) is None:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE)

    def all_read(self, state_format: int) -> bool:
        """Whether no node of the cluster would fail to read this format of internal topics."""
        return self._peers is None or self._peers.state_format >= state_format

    def leader(self, partition: PartitionId) -> NodeId:
        """The node that leads a partition. Raises RequestError while no node does, or this node does not know."""
        topic = self._topics.find_id(partition.topic_id)
        head = topic.head(partition.index) if topic is not None else None
        if head is None or head.leader < 0:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"No node leads partition {partition} now.")
        return head.leader

    async def call_leader(self, partition: PartitionId, request: NodeRequest[T]) -> T:
        """Call the leader of a partition, if that is another node. Raises RequestError."""
        return await self.call(self.leader(partition), request)

    async def call(self, node_id: NodeId, request: NodeRequest[T]) -> T:
        """Raises RequestError."""
        if node_id == self._own_id:
            raise RequestError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node is to lead the partition, and does not yet."
            )
        body = await self._node(node_id).call(request.kind, request.body(), request.connection_class)
        try:
            return request.read(ByteReader(body.take(body.end - body.position)))
        except MalformedBytes as error:
            raise RequestError(ErrorCode.NETWORK_EXCEPTION, f"Node {node_id} cannot be understood: {error}") from error

    async def call_all(self, request: NodeRequest[T]) -> Sequence[T]:
        """Call all other brokers. Raises RequestError if one of them does not respond."""
        others = self._peers.node_ids() if self._peers is not None else ()
        return await asyncio.gather(*(self.call(node_id, request) for node_id in others))

    async def notify_all(self, kind: NodeCallKind, body: bytes, timeout_s: float) -> None:
        """Tell all other brokers that something changed. A broker that does not respond in time finds out by itself."""
        request = NodeRequest(kind, ConnectionClass.BULK, lambda: body, no_response)
        others = self._peers.node_ids() if self._peers is not None else ()
        calls = [asyncio.ensure_future(self.call(node_id, request)) for node_id in others]
        if calls:
            _, late = await asyncio.wait(calls, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def refresh(self) -> None:
        """Nodes came or went: connections to addresses that no node has now are closed, and their calls fail."""
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
            raise RequestError(ErrorCode.BROKER_NOT_AVAILABLE, f"Node {node_id} is not alive.")
        node = self._nodes.get(node_id)
        if node is None or node.address != address:
            if node is not None:
                node.close()
            assert self._identity is not None, "a node with peers has something to prove"
            node = self._nodes[node_id] = RemoteNode(address, self._identity, CHANNELS)
        return node
