"""The configuration of one broker: every setting, every default, read once at the start. What is not `fixed` can be
altered afterwards (`broker_settings`).

From a TOML file, whose tables are those of `Section`, and from overrides (the command line, a test) under the same
names:

    listen = "127.0.0.1:9092"
    advertise = "broker-1.example.com:9092"
    durability = "sync"

    [topic]                 # defaults for topics, under Kafka's names
    "retention.ms" = 86400000

    [limits]
    max_connections = 2000

An unknown key or a value of the wrong kind stops the start: a typing mistake must not become a default. A setting may
also stand at the top of the file, outside its table.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from headwater.broker.settings import setting
from headwater.broker.settings.audit_mode import AuditMode, audit_mode, excluded_principals
from headwater.broker.settings.authorization import Authorization, authorization, gateways, super_users, with_semicolons
from headwater.broker.settings.exposure import ADVICE, exposures
from headwater.broker.settings.listener_config import (
    ListenerConfig,
    SecurityProtocol,
    is_loopback,
    plaintext,
    read_listeners,
)
from headwater.broker.settings.oidc_config import OidcConfig, read_oidc
from headwater.broker.settings.peer_tls_config import PeerTlsConfig, read_peer_tls
from headwater.broker.settings.setting import Address, BrokerSetting, ConfigError, Section, described
from headwater.broker.settings.topic_config import BrokerDefaults
from headwater.broker.settings.topic_keys import BROKER_NAMES, DURABILITY
from headwater.groups.settings import MigrationPolicy
from headwater.model.cluster import Role
from headwater.model.config_key import MAX_LONG
from headwater.model.errors import RequestError
from headwater.model.ids import NodeId
from headwater.model.replica import Durability
from headwater.replication.controller import ControllerRules
from headwater.replication.effects import Rules
from headwater.security.principal import Principal
from headwater.security.sasl_mechanisms import SaslMechanism

__all__ = ["Address", "BrokerConfig", "ConfigError"]

MIB = 1024 * 1024
MAX_FILE_BYTES = MIB
PLAIN = SecurityProtocol.PLAINTEXT
DEFAULT_LISTEN = Address("127.0.0.1", 9092)


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    node_id: NodeId = setting.count(  # noqa: RUF009 (a field)
        1, "This broker's number in its cluster.", kafka="node.id", fixed=True
    )
    data_dir: Path = field(
        default=Path("headwater-data"),
        metadata=described("Where everything is kept.", setting.path, kafka="log.dirs", fixed=True),
    )
    listen: Address = field(
        default=DEFAULT_LISTEN,
        metadata=described("The address to accept clients on. Port 0 takes a free one.", setting.address, fixed=True),
    )
    advertise: Address | None = field(
        default=None,
        metadata=described(
            "The address that clients connect to; the one listened on, unless given.", setting.address, fixed=True
        ),
    )
    listener: tuple[ListenerConfig, ...] = field(
        default=(),
        metadata=described(
            "Listeners for clients instead of listen and advertise, each a table: name, listen, protocol (PLAINTEXT, "
            "SSL, SASL_PLAINTEXT or SASL_SSL), advertise, certificate, key, client_ca, client_certificates (none, "
            "request or require), revoked, principal_from, principal_rules, mechanisms, reauth_ms, max_connections.",
            read_listeners,
            fixed=True,
        ),
    )
    authorization: Authorization | None = field(
        default=None,
        metadata=described(
            "Whether clients may do only what access control bindings allow: on, off, or observe, which logs what "
            "would be refused. Unless given, on where a listener asks clients who they are.",
            authorization,
            section=Section.SECURITY,
            fixed=True,
        ),
    )
    super_users: tuple[Principal, ...] = field(
        default=(),
        metadata=described(
            'Users who may do everything, such as ["User:admin"].', super_users, section=Section.SECURITY,
            kafka="super.users", kafka_value=with_semicolons, fixed=True,
        ),
    )  # fmt: skip
    gateways: tuple[Principal, ...] = field(
        default=(),
        metadata=described(
            'Users that gateways log in as, such as ["User:gateway-1"]: they are shown the secrets of webhooks. The '
            "gateway in a broker's process need not be named.",
            gateways,
            section=Section.SECURITY,
            fixed=True,
        ),
    )
    allow_everyone_if_no_acl: bool = setting.switch(
        False,
        "Whether everyone may do everything with what no binding is about.",
        section=Section.SECURITY,
        kafka="allow.everyone.if.no.acl.found",
        fixed=True,
    )
    oidc: OidcConfig | None = field(
        default=None,
        metadata=described(
            "Whose tokens clients may log in with (OAUTHBEARER), a table: issuer, audience, jwks_url, ca, "
            "principal_claim, scope, clock_skew_s, allowed_algorithms.",
            read_oidc,
            fixed=True,
        ),
    )
    audit: AuditMode = field(
        default=AuditMode.AUTO,
        metadata=described(
            "Whether who did what is recorded in the topic __headwater_audit: on, off, or auto, which is on where a "
            "listener asks clients who they are.",
            audit_mode,
            section=Section.SECURITY,
            fixed=True,
        ),
    )
    audit_data: bool = setting.switch(
        False,
        "Whether the audit also tells, once a minute, which principals write to and read from which topics; where "
        "authorization is on or observe.",
        section=Section.SECURITY,
        fixed=True,
    )
    audit_exclude_principals: tuple[Principal, ...] = field(
        default=(),
        metadata=described(
            'Principals whose doings are not recorded, such as ["User:monitor"].',
            excluded_principals,
            section=Section.SECURITY,
            fixed=True,
        ),
    )
    insecure: bool = setting.switch(
        False,
        "Whether to start although addresses beyond this machine are open to strangers.",
        section=Section.SECURITY,
        fixed=True,
    )
    insecure_metadata: bool = setting.switch(
        False,
        "Whether to start although what is read from and written to the metadata store can be overheard and altered.",
        section=Section.SECURITY,
        fixed=True,
    )
    peer_tls: PeerTlsConfig | None = field(
        default=None,
        metadata=described(
            "TLS between nodes, a table: certificate, key, ca (who signs the certificates of all nodes), mode "
            "(require; accept and prefer while a cluster moves to TLS).",
            read_peer_tls,
            fixed=True,
        ),
    )
    metrics: Address | None = field(
        default=Address("127.0.0.1", 9644),
        metadata=described('The address of the metrics page, or "off".', setting.address_or_off, fixed=True),
    )
    metrics_token_file: Path | None = field(
        default=None,
        metadata=described(
            "A file with the token that readers of the metrics page must bear. Without it names of topics, groups and "
            "users are shown on a loopback address alone.",
            setting.path,
            fixed=True,
        ),
    )
    http: Address | None = field(
        default=Address("127.0.0.1", 8080),
        metadata=described(
            'The address of the HTTP interface, the schema registry and the console, or "off".',
            setting.address_or_off,
            fixed=True,
        ),
    )
    http_token_file: Path | None = field(
        default=None,
        metadata=described(
            "A file with the token that requests over HTTP must bear; without it none.", setting.path, fixed=True
        ),
    )
    http_ca: Path | None = field(
        default=None,
        metadata=described(
            "PEM file with who signed the listeners' certificates, for the HTTP interface, which is a client of them; "
            "the authorities of the system, unless given.",
            setting.path,
            fixed=True,
        ),
    )
    http_allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata=described(
            "Names, beside that of the address, under which HTTP clients may reach the gateway; * is any.",
            setting.words,
            fixed=True,
        ),
    )
    http_private_webhooks: bool = setting.switch(
        False, "Whether a webhook may be in a private, loopback or link-local range.", fixed=True
    )
    metadata: str | None = field(
        default=None,
        metadata=described(
            "URL of the metadata store; a file in the data directory, unless given.", setting.text, fixed=True
        ),
    )
    peer_listen: Address | None = field(
        default=None,
        metadata=described(
            'The address that other nodes reach this one on: set, it is part of a cluster. Or "off".',
            setting.address_or_off,
            section=Section.CLUSTER,
            fixed=True,
        ),
    )
    peer_advertise: Address | None = field(
        default=None,
        metadata=described(
            "The address that other nodes connect to; the one listened on, unless given.",
            setting.address,
            section=Section.CLUSTER,
            fixed=True,
        ),
    )
    cluster_secret_file: Path | None = field(
        default=None,
        metadata=described(
            "A file with the secret that nodes prove to each other that they know, the same on all of them; the "
            "metadata store keeps one, unless given.",
            setting.path,
            section=Section.CLUSTER,
            fixed=True,
        ),
    )
    roles: tuple[Role, ...] = field(
        default=(Role.BROKER, Role.STORE, Role.CONTROLLER),
        metadata=described(
            "What the node does: broker (leads partitions), store (keeps replicas), controller (may be elected).",
            setting.roles,
            section=Section.CLUSTER,
            kafka="process.roles",
            kafka_value=setting.with_commas,
            fixed=True,
        ),
    )
    rack: str | None = field(
        default=None,
        metadata=described(
            "Where the node stands; replicas are spread over racks.", setting.text, section=Section.CLUSTER,
            kafka="broker.rack", kafka_value=setting.text_or_nothing, fixed=True,
        ),
    )  # fmt: skip
    session_timeout_s: float = setting.seconds(
        6.0, "How long the cluster waits for a silent node.", section=Section.CLUSTER,
        kafka="broker.session.timeout.ms", fixed=True,
    )  # fmt: skip
    default_replication_factor: int = setting.count(
        3,
        "Replicas of a topic whose creator does not say; fewer, if there are fewer stores.",
        least=1,
        section=Section.CLUSTER,
        kafka="default.replication.factor",
    )
    leader_balance: bool = setting.switch(
        True,
        "Whether leaders are evened out over the brokers; otherwise they stay where failovers left them.",
        section=Section.CLUSTER,
        kafka="auto.leader.rebalance.enable",
    )
    leader_balance_after_s: float = setting.seconds(
        60.0,
        "How long no node has come or gone, and no leader was missed, before leaders are evened out.",
        section=Section.CLUSTER,
        kafka="headwater.leader.balance.after.ms",
    )
    store_lost_after_s: float = setting.seconds(
        600.0,
        "How long a store may be away before its segments are copied elsewhere. Longer than a restart takes.",
        section=Section.CLUSTER,
        kafka="headwater.store.lost.after.ms",
    )
    repair_bytes_per_s: int = setting.count(
        50 * MIB, "How fast the controller has segments copied, in all.", least=1, most=MAX_LONG,
        section=Section.CLUSTER, kafka="headwater.repair.bytes.per.second",
    )  # fmt: skip
    leader_throttle_bytes_per_s: int = setting.count(
        MAX_LONG,
        "How fast the node gives away replicas that are throttled: those of leader.replication.throttled.replicas.",
        most=MAX_LONG,
        section=Section.CLUSTER,
        kafka="leader.replication.throttled.rate",
    )
    follower_throttle_bytes_per_s: int = setting.count(
        MAX_LONG,
        "How fast the node gets replicas that are throttled: those of follower.replication.throttled.replicas.",
        most=MAX_LONG,
        section=Section.CLUSTER,
        kafka="follower.replication.throttled.rate",
    )
    alter_log_dirs_bytes_per_s: int = setting.count(
        MAX_LONG,
        "Accepted for Kafka's tools; a node has one directory, and nothing moves between several.",
        most=MAX_LONG,
        section=Section.CLUSTER,
        kafka="replica.alter.log.dirs.io.max.bytes.per.second",
    )
    durability: Durability = field(
        default=Durability.SYNC,
        metadata=described(
            "What an acknowledgement promises unless the topic says: sync survives a power cut, os the process's end.",
            setting.durability,
            fixed=True,
        ),
    )
    auto_create_topics: bool = setting.switch(
        True, "Whether using a topic that does not exist creates it.", kafka="auto.create.topics.enable"
    )
    default_partitions: int = setting.count(
        1, "Partitions of a topic whose creator does not say.", least=1, kafka="num.partitions"
    )
    topic: Mapping[str, str] = field(
        default_factory=dict,
        hash=False,
        metadata=described("Defaults for topics, under Kafka's names.", setting.topic_values, fixed=True),
    )

    max_connections: int = setting.count(
        10_000, "Connections at one time.", least=1, section=Section.LIMITS, kafka="max.connections"
    )
    max_connections_per_ip: int = setting.count(
        10_000, "Of them, from one address.", least=1, section=Section.LIMITS, kafka="max.connections.per.ip"
    )
    max_request_bytes: int = setting.count(
        100 * MIB, "The largest request.", least=1024, section=Section.LIMITS, kafka="socket.request.max.bytes"
    )
    request_memory_bytes: int = setting.count(
        512 * MIB,
        "Memory for requests that are not answered yet; above it no more are read.",
        least=MIB,
        most=MAX_LONG,
        section=Section.LIMITS,
        kafka="queued.max.request.bytes",
    )
    max_requests_per_second: int = setting.count(
        0, "Requests of one connection in a second; 0 sets no limit.", section=Section.LIMITS,
        kafka="headwater.max.requests.per.second",
    )  # fmt: skip
    idle_timeout_s: float = setting.seconds(
        600.0,
        "A connection without traffic is closed after this.",
        section=Section.LIMITS,
        kafka="connections.max.idle.ms",
    )
    half_request_timeout_s: float = setting.seconds(
        30.0, "A request that began to arrive must be complete after this.", section=Section.LIMITS,
        kafka="headwater.half.request.timeout.ms",
    )  # fmt: skip

    group_min_session_timeout_ms: int = setting.count(
        6_000,
        "The shortest session time-out of a consumer.",
        section=Section.GROUPS,
        kafka="group.min.session.timeout.ms",
    )
    group_max_session_timeout_ms: int = setting.count(
        1_800_000,
        "The longest session time-out of a consumer.",
        section=Section.GROUPS,
        kafka="group.max.session.timeout.ms",
    )
    # Kafka waits 3 s, for a fleet of consumers that starts together. Most groups here are one process on one
    # machine, whose user would wait those seconds at each start; a second member costs one more, short, rebalance.
    group_initial_rebalance_delay_ms: int = setting.count(
        0,
        "How long an empty group waits for more members before its first generation.",
        section=Section.GROUPS,
        kafka="group.initial.rebalance.delay.ms",
    )
    group_max_size: int = setting.count(
        10_000, "Members of one group.", least=1, section=Section.GROUPS, kafka="group.max.size"
    )
    group_consumer_session_timeout_ms: int = setting.count(
        45_000,
        "How long a member of the new consumer protocol may be silent.",
        least=1,
        section=Section.GROUPS,
        kafka="group.consumer.session.timeout.ms",
    )
    # Kafka's is 5 s. Members hear of a rebalance with their next heartbeat, so this is most of the pause that one
    # causes; a heartbeat costs some 20 µs, which a thousand members a second do not feel.
    group_consumer_heartbeat_interval_ms: int = setting.count(
        1_000,
        "How often a member of the new consumer protocol sends a heartbeat.",
        least=1,
        section=Section.GROUPS,
        kafka="group.consumer.heartbeat.interval.ms",
    )
    group_consumer_max_size: int = setting.count(
        10_000,
        "Members of one group of the new consumer protocol.",
        least=1,
        section=Section.GROUPS,
        kafka="group.consumer.max.size",
    )
    group_consumer_migration_policy: str = field(
        default="bidirectional",
        metadata=described(
            "Which way a group with members may change its protocol: upgrade, downgrade, bidirectional or disabled.",
            setting.text,
            section=Section.GROUPS,
            kafka="group.consumer.migration.policy",
        ),
    )
    offsets_retention_minutes: int = setting.count(
        10_080,
        "How long the offsets of a group without members are kept.",
        least=1,
        section=Section.GROUPS,
        kafka="offsets.retention.minutes",
    )
    offsets_topic_partitions: int = setting.count(
        8,
        "Partitions of the internal topic that keeps group state. Read when that topic is created, never again.",
        least=1,
        section=Section.GROUPS,
        kafka="offsets.topic.num.partitions",
        fixed=True,
    )

    share_max_size: int = setting.count(
        1_000, "Members of one share group.", least=1, section=Section.GROUPS, kafka="group.share.max.size"
    )
    share_max_sessions: int = setting.count(
        10_000,
        "Share sessions at one time: consumers of all share groups.",
        least=1,
        section=Section.GROUPS,
        kafka="group.share.max.share.sessions",
    )
    share_session_timeout_ms: int = setting.count(
        45_000,
        "How long a member of a share group may be silent, unless its group says.",
        least=200,
        most=3_600_000,
        section=Section.GROUPS,
        kafka="group.share.session.timeout.ms",
    )
    share_heartbeat_interval_ms: int = setting.count(
        5_000,
        "How often a member of a share group sends a heartbeat, unless its group says.",
        least=100,
        most=60_000,
        section=Section.GROUPS,
        kafka="group.share.heartbeat.interval.ms",
    )
    share_record_lock_duration_ms: int = setting.count(
        30_000,
        "How long a record is lent to a member, unless the group says.",
        least=1_000,
        most=3_600_000,
        section=Section.GROUPS,
        kafka="group.share.record.lock.duration.ms",
    )
    share_delivery_count_limit: int = setting.count(
        5,
        "How often a record is delivered before it is set aside, unless the group says.",
        least=1,
        most=100,
        section=Section.GROUPS,
        kafka="group.share.delivery.count.limit",
    )
    share_max_record_locks: int = setting.count(
        2_000,
        "Records of one partition that a share group may have in flight, unless the group says.",
        least=100,
        most=10_000,
        section=Section.GROUPS,
        kafka="group.share.partition.max.record.locks",
    )
    share_state_topic_partitions: int = setting.count(
        8,
        "Partitions of the internal topic that keeps what share groups read. Read when it is created, never again.",
        least=1,
        section=Section.GROUPS,
        kafka="share.coordinator.state.topic.num.partitions",
        fixed=True,
    )
    group_consumer_min_session_timeout_ms: int = setting.bound(1_000, "group.consumer.min.session.timeout.ms")
    group_consumer_max_session_timeout_ms: int = setting.bound(3_600_000, "group.consumer.max.session.timeout.ms")
    group_consumer_min_heartbeat_interval_ms: int = setting.bound(100, "group.consumer.min.heartbeat.interval.ms")
    group_consumer_max_heartbeat_interval_ms: int = setting.bound(60_000, "group.consumer.max.heartbeat.interval.ms")
    share_min_session_timeout_ms: int = setting.bound(200, "group.share.min.session.timeout.ms")
    share_max_session_timeout_ms: int = setting.bound(3_600_000, "group.share.max.session.timeout.ms")
    share_min_heartbeat_interval_ms: int = setting.bound(100, "group.share.min.heartbeat.interval.ms")
    share_max_heartbeat_interval_ms: int = setting.bound(60_000, "group.share.max.heartbeat.interval.ms")
    share_min_record_lock_duration_ms: int = setting.bound(1_000, "group.share.min.record.lock.duration.ms")
    share_max_record_lock_duration_ms: int = setting.bound(3_600_000, "group.share.max.record.lock.duration.ms")
    share_min_delivery_count_limit: int = setting.bound(1, "group.share.min.delivery.count.limit")
    share_max_delivery_count_limit: int = setting.bound(100, "group.share.max.delivery.count.limit")
    share_min_max_record_locks: int = setting.bound(100, "group.share.min.partition.max.record.locks")
    share_max_max_record_locks: int = setting.bound(10_000, "group.share.max.partition.max.record.locks")
    dead_letter_auto_create: bool = setting.switch(
        True,
        "Whether a share group that names no dead-letter topic has one, and whether a missing one is created.",
        section=Section.GROUPS,
        kafka="errors.deadletterqueue.auto.create.topics.enable",
    )
    dead_letter_prefix: str = field(
        default="dlq.",
        metadata=described(
            "What the name of a dead-letter topic begins with; the group's name follows.",
            setting.text,
            section=Section.GROUPS,
            kafka="errors.deadletterqueue.topic.name.prefix",
        ),
    )

    transaction_max_timeout_ms: int = setting.count(
        900_000,
        "How long a transaction may stay open, however long its producer asks for.",
        least=1,
        section=Section.TRANSACTIONS,
        kafka="transaction.max.timeout.ms",
    )
    transactional_id_expiration_ms: int = setting.count(
        604_800_000,
        "How long a transactional id that no producer uses is remembered.",
        least=1,
        section=Section.TRANSACTIONS,
        kafka="transactional.id.expiration.ms",
    )
    transaction_state_topic_partitions: int = setting.count(
        8,
        "Partitions of the internal topic that keeps transactions. Read when that topic is created, never again.",
        least=1,
        section=Section.TRANSACTIONS,
        kafka="transaction.state.log.num.partitions",
        fixed=True,
    )

    tail_cache_bytes: int = setting.count(
        64 * MIB, "Memory for the newest batches of all partitions.", most=MAX_LONG, section=Section.STORAGE,
        kafka="headwater.tail.cache.bytes",
    )  # fmt: skip
    producer_id_expiration_ms: int = setting.count(
        86_400_000,
        "How long an idempotent producer that falls silent is remembered.",
        least=1,
        section=Section.STORAGE,
        kafka="producer.id.expiration.ms",
    )
    retention_check_interval_ms: int = setting.count(
        300_000,
        "How often old segments are looked for.",
        least=1,
        section=Section.STORAGE,
        kafka="log.retention.check.interval.ms",
    )
    cleaner_enabled: bool = setting.switch(
        True, "Whether compacted topics are compacted.", section=Section.STORAGE, kafka="log.cleaner.enable"
    )
    cleaner_interval_ms: int = setting.count(
        15_000, "How often compaction looks for work.", least=1, section=Section.STORAGE, kafka="log.cleaner.backoff.ms"
    )
    cleaner_memory_bytes: int = setting.count(
        64 * MIB,
        "Memory for the keys of one compaction.",
        least=MIB,
        most=MAX_LONG,
        section=Section.STORAGE,
        kafka="log.cleaner.dedupe.buffer.size",
    )

    @classmethod
    def load(cls, path: str | Path | None = None, **overrides: Any) -> Self:
        """From a file, if one is given, and from overrides, which win. An override of None was not given.

        Raises ConfigError."""
        values: dict[str, Any] = {}
        if path is not None:
            for where, name, value in _entries(_read_toml(Path(path)), f"{path}"):
                if name in values:
                    raise ConfigError(f"{where}: key '{name}' is given twice")
                values[name] = _read(where, name, value)
        for name, value in overrides.items():
            if value is not None:
                values[name] = _read("configuration", _known("configuration", name), value)
        config = cls(**values)
        config.check(str(path) if path is not None else "configuration")
        return config

    @property
    def metadata_url(self) -> str:
        return self.metadata or f"sqlite:{self.data_dir / 'metadata.db'}"

    @property
    def client_listeners(self) -> tuple[ListenerConfig, ...]:
        """At least one. Host and port of the first stand for the node where only one address is shown."""
        return self.listener or (plaintext(self.listen, self.advertise),)

    @property
    def gateway_listener(self) -> ListenerConfig | None:
        """By which the gateway of this process reaches the broker: where clients are held to bindings, as a user."""
        plain = [each for each in self.client_listeners if each.protocol is PLAIN]
        with_login = [each for each in self.client_listeners if each.takes_passwords]
        ways = plain + with_login if self.authorizes is Authorization.OFF else with_login + plain
        return ways[0] if ways else None

    @property
    def gateway_logs_in(self) -> bool:
        return self.gateway_listener is not None and self.gateway_listener.protocol.has_login

    @property
    def authorizes(self) -> Authorization:
        """What is not said follows from the listeners: clients are asked who they are for a purpose."""
        if self.authorization is not None:
            return self.authorization
        return Authorization.ON if any(each.asks_who for each in self.client_listeners) else Authorization.OFF

    @property
    def metrics_show_names(self) -> bool:
        """Also to readers without a token: those of this machine, or everyone where strangers are let in anyway."""
        return self.metrics is None or is_loopback(self.metrics.host) or self.insecure

    @property
    def audits(self) -> bool:
        if self.audit is AuditMode.AUTO:
            return any(each.asks_who for each in self.client_listeners)
        return self.audit is AuditMode.ON

    @property
    def is_clustered(self) -> bool:
        return self.peer_listen is not None

    @property
    def internal_replication(self) -> Rules:
        """How many replicas internal topics want; those of a node that is alone begin with the one they can have."""
        return Rules(3, 2) if self.is_clustered else Rules(3, 1)

    @property
    def controller_rules(self) -> ControllerRules:
        return ControllerRules(
            evens_out_leaders=self.leader_balance,
            calm_s=self.leader_balance_after_s,
            dead_store_s=self.store_lost_after_s,
            copy_bytes_per_s=self.repair_bytes_per_s,
        )

    @property
    def topic_defaults(self) -> BrokerDefaults:
        """What topics get that do not say otherwise."""
        overrides = dict(self.topic)
        if self.durability is not Durability.SYNC:
            overrides.setdefault(DURABILITY, self.durability.value)
        return BrokerDefaults(overrides)

    def check(self, where: str) -> None:
        """What no setting can say by itself. Raises ConfigError."""
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError(
                f"{where}: group_consumer_heartbeat_interval_ms is not below group_consumer_session_timeout_ms"
            )
        if self.group_consumer_migration_policy not in {policy.value for policy in MigrationPolicy}:
            policies = ", ".join(policy.value for policy in MigrationPolicy)
            raise ConfigError(f"{where}: group_consumer_migration_policy is one of {policies}")
        if self.share_heartbeat_interval_ms >= self.share_session_timeout_ms:
            raise ConfigError(f"{where}: share_heartbeat_interval_ms is not below share_session_timeout_ms")
        for name in SETTINGS:
            if "_min_" in name and getattr(self, name) > getattr(self, most := name.replace("_min_", "_max_")):
                raise ConfigError(f"{where}: {name} is above {most}")
        if self.is_clustered and self.metadata is None:
            raise ConfigError(
                f"{where}: peer_listen makes the node part of a cluster, which needs metadata that all nodes reach, "
                'such as metadata = "etcd://host:2379"'
            )
        if self.roles and Role.STORE not in self.roles and not self.is_clustered:
            raise ConfigError(f"{where}: a node without a store needs a cluster: set peer_listen and metadata")
        if self.listener and (self.advertise is not None or self.listen != DEFAULT_LISTEN):
            raise ConfigError(f"{where}: give either listen and advertise, or listeners, each with its own")
        if self.oidc is None and any(SaslMechanism.OAUTHBEARER in each.offered for each in self.client_listeners):
            raise ConfigError(
                f"{where}: OAUTHBEARER needs to know whose tokens are believed: add a table [oidc] with issuer and "
                "audience"
            )
        if self.http is not None and self.gateway_listener is None:
            raise ConfigError(
                f"{where}: the HTTP interface reaches the broker by a listener that takes SCRAM or is PLAINTEXT, and "
                'there is none: add one on 127.0.0.1, or set http = "off"'
            )
        if self.advertise is not None and self.advertise.port == 0:
            raise ConfigError(f"{where}: advertise needs the port that clients connect to, not 0")
        self._check_exposure(where)
        try:
            BrokerDefaults(self.topic)
        except RequestError as error:
            raise ConfigError(f"{where}: [topic]: {error.message}") from None

    def _check_exposure(self, where: str) -> None:
        reasons = () if self.insecure else tuple(exposures(self))
        if reasons:
            raise ConfigError(f"{where}: {'; '.join(reasons)}. {ADVICE}")


SETTINGS: dict[str, BrokerSetting] = {f.name: f.metadata["setting"] for f in fields(BrokerConfig)}
BY_KAFKA_NAME = {each.kafka_name: name for name, each in SETTINGS.items() if each.kafka_name is not None}
"""From the name that administrators know to the field."""


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: a configuration file has at most {MAX_FILE_BYTES} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None


def _entries(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, Any]]:
    """Every setting in the file: where it stands, its name, its value."""
    sections = {section.value for section in Section} - {Section.TOP, Section.TOPIC}
    for name, value in table.items():
        if name not in sections:
            yield path, _known(path, name, *sections), value
            continue
        where = f"{path}: [{name}]"
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a table")
        for inner, inner_value in value.items():
            known = _known(where, inner)
            if SETTINGS[known].section != name:
                right = f"[{SETTINGS[known].section}]" if SETTINGS[known].section else "the top of the file"
                raise ConfigError(f"{where}: key '{inner}' belongs to {right}")
            yield where, known, inner_value


def _known(where: str, name: str, *also: str) -> str:
    if name in SETTINGS:
        return name
    near = get_close_matches(name[:100], [*SETTINGS, *also], 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise ConfigError(f"{where}: unknown key '{name[:100]}'{hint}")


def _read(where: str, name: str, value: object) -> Any:
    try:
        read = SETTINGS[name].read(value)
    except ConfigError as problem:
        given = f"{name} = {value!r:.100}: " if not isinstance(value, list | Mapping) else ""
        given = f"[{name}]: " if isinstance(value, Mapping) else given
        raise ConfigError(f"{where}: {given}{problem}") from None
    if name == Section.TOPIC:
        return {BROKER_NAMES.get(key, key): item for key, item in read.items()}
    return read
