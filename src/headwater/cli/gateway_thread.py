"""The gateway in the process of a broker: started after the broker, stopped before it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.broker.server import Broker
    from headwater.gateway.server import GatewayThread


def start_gateway(broker: "Broker") -> "GatewayThread | None":
    """None if the setting http is off. Raises OSError if it cannot listen there, BadToken for a bad token file."""
    config = broker.config
    if config.http is None:
        return None
    from headwater.broker.settings.setting import Address
    from headwater.cli.local_broker_pages import LocalBrokerPages
    from headwater.cli.runtime import new_event_loop
    from headwater.gateway.config import GatewayConfig
    from headwater.gateway.server import GatewayThread, listen

    if config.http_token_file is not None:
        from headwater.gateway.http.security import read_token

        read_token(config.http_token_file)
    host, port = broker.plaintext_address
    settings = GatewayConfig(
        bootstrap=str(Address(_reachable(host), port)),
        host=config.http.host,
        port=config.http.port,
        token_file=config.http_token_file,
        allowed_hosts=config.http_allowed_hosts,
        private_webhooks=config.http_private_webhooks,
    )
    gateway = GatewayThread(settings, listen(settings), new_event_loop, LocalBrokerPages(broker))
    gateway.start()
    return gateway


def _reachable(host: str) -> str:
    """The address for a client on this machine: a wildcard address cannot be connected to everywhere."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
