"""The gateway as an ASGI application: its parts are built in order, each with what it uses, and run while it lasts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from headwater.client.address import parse_bootstrap
from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.client.errors import ClientError
from headwater.gateway.cluster.broker_pages import BrokerPages, PageReader, PagesOverHttp
from headwater.gateway.cluster.routes import ClusterRoutes
from headwater.gateway.config import GatewayConfig
from headwater.gateway.console import routes as console
from headwater.gateway.console.pipelines import PipelineStatuses
from headwater.gateway.console.routes import ConsoleRoutes
from headwater.gateway.console.traffic import Traffic
from headwater.gateway.groups.routes import GroupRoutes
from headwater.gateway.http import health, session
from headwater.gateway.http.bodies import Budget
from headwater.gateway.http.front_door import FrontDoor
from headwater.gateway.http.kafka_problems import answer_kafka_failure
from headwater.gateway.http.metrics import HttpMetrics
from headwater.gateway.http.openapi import Operation
from headwater.gateway.http.openapi.description import description_route
from headwater.gateway.http.openapi.endpoint import operation_route
from headwater.gateway.http.problems import Problem, answer_failure, answer_http_error, answer_problem
from headwater.gateway.http.security import Guard
from headwater.gateway.http.session import SessionRoutes
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.call_threads import CallThreads
from headwater.gateway.kafka.errors import KafkaFailure
from headwater.gateway.kafka.known_topics import KnownTopics
from headwater.gateway.kafka.producer import RecordProducer
from headwater.gateway.kafka.reading import RecordReader
from headwater.gateway.kafka.settings import connection_settings
from headwater.gateway.push.dispatcher import PushDispatcher
from headwater.gateway.push.routes import PushRoutes
from headwater.gateway.records.idempotent_requests import IdempotentRequests
from headwater.gateway.records.produce import Produce
from headwater.gateway.records.routes import RecordRoutes
from headwater.gateway.registry.registrar import Registrar
from headwater.gateway.registry.routes import registry_routes
from headwater.gateway.registry.value_decoder import RegistryDecoder
from headwater.gateway.subscriptions.catalog import SubscriptionCatalog
from headwater.gateway.subscriptions.dead_letters import DeadLetterApi
from headwater.gateway.subscriptions.edits import SubscriptionEdits
from headwater.gateway.subscriptions.members.member_pool import MemberPool
from headwater.gateway.subscriptions.name_locks import NameLocks
from headwater.gateway.subscriptions.reads import SubscriptionReads
from headwater.gateway.subscriptions.redrive_jobs import RedriveJobs
from headwater.gateway.subscriptions.routes import ReadRoutes, SubscriptionRoutes
from headwater.gateway.subscriptions.subscription_api import SubscriptionApi
from headwater.gateway.topics.routes import TopicRoutes

PUBLIC = (*health.PUBLIC, *session.PUBLIC, *console.PUBLIC)
"""Paths that need no token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaClients:
    """The Kafka clients of the gateway. None of them connects before it is used: the cluster may start later."""

    threads: CallThreads
    admin: Admin
    topics: KnownTopics
    producer: RecordProducer
    idempotent: IdempotentRequests
    reader: RecordReader
    cluster: AsyncioCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningParts:
    """What runs as long as the gateway does, beside the Kafka clients."""

    redrives: RedriveJobs
    members: MemberPool
    pushes: PushDispatcher
    registrar: Registrar


@asynccontextmanager
async def running_app(config: GatewayConfig, pages: BrokerPages | None = None) -> AsyncIterator[ASGIApp]:
    """The application, with all of its parts running. `pages` are those of the broker in this process, if there is one.

    Raises BadToken, InvalidAddress."""
    guard = Guard(config, PUBLIC)
    budget, metrics = Budget(config.max_buffered_bytes), HttpMetrics()
    if pages is None and config.broker_pages is not None:
        pages = PagesOverHttp(config.broker_pages, config.broker_pages_token)
    async with AsyncExitStack() as stack:
        clients = _open_clients(config, stack)
        parts = await _start_parts(config, clients, stack)
        metrics.register(parts.pushes.metric_families)
        operations, routes = _routes(
            config=config,
            clients=clients,
            parts=parts,
            pages=PageReader(pages),
            guard=guard,
            budget=budget,
            metrics=metrics,
        )
        produce = Produce(
            config,
            topics=clients.topics,
            producer=clients.producer,
            idempotent=clients.idempotent,
            budget=budget,
            metrics=metrics,
        )
        app = Starlette(
            routes=[
                *(operation_route(each, budget, config.max_body_bytes) for each in operations if each.handler),
                *routes,
                description_route(operations),
            ],
            exception_handlers={
                Problem: answer_problem,
                KafkaFailure: answer_kafka_failure,
                ClientError: answer_kafka_failure,
                HTTPException: answer_http_error,
                Exception: answer_failure,
            },
        )
        yield FrontDoor(app, guard, metrics, produce)


