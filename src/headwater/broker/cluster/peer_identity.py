"""What this node proves to the others that it belongs to the cluster with, from its configuration."""

from typing import TYPE_CHECKING

from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.peer_tls_config import PeerTlsConfig
from headwater.peers.identity import PeerTls

if TYPE_CHECKING:  # reads certificates, which a node without TLS does not
    from headwater.transport.tls import ServerTlsFiles

LISTENER = "peers"
"""As logs call the listener for other nodes."""


async def open_peer_tls(config: BrokerConfig) -> PeerTls | None:
    """None without the table [peer_tls]. Raises UnusableCertificate."""
    files = config.peer_tls
    if files is None or not config.is_clustered:
        return None
    from headwater.transport.tls_reload import ReloadedTls

    return PeerTls(await ReloadedTls.open(LISTENER, tls_files(files), peer_hosts(config)), files.mode)


def tls_files(config: PeerTlsConfig) -> "ServerTlsFiles":
    from headwater.transport.tls import ClientCertificates, ServerTlsFiles

    return ServerTlsFiles(
        certificate=config.certificate,
        key=config.key,
        client_ca=config.ca,
        client_certificates=ClientCertificates.REQUIRE,
        is_of_node=True,
    )


def peer_hosts(config: BrokerConfig) -> tuple[str, ...]:
    """What the certificate must name: where other nodes reach this one."""
    address = config.peer_advertise or config.peer_listen
    return (address.host,) if address is not None else ()
