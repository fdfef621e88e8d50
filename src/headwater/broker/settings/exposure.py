"""What of a configuration lets strangers in: an address beyond this machine where clients are not asked who they are,
and connections to other machines that can be overheard although those of clients cannot.

A broker does not start with such a configuration unless it says `insecure`: a log that anyone may read and delete is
seldom what was meant. An address is of this machine if it is a loopback address or `localhost`; any other name may lead
to it from elsewhere.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from headwater.broker.settings.authorization import Authorization
from headwater.broker.settings.listener_config import ListenerConfig, SecurityProtocol, is_loopback
from headwater.metadata.url_text import unencrypted_hosts
from headwater.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from headwater.broker.settings.broker_config import BrokerConfig

ADVICE: Final = (
    "`headwater security init` writes a configuration with TLS and logins; --insecure (insecure = true) starts as it is"
)


def exposures(config: "BrokerConfig") -> Iterator[str]:
    """One sentence for each."""
    for listener in config.client_listeners:
        reason = _of_listener(listener)
        if reason is not None and not is_loopback(listener.listen.host):
            yield f"listener {listener.name} on {listener.listen} {reason}"
    if config.http is not None and not is_loopback(config.http.host):
        if config.authorizes is not Authorization.OFF:
            yield f"HTTP on {config.http} does not hold its clients to access control bindings: keep it on loopback"
        elif config.http_token_file is None:
            yield f"HTTP on {config.http} asks for no token: set http_token_file, or keep it on loopback"
        else:
            yield f"HTTP on {config.http} is not encrypted, so its token can be overheard: keep it on loopback"
    yield from _behind(config)
    if ANONYMOUS in config.super_users:
        yield f"super_users names {ANONYMOUS}: a client that does not say who it is may do everything"
    if ANONYMOUS in config.gateways:
        yield f"gateways names {ANONYMOUS}: a client that does not say who it is may read the secrets of webhooks"


def _behind(config: "BrokerConfig") -> Iterator[str]:
    """What clients do not see: other nodes, and the metadata store."""
    beyond = [each for each in config.client_listeners if not is_loopback(each.listen.host)]
    peers = config.peer_listen
    if peers is not None and not is_loopback(peers.host) and config.peer_tls is None:
        encrypted = [each.name for each in beyond if each.protocol.is_encrypted]
        if encrypted:
            yield (
                f"nodes on {peers} send each other what clients send to listener {encrypted[0]} with TLS, and without "
                "it: add a table [peer_tls]"
            )
    if config.insecure_metadata or not any(each.asks_who for each in config.client_listeners):
        return
    open_hosts = [each for each in unencrypted_hosts(config.metadata_url) if not is_loopback(each)]
    if open_hosts:
        yield (
            f"the metadata store on {open_hosts[0]} has what users log in with, and is reached without TLS: use "
            "etcds:// or zookeepers://, or start with --insecure-metadata (insecure_metadata = true)"
        )


def _of_listener(listener: ListenerConfig) -> str | None:
    if listener.protocol is SecurityProtocol.SASL_PLAINTEXT:
        return "is not encrypted: what its users read and write can be overheard"
    if listener.asks_who:
        return None
    if listener.protocol is SecurityProtocol.SSL:
        return 'asks no client who it is: set client_certificates = "require"'
    return "asks no client who it is, and is not encrypted"
