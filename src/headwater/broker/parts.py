"""The parts of a broker, built one after the other: each is complete when it is made, and is given the parts it uses.

The order is the order of trust: the store (what is on disk), the metadata (what it means), the membership (which nodes
there are), the partitions (which node leads them), the coordinators, housekeeping. What two parts know of each other
lies in tables that are made first (`TopicIndex`, `ClusterNodes`), so no part waits for one that comes later.

Each part says how it is stopped where it is started, on a stack: a start that fails stops what was started, a stop
stops everything, and both in the reverse order.
"""

import asyncio
import secrets
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.access.acl_bindings import AclBindings
from headwater.broker.access.bootstrap_users import take_in
from headwater.broker.access.gateway_user import GATEWAY_USER, GatewayUser
from headwater.broker.access.invented_key import invented_key
from headwater.broker.access.login_outcome import not_recorded
from headwater.broker.access.sasl_session import Logins
from headwater.broker.access.users import Users
from headwater.broker.audit.audit_writer import AuditWriter
from headwater.broker.audit.auditor import Auditor
from headwater.broker.cluster.cluster_nodes import ClusterNodes
from headwater.broker.cluster.followed_secrets import FollowedSecrets
from headwater.broker.cluster.member import ClusterMember
from headwater.broker.cluster.membership import ANNOUNCE_S, JoiningNode, Membership, join, own_stores, space
from headwater.broker.cluster.peer_identity import open_peer_tls
from headwater.broker.coordinators import Coordinators, start_coordinators
from headwater.broker.housekeeping.cleaner import Cleaner
from headwater.broker.housekeeping.garbage_collector import GarbageCollector
from headwater.broker.lifetime import Lifetime
from headwater.broker.listeners import ClientListeners
from headwater.broker.log.node_ports import NodePorts, OneStore, Stores
from headwater.broker.log.tail_cache import TailCache
from headwater.broker.metrics.metrics import Metrics
from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.nodes.node_messages import NodeCallKind
from headwater.broker.nodes.partition_client import PartitionClient
from headwater.broker.quotas.client_meters import ClientMeters
from headwater.broker.quotas.client_quotas import ClientQuotas
from headwater.broker.settings.authorization import Authorization
from headwater.broker.settings.broker_config import BrokerConfig, ConfigError
from headwater.broker.settings.broker_settings import BrokerSettings
from headwater.broker.settings.group_configs import GroupConfigs
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic_index import TopicIndex
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import Is, MetaStore, Put
from headwater.model.clock import Clock
from headwater.model.cluster import AUDIT_TOPIC, NO_CONTROLLER, Node, Role
from headwater.model.ids import NodeId, SegmentId, segment_id
from headwater.peers.cluster_secrets import ClusterSecrets
from headwater.peers.identity import PeerIdentity
from headwater.security.principal import Principal
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.scram import InventedCredentials
from headwater.storage.files import Files
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore

if TYPE_CHECKING:
    from headwater.broker.access.token_issuer import TokenIssuer

STORE_DIRECTORY = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPorts:
    """What a broker is given by the process, or by a test that has some of it fail."""

    clock: Clock
    files: Files
    store_options: StoreOptions
    metrics: Metrics
    lifetime: Lifetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    clock: Clock
    metrics: Metrics
    lifetime: Lifetime
    store: SegmentStore | None
    """None on a node without the role."""
    metadata: MetaStore
    cluster_id: str
    settings: BrokerSettings
    cluster_nodes: ClusterNodes
    nodes: NodeClient
    listeners: ClientListeners
    users: Users
    logins: Logins
    acl_bindings: AclBindings
    auditor: Auditor | None
    """None where the audit is off; then there is no writer either."""
    audit_writer: AuditWriter | None
    quotas: ClientQuotas
    meters: ClientMeters
    member: ClusterMember | None
    """This node in its cluster; None if it is standalone."""
    tail_cache: TailCache
    catalog: Catalog
    coordinators: Coordinators
    cleaner: Cleaner

    def configure(self) -> None:
        """Settings may have been altered: each part that keeps some of them gets the new ones."""
        config = self.settings.current
        self.tail_cache.resize(config.tail_cache_bytes)
        self.catalog.default_to(self.settings.topic_defaults)
        self.coordinators.configure(config)
        self.cleaner.configure(config)
        if self.member is not None:
            self.member.configure(config)


