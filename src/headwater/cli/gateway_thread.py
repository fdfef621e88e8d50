"""The gateway in the process of a broker: it begins when the broker has begun, and ends before it."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.broker.server import Broker
    from headwater.gateway.server import GatewayThread

log = logging.getLogger(__name__)


def start_gateway(broker: "Broker") -> "GatewayThread | None":
    """None, and a warning with advice, if its address cannot be had: a broker without HTTP still serves."""
    config = broker.config
    if config.http is None:
        return None
    from headwater.broker.setting import Address
    from headwater.cli.runtime import new_event_loop
    from headwater.gateway.config import GatewayConfig
    from headwater.gateway.server import GatewayThread, listen

    host, port = broker.address
    metrics = broker.metrics_address
    settings = GatewayConfig(
        bootstrap=str(Address(_reachable(host), port)),
        host=config.http.host,
        port=config.http.port,
        broker_pages=str(Address(_reachable(metrics[0]), metrics[1])) if metrics is not None else None,
        token_file=config.http_token_file,
        allowed_hosts=config.http_allowed_hosts,
        private_webhooks=config.http_private_webhooks,
    )
    try:
        gateway = GatewayThread(settings, listen(settings), new_event_loop)
    except OSError as error:
        log.warning(
            'http_unavailable address=%s reason="%s" advice="choose another address with --http, or --http off"',
            config.http,
            error.strerror or error,
        )
        return None
    gateway.start()
    return gateway


def _reachable(host: str) -> str:
    """How a process of this machine reaches an address that was listened on."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
