"""Figures that are read off the broker when its metrics page is requested, and cost nothing otherwise."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from headwater.broker.metrics.metrics import Metrics, Sample
from headwater.broker.quotas.client_meters import ClientMeters, QuotaUsage

if TYPE_CHECKING:
    from headwater.broker.access.token_issuer import TokenIssuer
    from headwater.broker.audit.audit_writer import AuditWriter
    from headwater.broker.server import Broker


def watch_broker(broker: "Broker") -> None:
    watch = broker.metrics.watch
    catalog = broker.catalog

    def log_sizes() -> Iterator[Sample]:
        for topic in catalog:
            yield (topic.name,), sum(partition.size_bytes for partition in topic.partitions())

    def log_records() -> Iterator[Sample]:
        for topic in catalog:
            yield (
                (topic.name,),
                sum(partition.high_watermark - partition.log_start for partition in topic.partitions()),
            )

    def segments() -> Iterator[Sample]:
        for topic in catalog:
            yield (topic.name,), sum(len(list(partition.register.chain)) for partition in topic.partitions())

    def group_lags() -> Iterator[Sample]:
        for group, topic, index, lag in broker.groups.views.lags(
            lambda group: broker.group_configs.subscription(group).topic
        ):
            yield (group, topic, str(index)), lag

    def queue_lags() -> Iterator[Sample]:
        for queue in broker.shares:
            yield (queue.key.group_id, queue.partition.topic_name, str(queue.partition.id.index)), queue.lag

    def queue_leases() -> Iterator[Sample]:
        for queue in broker.shares:
            names = (queue.key.group_id, queue.partition.topic_name, str(queue.partition.id.index))
            yield names, queue.share.acquired_count

    def one(value: float) -> Iterator[Sample]:
        yield (), value

    watch("log_size_bytes", "Bytes on disk, without the journal.", ("topic",), log_sizes)
    watch("log_records", "Offsets between the start of the log and its high watermark.", ("topic",), log_records)
    watch("log_segments", "Segments, the open ones included.", ("topic",), segments)
    watch(
        "group_lag",
        "Records that the group has still to read; from the start of the log where it has no position.",
        ("group", "topic", "partition"),
        group_lags,
    )
    watch("queue_lag", "Records that a share group has not resolved.", ("group", "topic", "partition"), queue_lags)
    watch("queue_leases", "Records lent to members.", ("group", "topic", "partition"), queue_leases)
    watch("share_sessions", "Share sessions of consumers.", (), lambda: one(len(broker.shares.sessions)))
    watch("topics", "Topics.", (), lambda: one(len(catalog)))
    watch("partitions", "Partitions that this broker leads.", (), lambda: one(catalog.partition_count))
    watch("tail_cache_bytes", "The newest batches, in memory.", (), lambda: one(broker.tail_cache.size_bytes))
    watch("request_memory_bytes", "Held by unanswered requests.", (), lambda: one(broker.server.held_bytes))
    watch("fetch_sessions", "Fetch sessions of consumers.", (), lambda: one(len(broker.fetch_sessions)))
    mode = broker.authorizer.mode.value
    watch("authorization_mode", "off, observe (refuses nothing) or on.", ("mode",), lambda: iter([((mode,), 1)]))
    if broker.audit_writer is not None:
        _watch_audit(broker.metrics, broker.audit_writer)
    _watch_quotas(broker.metrics, broker.meters)
    if broker.issuer is not None:
        _watch_issuer(broker.metrics, broker.issuer)


def _watch_quotas(metrics: Metrics, meters: ClientMeters) -> None:
    def watch(name: str, help: str, value: Callable[[QuotaUsage], float]) -> None:
        metrics.watch(name, help, ("quota", "user", "client_id", "ip"), lambda: samples(value))

    def samples(value: Callable[[QuotaUsage], float]) -> Iterator[Sample]:
        for each in meters.usages():
            user, client_id, ip = each.metered
            yield (each.key.value, user or "", client_id or "", ip or ""), value(each)

    watch("quota_limit", "Of clients that were measured.", lambda usage: usage.limit)
    watch(
        "quota_rate",
        "What clients use of a quota, per second or in percent.",
        lambda usage: usage.meter.per_second(meters.now_ms()),
    )
    watch("quota_violations", "Requests and connections that came with a wait.", lambda usage: usage.meter.violations)
    watch("quota_throttle_seconds", "All these waits together.", lambda usage: usage.meter.throttled_ms / 1_000)


def _watch_issuer(metrics: Metrics, issuer: "TokenIssuer") -> None:
    def keys_age() -> Iterator[Sample]:
        if issuer.keys_age_s is not None:
            yield (), issuer.keys_age_s

    def failures() -> Iterator[Sample]:
        yield (), issuer.failures

    metrics.watch("oidc_keys_age_seconds", "Since the keys of the issuer of tokens were fetched.", (), keys_age)
    metrics.watch("oidc_key_fetch_failures", "Fetches of these keys that failed.", (), failures)


def _watch_audit(metrics: Metrics, writer: "AuditWriter") -> None:
    def one(value: float) -> Iterator[Sample]:
        yield (), value

    metrics.watch(
        "audit_events_pending",
        "Events that differ, and are counted until they are written.",
        (),
        lambda: one(len(writer.pending)),
    )
    metrics.watch("audit_events_dropped", "Events that were left out.", (), lambda: one(writer.pending.dropped_total))
    metrics.watch(
        "audit_records_written", "Records that the audit topic got from this node.", (), lambda: one(writer.written)
    )
    metrics.watch("audit_write_failures", "Writes that failed, and are tried again.", (), lambda: one(writer.failures))
