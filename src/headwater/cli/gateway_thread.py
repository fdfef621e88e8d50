"""The gateway in the process of a broker: started after the broker, stopped before it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.broker.server import Broker
    from headwater.broker.settings.setting import Address
    from headwater.client.security_options import ClientSecurity
    from headwater.gateway.server import GatewayThread


def start_gateway(broker: "Broker", port: int | None = None) -> "GatewayThread | None":
    """On this port, or the one of the setting. None if the setting http is off. Raises OSError if it cannot listen
    there, BadToken for a bad token file."""
    config = broker.config
    if config.http is None:
        return None
    from headwater.cli.local_broker_pages import LocalBrokerPages
    from headwater.cli.runtime import new_event_loop
    from headwater.gateway.config import GatewayConfig
    from headwater.gateway.server import GatewayThread, listen

    if config.http_token_file is not None:
        from headwater.transport.token_file import read_token

        read_token(config.http_token_file)
    bootstrap, security = _way_in(broker)
    settings = GatewayConfig(
        bootstrap=str(bootstrap),
        security=security,
        host=config.http.host,
        port=config.http.port if port is None else port,
        token_file=config.http_token_file,
        allowed_hosts=config.http_allowed_hosts,
        private_webhooks=config.http_private_webhooks,
    )
    gateway = GatewayThread(settings, listen(settings), new_event_loop, LocalBrokerPages(broker))
    gateway.start()
    return gateway


def _way_in(broker: "Broker") -> "tuple[Address, ClientSecurity | None]":
    """Where the gateway connects, and how it logs in."""
    from headwater.broker.access.gateway_user import GATEWAY_USER
    from headwater.broker.settings.authorization import Authorization
    from headwater.broker.settings.listener_config import DEFAULT_MECHANISMS
    from headwater.broker.settings.setting import Address
    from headwater.logs.events import log_event
    from headwater.security.principal import ANONYMOUS, Principal

    config, listener = broker.config, broker.config.gateway_listener
    assert listener is not None, "the configuration was checked"
    if config.authorizes is Authorization.ON:
        principal = Principal.user(GATEWAY_USER) if listener.protocol.has_login else ANONYMOUS
        log_event(
            "http_acts_as_one_user",
            principal=str(principal),
            reason="clients of HTTP are not held to access control bindings of their own; it is served on loopback",
        )
    port = broker.listeners.port(listener.name)
    if not listener.protocol.has_login:
        return Address(_reachable(listener.listen.host), port), None
    assert broker.gateway_password is not None, "a listener with logins knows the gateway"
    from headwater.client.security_options import ClientSecurity
    from headwater.client.settings import SaslLogin, TlsFiles

    mechanism = next(each for each in listener.offered if each in DEFAULT_MECHANISMS)
    tls = None
    if listener.protocol.is_encrypted:
        authorities = str(config.http_ca) if config.http_ca is not None else None
        tls = TlsFiles(authorities, None, None, None, checks_host_name=True)
    login = SaslLogin(mechanism=mechanism, user=GATEWAY_USER, password=broker.gateway_password)
    # Under the name that its certificate has.
    host, port = listener.advertised(port)
    return Address(_reachable(host), port), ClientSecurity(tls, login)


def _reachable(host: str) -> str:
    """The address for a client on this machine: a wildcard address cannot be connected to everywhere."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
