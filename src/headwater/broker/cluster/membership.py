"""This node among the others: its record, the listener for their calls, the ways to their stores, and what it sees.

A membership is complete when `join` returns: the node is registered, its peers reach its store, and everything that the
metadata says of the cluster was read once. What follows the metadata for the catalog comes later (`member`).
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from headwater.broker.cluster.cluster_nodes import ClusterNodes
from headwater.broker.cluster.node_session import NodeSession, NodeSessionOptions
from headwater.broker.cluster.replication_throttle import ReplicationThrottle
from headwater.broker.cluster.watch import ClusterChange, ClusterWatch
from headwater.broker.lifetime import Lifetime
from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.nodes.node_messages import NodeCallKind
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.topics.topic_index import TopicIndex
from headwater.metadata.store import MetaStore, Unavailable, Unknown
from headwater.model.clock import Clock
from headwater.model.cluster import STATE_FORMAT, Node, NodeListener, NodeStore
from headwater.model.ids import StoreId, TopicId
from headwater.peers.calls import LateCalls
from headwater.peers.channel import ChannelOptions
from headwater.peers.identity import PeerIdentity
from headwater.peers.store_directory import StoreDirectory
from headwater.peers.store_server import StoreServer
from headwater.storage.segment_store import SegmentStore
from headwater.transport.server import TrafficCounters

ANNOUNCE_S = 1.0
"""How long a change of a topic waits for other nodes to know of it. It holds there soon after, in any case."""
CHANNELS = ChannelOptions(connect_timeout_s=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoiningNode:
    """What a node has before it joins its cluster."""

    config: Callable[[], BrokerConfig]
    """The settings in force."""
    metadata: MetaStore
    store: SegmentStore | None
    clock: Clock
    cluster_nodes: ClusterNodes
    topics: TopicIndex
    nodes: NodeClient
    identity: PeerIdentity | None
    """What it proves to the others; None for a node that is alone."""
    traffic: TrafficCounters
    lifetime: Lifetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    cluster_nodes: ClusterNodes
    nodes: NodeClient
    watch: ClusterWatch
    session: NodeSession
    directory: StoreDirectory
    server: StoreServer
    calls: LateCalls
    """Other nodes' calls to this broker."""
    throttle: ReplicationThrottle

    async def announce(self, topic_id: TopicId) -> None:
        """A topic was changed here: the others look, and so does this node, in case an older value is being read."""
        await self.nodes.notify_all(NodeCallKind.FOLLOW_TOPIC, topic_id.bytes, ANNOUNCE_S)
        with contextlib.suppress(Unavailable, Unknown):
            await self.watch.reread_topics([topic_id])

    def changed(self, change: ClusterChange) -> None:
        if change.nodes or change.stores:
            self.cluster_nodes.see(self.session.node, self.watch.nodes, self.watch.stores)
            self.directory.refresh()
            self.nodes.refresh()
        if change.controller and self.watch.controller is not None:
            self.cluster_nodes.elect(self.watch.controller.node, self.watch.controller.epoch)


async def join(base: JoiningNode, listeners: Sequence[NodeListener], stack: AsyncExitStack) -> Membership:
    """Be reached by the other nodes, register, and see which nodes are there. Raises NodeIdInUse, Unavailable."""
    config, store, lifetime = base.config(), base.store, base.lifetime
    identity = base.identity
    assert identity is not None, "a member of a cluster has something to prove"
    watch = ClusterWatch(base.metadata)
    throttle = ReplicationThrottle(config.node_id, base.config, base.topics.config_of, base.clock)
    calls = LateCalls()
    server = StoreServer(store, identity, base.traffic, on_call=calls, giving=throttle.giving, getting=throttle.getting)
    stack.push_async_callback(server.close)
    peer_address = await _listen(server, config)
    directory = StoreDirectory(
        store, watch.store_address, identity, options=CHANNELS, on_lost=lambda lost: _store_lost(base.topics, lost)
    )
    stack.callback(directory.close)
    first = listeners[0]
    node = Node(
        config.node_id, 0, first.host, first.port, *peer_address, rack=config.rack, roles=config.roles,
        state_format=STATE_FORMAT, listeners=tuple(listeners), secret_ids=identity.secrets.ids,
    )  # fmt: skip
    session = NodeSession(
        base.metadata, node, lambda: own_stores(store), NodeSessionOptions(ttl_s=config.session_timeout_s)
    )
    stack.push_async_callback(session.close)
    identity.secrets.watchers.append(lambda: session.take_secrets(identity.secrets.ids))
    await session.start()
    base.cluster_nodes.register(session.node)
    membership = Membership(
        cluster_nodes=base.cluster_nodes, nodes=base.nodes, watch=watch, session=session, directory=directory,
        server=server, calls=calls, throttle=throttle,
    )  # fmt: skip
    watch.listen(membership.changed)
    stack.push_async_callback(lifetime.cancel_tasks)  # before the session ends, or it would be made anew
    lifetime.spawn(watch.run())
    lifetime.spawn(session.run())
    if identity.tls is not None:
        lifetime.spawn(identity.tls.files.follow())
    await watch.synced()
    return membership


def own_stores(store: SegmentStore | None) -> Sequence[NodeStore]:
    return (NodeStore(store.store_id, *space(store)),) if store is not None else ()


def space(store: SegmentStore | None) -> tuple[int, int]:
    """Free and total bytes, right now."""
    return (store.free_bytes(), store.capacity_bytes()) if store is not None else (0, 0)


async def _listen(server: StoreServer, config: BrokerConfig) -> tuple[str, int]:
    """The address by which peers reach the listener."""
    assert config.peer_listen is not None, "a member of a cluster can be reached by its peers"
    host, port = await server.listen(*config.peer_listen)
    if config.peer_advertise is not None:
        return config.peer_advertise.host, config.peer_advertise.port or port
    return host, port


def _store_lost(topics: TopicIndex, store: StoreId) -> None:
    """The connection to a store broke."""
    for partition in topics.partitions():
        if store in partition.replicas:
            partition.store_lost(store)
