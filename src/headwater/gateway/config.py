"""What an operator decides about the gateway."""

from dataclasses import dataclass
from pathlib import Path

from headwater.client.security_options import ClientSecurity

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    bootstrap: str
    """Of the cluster: host:port, with commas between."""
    security: ClientSecurity | None = None
    """How the gateway gets in; None: without TLS and login."""
    host: str = "127.0.0.1"
    port: int = 8080
    """0 takes a free one."""
    broker_pages: str | None = None
    """host:port of a broker's own pages (metrics, groups, segments); not for the broker in the same process."""
    broker_pages_token: bytes | None = None
    """What that broker asks its readers for."""
    token_file: Path | None = None
    """Holds the token that every request must bear; without it no token is needed."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that the Host header may give besides those of the address that is listened on; `*` is any."""
    private_webhooks: bool = False
    """Whether a webhook may be in a private, loopback or link-local range."""
    max_record_bytes: int = 1 * MIB
    """Key, value and headers of one record; then 413. A topic may allow less (max.message.bytes)."""
    max_body_bytes: int = 16 * MIB
    """Of a request that carries many records."""
    max_buffered_bytes: int = 256 * MIB
    """Of all bodies that are being read or written at one time; then 429."""
    max_in_flight: int = 10_000
    """Records that were taken and not yet acknowledged by the cluster; then 429."""
    max_connections: int = 4096
    """At one time; then 503."""
    request_timeout_ms: int = 10_000
    """How long the cluster has to acknowledge a record or to answer a question; then 503."""
    threads: int = 16
    """For calls that block."""
    readers: int = 16
    """Reads without a group at one time, including reads that wait for records; then 429."""
