"""The listeners for clients: their certificates, their sockets, and the addresses that clients are given.

Certificates are read before anything else of the broker starts: a wrong one must not make it join a cluster first.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.access.login_outcome import RecordLogin
from headwater.broker.access.sasl_session import Logins, SaslSession
from headwater.broker.lifetime import Lifetime
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.listener_config import ListenerConfig
from headwater.model.clock import Clock
from headwater.model.cluster import NodeListener
from headwater.security.sasl_server import SaslRules
from headwater.transport.connection import Connection
from headwater.transport.listener import Listener
from headwater.transport.server import Server, reserve

if TYPE_CHECKING:
    from headwater.transport.tls_reload import ReloadedTls


@dataclass(frozen=True, slots=True)
class _Place:
    config: ListenerConfig
    tls: "ReloadedTls | None"
    bound: socket.socket | None
    """Has the address already; None on a standalone node, which takes it last."""


class ClientListeners:
    def __init__(self, places: Sequence[_Place]) -> None:
        self._places = places
        self._ports: dict[str, int] = {
            place.config.name: place.bound.getsockname()[1] for place in places if place.bound is not None
        }

    @classmethod
    async def prepare(cls, config: BrokerConfig, stack: AsyncExitStack) -> "ClientListeners":
        """Raises UnusableCertificate; for a member of a cluster, OSError if an address cannot be had. Other nodes tell
        clients where a member listens, so it takes its addresses before it registers; no client is let in yet."""
        places = []
        for each in config.client_listeners:
            tls = await _tls(each)
            bound = None
            if config.is_clustered:
                bound = await reserve(*each.listen)
                stack.callback(bound.close)
            places.append(_Place(each, tls, bound))
        return cls(places)

    async def open(self, server: Server, logins: Logins, clock: Clock, lifetime: Lifetime) -> None:
        """Let clients in, on all addresses; look at the certificates from now on."""
        for place in self._places:
            if place.tls is not None:
                lifetime.spawn(place.tls.follow())
            listener = _listener(place.config, place.tls, logins, clock)
            _, port = await server.listen(*place.config.listen, place.bound, listener)
            self._ports[place.config.name] = port

    def advertised(self) -> tuple[NodeListener, ...]:
        """Where clients reach this node, on each listener. The ports are known when the sockets are."""
        return tuple(
            NodeListener(place.config.name, *place.config.advertised(self._port(place.config)))
            for place in self._places
        )

    def port(self, name: str) -> int:
        """Of the listener with this name."""
        return next(self._port(place.config) for place in self._places if place.config.name == name)

    def _port(self, config: ListenerConfig) -> int:
        return self._ports.get(config.name, config.listen.port)


def _listener(config: ListenerConfig, tls: "ReloadedTls | None", logins: Logins, clock: Clock) -> Listener:
    new_login = None
    if config.protocol.has_login:
        new_login = partial(_new_login, logins, logins.rules(config.offered, config.reauth_ms))
    return Listener(
        name=config.name,
        tls=tls,
        asks_who=config.protocol.has_login,
        new_login=new_login,
        examine=_examine(config, clock, logins.record),
        max_connections=config.max_connections,
    )


def _new_login(logins: Logins, rules: SaslRules, connection: Connection) -> SaslSession:
    return SaslSession(connection, logins, rules)


def _examine(config: ListenerConfig, clock: Clock, record: RecordLogin) -> Callable[[Connection], None] | None:
    if config.client_certificates == "none":
        return None
    from headwater.broker.access.certificate_logins import CertificateLogins

    return CertificateLogins(clock, None if config.protocol.has_login else config.principals(), record).admit


async def _tls(config: ListenerConfig) -> "ReloadedTls | None":
    if not config.protocol.is_encrypted:
        return None
    from headwater.transport.tls import ClientCertificates, ServerTlsFiles
    from headwater.transport.tls_reload import ReloadedTls

    assert config.certificate is not None and config.key is not None, "the configuration was checked"
    files = ServerTlsFiles(
        certificate=config.certificate,
        key=config.key,
        client_ca=config.client_ca,
        client_certificates=ClientCertificates(config.client_certificates),
        revoked=config.revoked,
    )
    hosts = () if config.advertise is None else (config.advertise.host,)
    return await ReloadedTls.open(config.name, files, hosts)
