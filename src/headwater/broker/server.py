"""A broker: one node with everything it needs, started and stopped as a whole.

The order of the start is the order of trust: the store first (what is on disk), then the metadata (what it means), then
the partitions (who leads them), then the groups, and last the listener, so that no client meets a half-started broker.
A stop goes the other way.
"""

import asyncio
import logging
import secrets
import socket
import uuid
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Self

from headwater.broker.cluster.cluster_nodes import ClusterNodes
from headwater.broker.cluster.member import ANNOUNCE_S, ClusterMember
from headwater.broker.dispatch import Dispatcher
from headwater.broker.fetch.fetch_sessions import FetchSessions
from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.groups.group_positions import GroupPositions
from headwater.broker.housekeeping.cleaner import Cleaner
from headwater.broker.housekeeping.consumed_positions import ConsumedPositions
from headwater.broker.housekeeping.garbage_collector import GarbageCollector
from headwater.broker.log.node_ports import NodePorts, OneStore, Stores
from headwater.broker.log.refused_batches import RefusedBatches
from headwater.broker.log.tail_cache import TailCache
from headwater.broker.metrics.gauges import watch_broker
from headwater.broker.metrics.group_health import health_page
from headwater.broker.metrics.metrics import Metrics
from headwater.broker.metrics.metrics_server import MetricsServer
from headwater.broker.metrics.segments_page import segments_page
from headwater.broker.metrics.timed_files import TimedFiles
from headwater.broker.node_answers import NodeAnswers
from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.nodes.node_messages import Kind
from headwater.broker.queues.share_admin import ShareAdmin
from headwater.broker.queues.share_coordinator import ShareCoordinator
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.broker_loggers import BrokerLoggers
from headwater.broker.settings.broker_settings import BrokerSettings
from headwater.broker.settings.group_configs import GroupConfigs
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.broker.transactions.producer_ids import ProducerIds
from headwater.broker.transactions.transaction_admission import TransactionAdmission
from headwater.broker.transactions.transaction_coordinator import TransactionCoordinator
from headwater.broker.transactions.transaction_gate import TransactionGate
from headwater.broker.validation.schema_follower import SchemaFollower
from headwater.broker.validation.schema_gate import SchemaGate
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import Is, MetaStore, Put
from headwater.model.clock import Clock
from headwater.model.cluster import Node, NodeStore, Role
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId, SegmentId, segment_id
from headwater.storage.files import Files
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.transport.server import Server, ServerLimits, reserve
from headwater.transport.system_clock import SystemClock

STORE_DIRECTORY = "store"
QUIET_WAIT_S = 1.0
"""How long a stop waits for requests that are under way."""


