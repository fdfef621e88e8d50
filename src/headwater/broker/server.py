"""A broker: one node with all its parts (`parts`), started and stopped as a whole.

The listener comes last, so that no client meets a half-started broker. A stop goes the other way.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Self

from headwater.broker.access.authorizer import Authorizer
from headwater.broker.access.gateway_user import GATEWAY_USER
from headwater.broker.api import RequestContext
from headwater.broker.dispatch import Dispatcher
from headwater.broker.fetch.fetch_sessions import FetchSessions
from headwater.broker.lifetime import Lifetime
from headwater.broker.listeners import ClientListeners
from headwater.broker.log.refused_batches import RefusedBatches
from headwater.broker.metrics.gauges import watch_broker
from headwater.broker.metrics.group_health import health_page
from headwater.broker.metrics.metrics import Metrics
from headwater.broker.metrics.metrics_server import MetricsServer, PageAccess
from headwater.broker.metrics.segments_page import segments_page
from headwater.broker.metrics.timed_files import TimedFiles
from headwater.broker.node_answers import NodeAnswers
from headwater.broker.parts import Parts, ProcessPorts, build_parts
from headwater.broker.quotas.quotas_page import quotas_page
from headwater.broker.settings.authorization import Authorization
from headwater.broker.settings.broker_config import BrokerConfig, ConfigError
from headwater.broker.settings.broker_loggers import BrokerLoggers
from headwater.broker.topics.topic import Topic
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.security.principal import Principal
from headwater.storage.files import Files
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.transport.server import Server, ServerLimits
from headwater.transport.system_clock import SystemClock
from headwater.transport.token_file import BadToken, read_token

QUIET_WAIT_S = 1.0
"""How long a stop waits for requests that are under way."""


class Broker:
    def __init__(self, parts: Parts, stack: AsyncExitStack) -> None:
        """`stack` has what stops the parts. Handlers read the parts from here, at no more than the cost of an
        attribute."""
        coordinators = parts.coordinators
        self.acl_bindings = parts.acl_bindings
        self.admissions = coordinators.admissions
        self.auditor = parts.auditor
        """None where the audit is off."""
        self.catalog = parts.catalog
        self.cleaner = parts.cleaner
        self.clock = parts.clock
        self.cluster_id = parts.cluster_id
        self.cluster_nodes = parts.cluster_nodes
        self.config = parts.settings.current
        """What is in force: administrators may alter it while the broker runs."""
        self.fetch_sessions = FetchSessions()
        self.group_configs = coordinators.group_configs
        self.groups = coordinators.groups
        self.issuer = parts.logins.issuer
        """Of tokens that clients log in with; None if they do not."""
        self.loggers = BrokerLoggers()
        self.member = parts.member
        """This node in its cluster; None if it is standalone."""
        self.metadata = parts.metadata
        self.meters = parts.meters
        """What clients have used of their quotas."""
        self.metrics = parts.metrics
        self.nodes = parts.nodes
        self.producer_ids = coordinators.producer_ids
        self.quotas = parts.quotas
        self.refusals = RefusedBatches()
        self.schema_gate = coordinators.schema_gate
        self.settings = parts.settings
        self.share_admin = coordinators.share_admin
        self.shares = coordinators.shares
        self.spawn = parts.lifetime.spawn
        self.subscriptions = coordinators.subscriptions
        self.tail_cache = parts.tail_cache
        self.transaction_gate = coordinators.transaction_gate
        self.transactions = coordinators.transactions
        self.users = parts.users
        self.audit_writer = parts.audit_writer
        self._parts = parts
        self._lifetime = parts.lifetime
        self._stack = stack
        self._is_stopping = False
        self._closed = asyncio.Event()
        self.metrics_address: tuple[str, int] | None = None
        """None if there is no page of metrics."""
        self.dispatcher = Dispatcher(self)
        self.server = Server(self.dispatcher, self._limits(), self.metrics, self.dispatcher.kind_of)
        self.server.wait_s_of = parts.meters.connection_wait_s
        self.authorizer = Authorizer(
            self.config.authorizes, parts.acl_bindings, self.server.events, self.metrics.authorization_refused,
            gateways=self.config.gateways,
            audit=self.auditor.refusal if self.auditor is not None else None,
            count_use=self.auditor.count_use if self.auditor is not None and self.config.audit_data else None,
        )  # fmt: skip

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
        metrics = Metrics()
        around = ProcessPorts(
            clock=clock or SystemClock(),
            files=files or TimedFiles(metrics.flushed),
            store_options=store_options or StoreOptions(),
            metrics=metrics,
            lifetime=Lifetime(),
        )
        stack = AsyncExitStack()

        async def start() -> Self:
            broker = cls(await build_parts(config, around, stack), stack)
            await broker._open()
            return broker

        try:
            return await around.lifetime.unless_failed(start())
        except BaseException:
            await stack.aclose()
            raise

    async def _open(self) -> None:
        """Answer other nodes and clients."""
        parts, stack = self._parts, self._stack
        if parts.member is not None:
            answers = NodeAnswers(parts.catalog, parts.settings, parts.coordinators)
            parts.member.membership.calls.begin(answers.answer)
        stack.push_async_callback(self.server.close)
        parts.users.watchers.append(self._cut_off)
        if self.cluster_secrets is not None:
            self.cluster_secrets.watchers.append(self._secrets_replaced)
        stack.callback(self.shares.stop)  # first: connections that the broker closes say nothing about their members
        await parts.listeners.open(self.server, parts.logins, parts.clock, self._lifetime)
        if parts.member is None:
            listeners = parts.listeners.advertised()
            host, port = self.advertised
            own = replace(self.cluster_nodes.own, host=host, port=port, listeners=listeners)
            self.cluster_nodes.register(own)
        self._configure()
        self.settings.watchers.append(self._configure)
        watch_broker(self)
        if self.config.metrics is not None:
            host, port = self.config.metrics
            metrics_server = await MetricsServer.start(
                self.metrics, host, port, self.groups_page, self.segments_page, self.quotas_page, self._page_access()
            )
            if metrics_server is not None:
                stack.push_async_callback(metrics_server.stop)
                self.metrics_address = metrics_server.address
        stack.push_async_callback(self._finish)
        if self.config.authorizes is Authorization.OBSERVE:
            log_event("authorization_only_observed", logging.WARNING, effect="what bindings refuse is allowed")
        if self.auditor is not None:
            self.auditor.node("start")
        log_event("started", node=self.config.node_id, address=f"{self.address[0]}:{self.address[1]}")

    def _page_access(self) -> PageAccess:
        file = self.config.metrics_token_file
        try:
            token = read_token(file) if file is not None else None
        except BadToken as error:
            raise ConfigError(f"metrics_token_file: {error}") from error
        return PageAccess(token=token, shows_names=self.config.metrics_show_names)

    async def stop(self) -> None:
        """Finish what is under way, flush, and close. Nothing that was acknowledged depends on it."""
        if self._is_stopping:
            await self._closed.wait()
            return
        self._is_stopping = True
        try:
            await self._stack.aclose()
        finally:
            self._closed.set()
            self._lifetime.end()

    async def _finish(self) -> None:
        """Hand over what this node leads, and let requests under way end, unless the broker has failed."""
        if self.auditor is not None:
            self.auditor.node("stop")
        if self.member is not None and self._lifetime.failure is None:
            await self.member.leave()
        if self._lifetime.failure is None:
            self.server.stop_accepting()
            for _ in range(100):
                if self.server.is_quiet:
                    break
                await asyncio.sleep(QUIET_WAIT_S / 100)
            if self.audit_writer is not None:
                await self.audit_writer.stop()

    async def wait_stopped(self) -> None:
        """Return after a stop, or raise what makes the broker give up; it must still be stopped then."""
        await self._lifetime.wait()

    def _cut_off(self, names: frozenset[str]) -> None:
        """Users were altered: those who are gone have no connection any more."""
        gone = {Principal.user(name) for name in names if self.users.find(name) is None}
        for connection in self.server.connections() if gone else ():
            if connection.principal in gone and connection.login is not None and connection.login.is_of_user:
                connection.close("user_removed")

    def _secrets_replaced(self) -> None:
        """A client that has a secret which is gone could have logged in as the gateway by it: gateways connect anew."""
        if self.cluster_secrets is not None and self.cluster_secrets.has_lost_one:
            for connection in self.server.connections():
                if connection.principal == Principal.user(GATEWAY_USER):
                    connection.close("gateway_password_replaced")

    def _configure(self) -> None:
        self._parts.configure()
        self.config = self.settings.current
        self.server.limit(self._limits())

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

    @property
    def address(self) -> tuple[str, int]:
        return self.server.address

    @property
    def listeners(self) -> ClientListeners:
        return self._parts.listeners

    @property
    def gateway_password(self) -> str | None:
        """Of the user that the gateway logs in as; None where no listener asks for a login."""
        gateway = self._parts.logins.gateway
        return gateway.password if gateway is not None else None

    @property
    def cluster_secrets(self) -> ClusterSecrets | None:
        """None where nothing is proven by them."""
        gateway = self._parts.logins.gateway
        return gateway.secrets if gateway is not None else None

    @property
    def advertised(self) -> tuple[str, int]:
        """The address that clients of the first listener are given."""
        first = self._parts.listeners.advertised()[0]
        return first.host, first.port

    @property
    def store(self) -> SegmentStore:
        assert self._parts.store is not None, "a node that is asked for its store has one"
        return self._parts.store

    def groups_page(self, group: str | None) -> bytes:
        is_known = group is None or self.groups.views.coordinates(group)
        return health_page(self.groups.views.departures(), group, is_known=is_known)

    def quotas_page(self) -> bytes:
        return quotas_page(self.meters)

    async def segments_page(self, name: str) -> bytes | None:
        topic = self.catalog.find(name)
        return await segments_page(topic, self.metadata, self.cluster_nodes.node_of) if topic is not None else None

    @property
    def default_replication_factor(self) -> int:
        """Of a topic whose creator does not say: as many replicas as is usual, or as there are stores."""
        return max(min(self.config.default_replication_factor, self.cluster_nodes.store_count), 1)

    async def create_on_use(self, name: str, context: RequestContext) -> Topic:
        """A topic that is created because a client used its name."""
        if name.startswith("__"):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} does not exist.")
        try:
            topic = await self.catalog.changes.create(
                name, self.config.default_partitions, {}, replication_factor=self.default_replication_factor
            )
        except RequestError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return self.catalog.topic(name)
        assert topic is not None, "a topic that was not only validated"
        if self.auditor is not None:
            self.auditor.created_on_use(context, name)
        return topic

    async def delete_topic(self, topic: Topic) -> None:
        await self.catalog.changes.delete(topic)