def _open_clients(config: GatewayConfig, stack: AsyncExitStack) -> KafkaClients:
    threads = CallThreads(config.threads)
    stack.callback(threads.close)
    cluster = AsyncioCluster(parse_bootstrap(config.bootstrap), connection_settings(config))
    stack.callback(cluster.close)
    admin = Admin(config, threads, cluster)
    producer = RecordProducer(config, asyncio.get_running_loop())
    stack.push_async_callback(producer.close)
    reader = RecordReader(config, admin)
    stack.push_async_callback(reader.close)
    idempotent = IdempotentRequests(config, admin)
    stack.push_async_callback(idempotent.close)
    topics = KnownTopics(admin)
    stack.push_async_callback(topics.close)
    return KafkaClients(
        threads=threads,
        admin=admin,
        topics=topics,
        producer=producer,
        idempotent=idempotent,
        reader=reader,
        cluster=cluster,
    )


async def _start_parts(config: GatewayConfig, clients: KafkaClients, stack: AsyncExitStack) -> RunningParts:
    redrives = RedriveJobs(config, clients.threads)
    stack.push_async_callback(redrives.close)
    members = await stack.enter_async_context(MemberPool.open(config, clients.cluster))
    pushes = await stack.enter_async_context(
        PushDispatcher.open(clients.cluster, members, allows_private_webhooks=config.private_webhooks)
    )
    registrar = Registrar(config, clients.admin, clients.threads)
    await stack.enter_async_context(registrar.running())
    return RunningParts(redrives=redrives, members=members, pushes=pushes, registrar=registrar)


def _routes(
    config: GatewayConfig,
    clients: KafkaClients,
    parts: RunningParts,
    pages: PageReader,
    guard: Guard,
    budget: Budget,
    metrics: HttpMetrics,
) -> tuple[list[Operation], list[BaseRoute]]:
    """The operations that are described, and the other routes."""
    decoder = RegistryDecoder(parts.registrar, clients.threads)
    console_routes = ConsoleRoutes(Traffic(pages, clients.threads), PipelineStatuses(clients.topics, clients.reader))
    subscriptions, reads, push_routes = _subscription_routes(config, clients, parts, budget)
    operations = [
        *TopicRoutes(clients.admin, clients.topics, pages).operations(),
        *RecordRoutes(clients.topics, clients.reader, decoder, budget, metrics).operations(),
        *ClusterRoutes(clients.admin).operations(),
        *GroupRoutes(clients.admin, clients.cluster, pages).operations(),
        *subscriptions.operations(),
        *reads.operations(),
        *push_routes.operations(),
        *SessionRoutes(guard).operations(),
        *console_routes.operations(),
    ]
    routes = [
        *push_routes.routes(),
        *health.health_routes(clients.topics, metrics, clients.threads),
        *registry_routes(parts.registrar, budget),
        *console_routes.routes(),
    ]
    return operations, routes


def _subscription_routes(
    config: GatewayConfig, clients: KafkaClients, parts: RunningParts, budget: Budget
) -> tuple[SubscriptionRoutes, ReadRoutes, PushRoutes]:
    catalog, locks = SubscriptionCatalog(clients.admin, clients.cluster), NameLocks()
    edits = SubscriptionEdits(
        catalog,
        admin=clients.admin,
        topics=clients.topics,
        cluster=clients.cluster,
        allows_private_webhooks=config.private_webhooks,
    )
    reads = SubscriptionReads(catalog, clients.topics, parts.members, locks)
    dead_letters = DeadLetterApi(
        catalog, admin=clients.admin, reader=clients.reader, redrives=parts.redrives, budget=budget
    )
    api = SubscriptionApi(catalog, edits, parts.members, parts.pushes, locks)
    return SubscriptionRoutes(api), ReadRoutes(reads, dead_letters, budget), PushRoutes(reads)
