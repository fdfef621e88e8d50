"""What an operator decides about the gateway."""

from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    bootstrap: str
    """Of the cluster: host:port, with commas between."""
    host: str = "127.0.0.1"
    port: int = 8080
    """0 takes a free one."""
    broker_pages: str | None = None
    """host:port of the broker's own page (metrics, groups, segments), where there is one."""
    token_file: Path | None = None
    """Holds the token that every request must bear; without it nobody is asked."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that the Host header may give besides those of the address that is listened on."""
    private_webhooks: bool = False
    """Whether a webhook may be in a private, loopback or link-local range."""
    max_record_bytes: int = 1 * MIB
    max_body_bytes: int = 16 * MIB
    """Of a request that carries many records."""
    max_in_flight: int = 10_000
    """Records that were taken and not yet acknowledged by the cluster; then 429."""
    threads: int = 16
    """For calls that block."""
