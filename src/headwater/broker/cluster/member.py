"""This node as one of a cluster: its record among the nodes, its store for the others, theirs for it, and what it sees.

A node that is alone has none of this: it has one store, leads everything, and asks nobody.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headwater.broker.cluster.cluster_nodes import ClusterNodes
from headwater.broker.cluster.controller import Controller
from headwater.broker.cluster.copier import Copier
from headwater.broker.cluster.node_session import NodeSession, NodeSessionOptions, cluster_secret
from headwater.broker.cluster.open_replicas import OpenReplicas
from headwater.broker.cluster.peer_pings import peer_ping
from headwater.broker.cluster.replication_throttle import ReplicationThrottle
from headwater.broker.cluster.watch import ClusterChange, ClusterWatch
from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.nodes.node_messages import Kind
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.topic_config import TopicConfig
from headwater.broker.topics.catalog import Catalog
from headwater.metadata.store import MetaStore, Unavailable, Unknown
from headwater.model.clock import Clock
from headwater.model.cluster import STATE_FORMAT, Node, NodeStore, Role
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId, PartitionId, StoreId, TopicId
from headwater.model.replica import Durability, Store
from headwater.peers.calls import CallHandler
from headwater.peers.channel import ChannelOptions
from headwater.peers.messages import PeerAddress
from headwater.peers.store_directory import StoreDirectory
from headwater.peers.store_server import StoreServer
from headwater.storage.segment_store import SegmentStore
from headwater.transport.server import TrafficCounters

HANDOVER_S = 5.0
"""How long a stop waits for others to take over what this node leads."""
LOOK_EVERY_S = 0.05
ANNOUNCE_S = 1.0
"""How long a change of a topic waits for other nodes to know of it. It holds there soon after, in any case."""
CHANNELS = ChannelOptions(connect_timeout_s=0.5)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class ClusterMember:
    def __init__(self, config: BrokerConfig, metadata: MetaStore, store: SegmentStore | None, clock: Clock) -> None:
        self._config = config
        self._metadata = metadata
        self._store = store
        self._clock = clock
        self.watch = ClusterWatch(metadata)
        self._server: StoreServer | None = None
        self._catalog: Catalog | None = None
        self._open_replicas: OpenReplicas | None = None
        self._usable: frozenset[StoreId] = frozenset()
        self.session: NodeSession
        self.directory: StoreDirectory
        self.cluster_nodes: ClusterNodes
        self.controller: Controller | None = None
        self._secret = b""
        self._throttle = ReplicationThrottle(config.node_id, lambda: self._config, self._topic_config, clock)
        self._nodes: NodeClient | None = None

    async def start(self, client: tuple[str, int], traffic: TrafficCounters, spawn: Spawn) -> None:
        """Be reached by the other nodes, register, and see who is there. Raises NodeIdInUse, Unavailable."""
        assert self._config.peer_listen is not None, "a member of a cluster can be reached by its peers"
        self._secret = secret = await cluster_secret(self._metadata)
        host, port = self._config.peer_listen
        self._server = StoreServer(self._store, secret, traffic)
        self._server.giving, self._server.getting = self._throttle.giving, self._throttle.getting
        host, port = await self._server.listen(host, port)
        if self._config.peer_advertise is not None:
            host, port = self._config.peer_advertise.host, self._config.peer_advertise.port or port
        node = Node(
            self._config.node_id, 0, *client, host, port, rack=self._config.rack, roles=self._config.roles,
            state_format=STATE_FORMAT,
        )  # fmt: skip
        self.directory = StoreDirectory(
            self._store, self.watch.store_address, secret, options=CHANNELS, on_lost=self._store_lost
        )
        self.session = NodeSession(
            self._metadata, node, self._look_at_stores,
            NodeSessionOptions(ttl_s=self._config.session_timeout_s),
        )  # fmt: skip
        await self.session.start()
        self.cluster_nodes = ClusterNodes(self.session.node, own_space=self._own_space)
        self.watch.listen(self._changed)
        spawn(self.watch.run())
        spawn(self.session.run())
        await self.watch.synced()

    def follow(self, catalog: Catalog, spawn: Spawn) -> None:
        """Tell the catalog what the metadata says, now and whenever it changes; stand for controller."""
        self._catalog = catalog
        catalog.reread = self.watch.reread_topics
        catalog.announce = self._announce
        self._open_replicas = OpenReplicas(catalog, self.cluster_nodes)
        spawn(self._open_replicas.run())
        for topic_id in list(self.watch.topics_read.items):
            self._follow_topic(topic_id)
        if Role.CONTROLLER in self._config.roles:
            copier = Copier(
                self.directory, self._store, self.watch.store_address, self._durability_of, self._throttle.getting,
                self._throttle.is_throttled,
            )  # fmt: skip
            ping = peer_ping(self.directory)
            self.controller = Controller(
                self._metadata, self.watch, self.session, copier, ping, self._clock, rules=self._config.controller_rules
            )
            spawn(self.controller.run())

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        if self.controller is not None:
            self.controller.configure(config.controller_rules)

    def find(self, store_id: StoreId) -> Store:
        """The stores of the cluster (broker.environment.Stores)."""
        return self.directory.store(store_id)

    def controlling(self) -> Controller:
        """What only the controller may do. Raises RequestError if another node is it; clients then ask that one."""
        if self.controller is None or not self.controller.is_leading:
            raise RequestError(
                ErrorCode.NOT_CONTROLLER, f"Node {self.cluster_nodes.controller_id} is the controller, not this one."
            )
        return self.controller

    def client(self, catalog: Catalog) -> NodeClient:
        """The other nodes, to be asked."""
        self._nodes = NodeClient(self._config.node_id, catalog, self, self._secret)
        return self._nodes

    def answer(self, on_call: CallHandler) -> None:
        """From now on other nodes are answered."""
        assert self._server is not None, "a member is started before it answers"
        self._server.on_call = on_call

    def node_ids(self) -> Sequence[NodeId]:
        """The other brokers (broker.node_client.Peers)."""
        return [node.node_id for node in self.cluster_nodes.brokers() if node.node_id != self._config.node_id]

    def address(self, node_id: NodeId) -> PeerAddress | None:
        node = self.watch.nodes.get(node_id)
        return PeerAddress(node.peer_host, node.peer_port) if node is not None else None

    @property
    def state_format(self) -> int:
        return self.cluster_nodes.state_format

    async def leave(self) -> None:
        """Before a stop: have others take over what this node leads, as far as that goes in a short while."""
        if self._catalog is None or len(self.cluster_nodes.brokers()) < 2:
            return
        self.session.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANDOVER_S):
                while any(True for _ in self._catalog.partitions()):  # noqa: ASYNC110 - many events, and a short while
                    await asyncio.sleep(LOOK_EVERY_S)

    async def close(self) -> None:
        if hasattr(self, "session"):
            await self.session.close()
        if hasattr(self, "directory"):
            self.directory.close()
        if self._nodes is not None:
            self._nodes.close()
        if self._server is not None:
            await self._server.close()

    async def _announce(self, topic_id: TopicId) -> None:
        """A topic was changed here: the others look, and so does this node, in case an older value is being read."""
        if self._nodes is not None:
            await self._nodes.notify_all(Kind.FOLLOW_TOPIC, topic_id.bytes, ANNOUNCE_S)
        with contextlib.suppress(Unavailable, Unknown):
            await self.watch.reread_topics([topic_id])

    # What changes

    def _changed(self, change: ClusterChange) -> None:
        if change.nodes or change.stores:
            self._nodes_changed()
        if change.controller and self.watch.controller is not None:
            self.cluster_nodes.controller_id = self.watch.controller.node
            self.cluster_nodes.controller_epoch = self.watch.controller.epoch
        if self._catalog is None:
            return
        for topic_id in change.topics:
            self._follow_topic(topic_id)
        for partition in change.reassignments:
            self._follow_placement(partition)
        for partition in change.heads:
            item = self.watch.heads.items.get(partition)
            if item is not None:
                self._catalog.put_head(partition, item.value, item.version)

    def _follow_topic(self, topic_id: TopicId) -> None:
        """A topic that is new to this node may have heads that were heard of before it."""
        assert self._catalog is not None, "there is a catalog to tell"
        item = self.watch.topics_read.items.get(topic_id)
        if item is None:
            self._catalog.removed(topic_id)
            return
        self._catalog.put(item.value, item.version)
        for index in range(item.value.partitions):
            partition = PartitionId(topic_id, index)
            if partition in self.watch.reassignments.items:
                self._follow_placement(partition)
            head = self.watch.heads.items.get(partition)
            if head is not None:
                self._catalog.put_head(partition, head.value, head.version)

    def _follow_placement(self, partition: PartitionId) -> None:
        assert self._catalog is not None, "there is a catalog to tell"
        item = self.watch.reassignments.items.get(partition)
        self._catalog.put_placement(partition, item.value if item is not None else None)

    def _nodes_changed(self) -> None:
        cluster_nodes = self.cluster_nodes
        cluster_nodes.own, cluster_nodes.nodes, cluster_nodes.stores = (
            self.session.node,
            self.watch.nodes,
            self.watch.stores,
        )
        self.directory.refresh()
        if self._nodes is not None:
            self._nodes.refresh()
        present = frozenset(store for node in cluster_nodes.alive() for store in node.store_ids)
        gone, self._usable = self._usable - present, present
        for partition in self._catalog.partitions() if self._catalog is not None else ():
            for store in gone.intersection(partition.replicas):
                partition.store_lost(store)
        if self._open_replicas is not None:
            self._open_replicas.tend_all()

    def _store_lost(self, store: StoreId) -> None:
        """The connection to a store broke."""
        for partition in self._catalog.partitions() if self._catalog is not None else ():
            if store in partition.replicas:
                partition.store_lost(store)

    # What others are told

    def _look_at_stores(self) -> Sequence[NodeStore]:
        if self._store is None:
            return ()
        return (NodeStore(self._store.store_id, *self._own_space()),)

    def _own_space(self) -> tuple[int, int]:
        return (self._store.free_bytes(), self._store.capacity_bytes()) if self._store is not None else (0, 0)

    def _durability_of(self, partition: PartitionId) -> Durability:
        config = self._topic_config(partition)
        return config.durability if config is not None else self._config.durability

    def _topic_config(self, partition: PartitionId) -> TopicConfig | None:
        topic = self._catalog.find_id(partition.topic_id) if self._catalog is not None else None
        return topic.config if topic is not None else None