async def build_parts(config: BrokerConfig, around: ProcessPorts, stack: AsyncExitStack) -> Parts:
    """A start up to the listener. What is to be stopped is on the stack, also if this raises."""
    lifetime = around.lifetime
    listeners = await ClientListeners.prepare(config, stack)
    peer_tls = await open_peer_tls(config)
    store, metadata = await _open_stores(config, around, stack)
    cluster_id = await _cluster_id(metadata)
    topics, cluster_nodes = TopicIndex(), _own_node(config, store)
    kept = await _cluster_secrets(config, metadata)
    identity = PeerIdentity(kept.current, peer_tls) if kept is not None and config.is_clustered else None
    nodes = NodeClient(config.node_id, topics, cluster_nodes if config.is_clustered else None, identity)
    stack.callback(nodes.close)
    settings = await _load_settings(config, metadata, nodes)
    base = JoiningNode(
        config=lambda: settings.current,
        metadata=metadata,
        store=store,
        clock=around.clock,
        cluster_nodes=cluster_nodes,
        topics=topics,
        nodes=nodes,
        identity=identity,
        traffic=around.metrics,
        lifetime=lifetime,
    )
    membership = await join(base, listeners.advertised(), stack) if config.is_clustered else None
    stack.push_async_callback(lifetime.cancel_tasks)
    if kept is not None:
        lifetime.spawn(kept.follow())
    ports = _ports(base, membership)
    catalog = await _load_catalog(base, ports, settings, membership, around.metrics, stack)
    member = None
    if membership is not None:
        member = ClusterMember(base, membership, catalog)
        await member.start(lifetime)
    group_configs = GroupConfigs(metadata, settings.current, settings.candidates)
    await group_configs.load()
    if membership is not None:
        lifetime.spawn(group_configs.follow())
        lifetime.spawn(settings.follow())
    auditor = Auditor(config.node_id, around.clock, config.audit_exclude_principals) if config.audits else None
    users, logins = await _users(base, kept.current if kept is not None else None, around.metrics, auditor, stack)
    acl_bindings = await _acl_bindings(base, stack)
    quotas = await _quotas(base, stack)
    coordinators = start_coordinators(catalog, group_configs, nodes, metadata, settings.current, around.clock, lifetime)
    acl_bindings.watchers.append(coordinators.shares.rights_changed)
    cleaner = Cleaner(ports, catalog, settings.current, coordinators.subscriptions.survey)
    lifetime.spawn(cleaner.run())
    audit_writer = None
    if auditor is not None:
        audit_writer = AuditWriter(auditor, catalog, PartitionClient(catalog, nodes))
        lifetime.spawn(audit_writer.run())
    return Parts(
        clock=around.clock, metrics=around.metrics, lifetime=lifetime, store=store, metadata=metadata,
        cluster_id=cluster_id, settings=settings, cluster_nodes=cluster_nodes, nodes=nodes, listeners=listeners,
        users=users, logins=logins, acl_bindings=acl_bindings, auditor=auditor, audit_writer=audit_writer,
        quotas=quotas, meters=ClientMeters(quotas, around.clock), member=member, tail_cache=ports.tail_cache,
        catalog=catalog, coordinators=coordinators, cleaner=cleaner,
    )  # fmt: skip


async def _open_stores(
    config: BrokerConfig, around: ProcessPorts, stack: AsyncExitStack
) -> tuple[SegmentStore | None, MetaStore]:
    """The store, then the metadata store. The store is also closed first: metadata that is away must not delay it."""
    config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = None
    async with AsyncExitStack() as opened:
        if Role.STORE in config.roles:
            store = await SegmentStore.open(
                config.data_dir / STORE_DIRECTORY,
                files=around.files,
                options=around.store_options,
                on_failure=around.lifetime.fail,
            )
            opened.push_async_callback(store.close)
        metadata = await open_metadata(config.metadata_url)
        stack.push_async_callback(metadata.close)
        stack.push_async_exit(opened.pop_all())
    return store, metadata


async def _cluster_id(metadata: MetaStore) -> str:
    """The id of the cluster, drawn by its first node."""
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


def _own_node(config: BrokerConfig, store: SegmentStore | None) -> ClusterNodes:
    """A cluster in which this node sees itself alone, not yet registered."""
    host, port = config.client_listeners[0].listen
    node = Node(config.node_id, 0, host, port, host, 0, stores=tuple(own_stores(store)))
    controller_id = NO_CONTROLLER if config.is_clustered else config.node_id
    return ClusterNodes(node, controller_id=controller_id, own_space=lambda: space(store))


async def _cluster_secrets(config: BrokerConfig, metadata: MetaStore) -> FollowedSecrets | None:
    """None where neither a node nor the gateway proves anything by them."""
    if config.is_clustered or any(each.protocol.has_login for each in config.client_listeners):
        return await FollowedSecrets.open(metadata, config.cluster_secret_file)
    return None