class Broker:
    admissions: TransactionAdmission
    catalog: Catalog
    garbage: GarbageCollector
    cluster_nodes: ClusterNodes
    cleaner: Cleaner
    dispatcher: Dispatcher
    group_configs: GroupConfigs
    groups: GroupCoordinator
    nodes: NodeClient
    producer_ids: ProducerIds
    schema_gate: SchemaGate
    settings: BrokerSettings
    share_admin: ShareAdmin
    shares: ShareCoordinator
    subscriptions: ConsumedPositions
    tail_cache: TailCache
    transaction_gate: TransactionGate
    transactions: TransactionCoordinator

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config = config
        """What is in force: administrators may alter it while the broker runs."""
        self.clock = clock
        self.loggers = BrokerLoggers()
        self.refusals = RefusedBatches()
        self.metrics = Metrics()
        self.fetch_sessions = FetchSessions()
        self.cluster_id = ""
        self.address: tuple[str, int] = ("", 0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._is_stopping = False
        self._failure: BaseException | None = None
        self._store: SegmentStore | None = None
        self._metadata: MetaStore | None = None
        self._server: Server | None = None
        self._metrics_server: MetricsServer | None = None
        self._bound: socket.socket | None = None
        self.member: ClusterMember | None = None
        """This node in its cluster; None if it is alone."""

    @classmethod
    async def start(
        cls,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        store_options: StoreOptions | None = None,
    ) -> Self:
        """Time, files and the store's figures may be given, so that a test can have them fail."""
        broker = cls(config, clock or SystemClock())
        try:
            await broker._start(files or TimedFiles(broker.metrics.flushed), store_options or StoreOptions())
        except BaseException:
            await broker._close()
            raise
        return broker

    async def _start(self, files: Files, store_options: StoreOptions) -> None:
        data_dir = self.config.data_dir
        data_dir.mkdir(parents=True, exist_ok=True)
        if Role.STORE in self.config.roles:
            self._store = await SegmentStore.open(
                data_dir / STORE_DIRECTORY, files=files, options=store_options, on_failure=self._fail
            )
        self._metadata = metadata = await open_metadata(self.config.metadata_url)
        self.cluster_id = await _cluster_id(metadata)
        self.settings = BrokerSettings(metadata, self.config)
        await self.settings.load()
        self.config = self.settings.current
        self.tail_cache = TailCache(self.config.tail_cache_bytes)
        stores = await self._join(metadata)
        ports = NodePorts(
            node_id=self.config.node_id,
            store=self._store,
            stores=stores,
            choose=self.cluster_nodes.choose,
            clock=self.clock,
            tail_cache=self.tail_cache,
            spawn=self.spawn,
            new_segment_id=self._new_segment_id,
            is_lost=self.cluster_nodes.is_lost,
        )
        self.producer_ids = ProducerIds(metadata)
        self.catalog = Catalog(
            metadata, ports, self.settings.topic_defaults, self._spread, self.config.internal_replication
        )
        await self.catalog.load(is_alone=self.member is None)
        if self.member is not None:
            self.member.follow(self.catalog, self.spawn)
        if self._store is not None:
            self.garbage = GarbageCollector(self._store, metadata)
            self.spawn(self.garbage.run())
        self.catalog.on_removed.append(self._topic_removed)
        self.group_configs = GroupConfigs(metadata, self.config)
        await self.group_configs.load()
        self.group_configs.broker_candidates = self.settings.candidates
        self.nodes = NodeClient(self.config.node_id, self.catalog, None)
        if self.member is not None:
            self.nodes = self.member.client(self.catalog)
            self.spawn(self.group_configs.follow())
            self.settings.announce = self._announce_settings
            self.spawn(self.settings.follow())
        self.groups = GroupCoordinator(self.catalog, self.config, self.clock, self.spawn)
        self.groups.is_durable = lambda group_id: self.group_configs.subscription(group_id).is_explicit
        self.groups.ask_times_of(self.group_configs.consumer_times)
        self.groups.start()
        self.shares = ShareCoordinator(
            self.catalog, self.groups, self.group_configs, self.config, self.clock, self.spawn, self.nodes
        )
        self.shares.start()
        self.share_admin = ShareAdmin(self.catalog, self.shares, self.nodes)
        self.transactions = TransactionCoordinator(
            self.catalog, self.groups, self.producer_ids, self.config, self.clock, self.spawn, self.nodes
        )
        self.transactions.start()
        self.admissions = TransactionAdmission(self.transactions, self.groups, self.nodes)
        self.transaction_gate = TransactionGate(self.admissions)
        self.schema_gate = SchemaGate(SchemaFollower(self.catalog, self.nodes, self.clock, self.spawn))
        collect = GroupPositions(self.groups, self.nodes).collect
        self.subscriptions = ConsumedPositions(self.catalog, self.group_configs, [self.shares.positions], collect)
        if self.member is not None:
            self.member.answer(NodeAnswers(self).answer)
        self.cleaner = Cleaner(ports, self.catalog, self.config, self.subscriptions.survey)
        self.spawn(self.cleaner.run())
        self.dispatcher = Dispatcher(self)
        self._server = Server(self.dispatcher, self._limits(), self.metrics, self.dispatcher.kind_of)
        self.address = await self._server.listen(*self.config.listen, self._bound)
        if self.member is None:
            host, port = self.advertised
            self.cluster_nodes.own = replace(self.cluster_nodes.own, host=host, port=port)
        self._configure()
        self.settings.watchers.append(self._configure)
        watch_broker(self)
        if self.config.metrics is not None:
            self._metrics_server = await MetricsServer.start(
                self.metrics,
                *self.config.metrics,
                self.groups_page,
                self.segments_page,
            )
        log_event("started", node=self.config.node_id, address=f"{self.address[0]}:{self.address[1]}")

    def _configure(self) -> None:
        """Settings may have been altered: each part that keeps some of them gets the new ones."""
        self.config = config = self.settings.current
        self.tail_cache.resize(config.tail_cache_bytes)
        self.catalog.default_to(self.settings.topic_defaults)
        self.group_configs.configure(config)
        self.groups.configure(config)
        self.shares.configure(config)
        self.transactions.configure(config)
        self.cleaner.configure(config)
        self.server.limit(self._limits())
        if self.member is not None:
            self.member.configure(config)

    async def _announce_settings(self) -> None:
        await self.nodes.notify_all(Kind.FOLLOW_SETTINGS, b"", ANNOUNCE_S)

    def _limits(self) -> ServerLimits:
        config = self.config
        return ServerLimits(
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            max_request_bytes=config.max_request_bytes,
            request_memory_bytes=config.request_memory_bytes,
            max_requests_per_second=config.max_requests_per_second,
            idle_timeout_s=config.idle_timeout_s,
            half_request_timeout_s=config.half_request_timeout_s,
        )

    async def stop(self) -> None:
        """Finish what is under way, flush, and close. Nothing that was acknowledged depends on it."""
        if self._is_stopping:
            await self._closed.wait()
            return
        self._is_stopping = True
        if self.member is not None and self._failure is None:
            await self.member.leave()
        if self._server is not None and self._failure is None:
            self._server.stop_accepting()
            await self._wait_until_quiet(self._server)
        await self._close()
        self._closed.set()
        self._ended.set()

    async def wait_stopped(self) -> None:
        """Return after a stop, or raise what makes the broker give up; it must still be stopped then."""
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def advertised(self) -> tuple[str, int]:
        """What clients are told. A port of 0 was replaced by the one that was bound."""
        if self.config.advertise is not None:
            return self.config.advertise.host, self.config.advertise.port or self.address[1]
        return self.config.listen.host, self.address[1]

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        return self._metrics_server.address if self._metrics_server is not None else None

    def groups_page(self, group: str | None) -> bytes:
        is_known = group is None or self.groups.coordinates(group)
        return health_page(self.groups.departures(), group, is_known=is_known)

    async def segments_page(self, name: str) -> bytes | None:
        topic = self.catalog.find(name)
        return await segments_page(topic, self.metadata, self.cluster_nodes.node_of) if topic is not None else None

    @property
    def server(self) -> Server:
        assert self._server is not None, "a started broker listens"
        return self._server

    @property
    def metadata(self) -> MetaStore:
        assert self._metadata is not None, "a started broker has its metadata"
        return self._metadata

    @property
    def store(self) -> SegmentStore:
        assert self._store is not None, "a started broker has its store"
        return self._store

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task that belongs to the broker: it is cancelled at the stop, and its failure is the broker's."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    @property
    def default_replication_factor(self) -> int:
        """Of a topic whose creator does not say: as many replicas as is usual, or as there are stores."""
        return max(min(self.config.default_replication_factor, self.cluster_nodes.store_count), 1)

    async def create_on_use(self, name: str) -> Topic:
        """A topic that came into being because somebody named it."""
        if name.startswith("__"):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} does not exist.")
        try:
            topic = await self.catalog.create(
                name, self.config.default_partitions, {}, replication_factor=self.default_replication_factor
            )
        except RequestError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return self.catalog.topic(name)
        assert topic is not None, "a topic that was not only validated"
        return topic

    async def delete_topic(self, topic: Topic) -> None:
        await self.catalog.delete(topic)

    def _topic_removed(self, topic: Topic) -> None:
        """By this node or by another one."""
        for index in range(topic.partition_count if self._store is not None else 0):
            self.garbage.ask(topic.partition_id(index))
        if not hasattr(self, "transactions"):
            return
        self.groups.forget_topic(topic.name)
        self.shares.forget_topic(topic)
        self.transactions.forget_topic([topic.partition_id(index) for index in range(topic.partition_count)])
        self.metrics.topic_deleted(topic.name)

    async def _join(self, metadata: MetaStore) -> Stores:
        """Become one of the cluster, or be alone. Other nodes tell clients where this one listens, so the address is
        taken now; but nobody is let in before everything is there."""
        if not self.config.is_clustered:
            assert self._store is not None, "the configuration was checked"
            self.cluster_nodes = self._alone(self._store)
            return OneStore(self._store)
        self._bound = await reserve(*self.config.listen)
        self.address = self._bound.getsockname()[:2]
        self.member = ClusterMember(self.config, metadata, self._store, self.clock)
        await self.member.start(self.advertised, self.metrics, self.spawn)
        self.cluster_nodes = self.member.cluster_nodes
        return self.member

    def _spread(self, count: int) -> Sequence[NodeId]:
        """Leaders of new partitions."""
        heads = (topic.head(index) for topic in self.catalog for index in range(topic.partition_count))
        return self.cluster_nodes.spread(count, (head.leader for head in heads if head is not None))

    def _alone(self, store: SegmentStore) -> ClusterNodes:
        own = NodeStore(store.store_id, store.free_bytes(), store.capacity_bytes())
        host, port = self.config.listen.host, self.config.listen.port
        node = Node(self.config.node_id, 0, host, port, host, 0, stores=(own,))
        space = lambda: (store.free_bytes(), store.capacity_bytes())  # noqa: E731
        return ClusterNodes(node, controller_id=self.config.node_id, own_space=space)

    def _new_segment_id(self) -> SegmentId:
        return segment_id(self.clock.now_ms(), secrets.randbits(80))

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Something broke that the broker cannot go on without: stop, and let the process say why."""
        if self._failure is None:
            self._failure = error
            log_event("broker_failed", logging.ERROR, error=f"{type(error).__name__}: {error}")
            self._ended.set()

    async def _wait_until_quiet(self, server: Server) -> None:
        for _ in range(100):
            if server.is_quiet:
                return
            await asyncio.sleep(QUIET_WAIT_S / 100)

    async def _close(self) -> None:
        if self._metrics_server is not None:
            await self._metrics_server.stop()
        if hasattr(self, "shares"):
            self.shares.stop()
        if self._server is not None:
            await self._server.close()
        if self._failure is None and self._store is not None and hasattr(self, "catalog"):
            await asyncio.gather(*(partition.settle() for partition in self.catalog.partitions()))
        if hasattr(self, "catalog"):
            self.catalog.leadership.stop()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.member is not None:
            await self.member.close()
        if self._bound is not None:
            self._bound.close()
        if self._store is not None:
            await self._store.close()
        if self._metadata is not None:
            await self._metadata.close()


async def _cluster_id(metadata: MetaStore) -> str:
    """The cluster's name for itself, drawn by whoever comes first."""
    found = await metadata.get(keys.CLUSTER)
    if found is None:
        cluster = keys.ClusterRecord(uuid.uuid4().hex)
        await metadata.txn([Is(keys.CLUSTER, 0)], [Put(keys.CLUSTER, keys.encode(cluster))])
        found = await metadata.get(keys.CLUSTER)
        assert found is not None, "a cluster that was named keeps its name"
    cluster = keys.decode_cluster(found.value)
    if cluster.format != keys.FORMAT:
        raise RuntimeError(
            f"the metadata has format {cluster.format}, this version reads {keys.FORMAT}: use the version that wrote it"
        )
    return cluster.cluster_id
