"""Settings that all Kafka clients of the gateway have in common."""

from typing import Any

from headwater.client.security_options import ClientSecurity
from headwater.client.settings import ConnectionSettings
from headwater.gateway.config import GatewayConfig

CLIENT_ID = "headwater-gateway"
MAX_BATCH_OVERHEAD_BYTES = 64 * 1024


def connection_settings(config: GatewayConfig) -> ConnectionSettings:
    """For our own client."""
    security = config.security or ClientSecurity()
    return ConnectionSettings(
        client_id=CLIENT_ID,
        tls=security.tls,
        sasl=security.sasl,
        request_timeout_s=config.request_timeout_ms / 1000,
    )


def client_settings(config: GatewayConfig, **more: Any) -> dict[str, Any]:
    """For any confluent-kafka client. Dots are underscores in the names of keywords."""
    return {
        "bootstrap.servers": config.bootstrap,
        **(config.security.options() if config.security is not None else {}),
        "client.id": CLIENT_ID,
        "allow.auto.create.topics": False,
        # Errors of single connections: librdkafka tries again, and the call that matters raises.
        "log_level": 0,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def producer_settings(config: GatewayConfig, **more: Any) -> dict[str, Any]:
    return client_settings(
        config,
        enable_idempotence=True,
        partitioner="murmur2_random",  # as the Java client has it: one key, one partition, with every client
        linger_ms=1,
        message_timeout_ms=config.request_timeout_ms,
        topic_metadata_propagation_max_ms=1000,
        message_max_bytes=config.max_record_bytes + MAX_BATCH_OVERHEAD_BYTES,
        queue_buffering_max_messages=2 * config.max_in_flight + 20_000,
        queue_buffering_max_kbytes=2 * config.max_buffered_bytes // 1024,
        **more,
    )