async def _users(
    base: JoiningNode,
    cluster: ClusterSecrets | None,
    metrics: Metrics,
    auditor: Auditor | None,
    stack: AsyncExitStack,
) -> tuple[Users, Logins]:
    users = Users(base.metadata, base.clock)
    await take_in(base.metadata, base.config().data_dir)
    await users.load()
    if base.config().is_clustered:
        base.lifetime.spawn(users.follow())
    has_logins = any(each.protocol.has_login for each in base.config().client_listeners)
    key = await invented_key(base.metadata) if has_logins else b""
    logins = Logins(
        users=users, gateway=GatewayUser(cluster) if cluster is not None else None, clock=base.clock,
        invented=InventedCredentials(key),
        failed=lambda: metrics.bad_request("authentication_failed"), issuer=_issuer(base),
        record=auditor.login if auditor is not None else not_recorded,
    )  # fmt: skip
    stack.callback(logins.close)
    return users, logins


async def _acl_bindings(base: JoiningNode, stack: AsyncExitStack) -> AclBindings:
    """Raises ConfigError if clients are held to bindings that none of them could ever change."""
    config = base.config()
    bindings = AclBindings(
        base.metadata, super_users=config.super_users, allow_everyone_if_no_acl=config.allow_everyone_if_no_acl,
        guarded_topics=[AUDIT_TOPIC], agents=[Principal.user(GATEWAY_USER)],
    )  # fmt: skip
    stack.push_async_callback(bindings.close)
    if config.authorizes is not Authorization.OFF:
        await bindings.load()
        if config.authorizes is Authorization.ON and not config.super_users and not bindings.can_be_altered:
            raise ConfigError(
                "authorization is on, and no user may alter access control bindings: name one who may do everything, "
                'super_users = ["User:admin"], or set authorization = "off"'
            )
        if config.is_clustered:
            base.lifetime.spawn(bindings.follow())
    return bindings


async def _quotas(base: JoiningNode, stack: AsyncExitStack) -> ClientQuotas:
    quotas = ClientQuotas(base.metadata)
    stack.push_async_callback(quotas.close)
    await quotas.load()
    if base.config().is_clustered:
        base.lifetime.spawn(quotas.follow())
    return quotas


def _issuer(base: JoiningNode) -> "TokenIssuer | None":
    config = base.config()
    if config.oidc is None or all(SaslMechanism.OAUTHBEARER not in each.offered for each in config.client_listeners):
        return None
    from headwater.broker.access.token_issuer import TokenIssuer

    issuer = TokenIssuer(config.oidc, base.clock)
    base.lifetime.spawn(issuer.run())
    return issuer


async def _load_settings(config: BrokerConfig, metadata: MetaStore, nodes: NodeClient) -> BrokerSettings:
    announce = partial(nodes.notify_all, NodeCallKind.FOLLOW_SETTINGS, b"", ANNOUNCE_S)
    settings = BrokerSettings(metadata, config, announce if config.is_clustered else None)
    await settings.load()
    return settings


def _ports(base: JoiningNode, membership: Membership | None) -> NodePorts:
    clock, cluster_nodes = base.clock, base.cluster_nodes

    def new_segment_id() -> SegmentId:
        return segment_id(clock.now_ms(), secrets.randbits(80))

    if membership is not None:
        stores: Stores = membership.directory
    else:
        assert base.store is not None, "the configuration was checked"
        stores = OneStore(base.store)
    return NodePorts(
        node_id=base.config().node_id,
        store=base.store,
        stores=stores,
        choose=cluster_nodes.choose,
        clock=clock,
        tail_cache=TailCache(base.config().tail_cache_bytes),
        spawn=base.lifetime.spawn,
        new_segment_id=new_segment_id,
        is_lost=cluster_nodes.is_lost,
    )


async def _load_catalog(
    base: JoiningNode,
    ports: NodePorts,
    settings: BrokerSettings,
    membership: Membership | None,
    metrics: Metrics,
    stack: AsyncExitStack,
) -> Catalog:
    """The topics, and the partitions that this node leads by now; and the collector of what they leave behind."""
    garbage = GarbageCollector(base.store, base.metadata) if base.store is not None else None

    def spread(count: int) -> Sequence[NodeId]:
        return base.cluster_nodes.spread(count, base.topics.leaders())

    catalog = Catalog(
        base.metadata,
        ports,
        settings.topic_defaults,
        spread,
        settings.current.internal_replication,
        known=base.topics,
        reread=membership.watch.reread_topics if membership is not None else None,
        announce=membership.announce if membership is not None else None,
        on_removed=[
            *([garbage.topic_removed] if garbage is not None else []),
            lambda topic: metrics.topic_deleted(topic.name),
        ],
    )
    stack.callback(catalog.leadership.stop)
    stack.push_async_callback(_prepare_stop, base, catalog)
    await catalog.load(is_alone=membership is None)
    if garbage is not None:
        base.lifetime.spawn(garbage.run())
    return catalog


async def _prepare_stop(base: JoiningNode, catalog: Catalog) -> None:
    """Flush what is appended, unless the disk is what failed."""
    if base.store is not None and base.lifetime.failure is None:
        await asyncio.gather(*(partition.prepare_stop() for partition in catalog.partitions()))
