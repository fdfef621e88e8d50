"""What this node proves to the others that it belongs to the cluster with, from its configuration."""

from headwater.broker.settings.broker_config import BrokerConfig
from headwater.peers.identity import PeerTls

LISTENER = "peers"
"""As logs call the listener for other nodes."""


async def open_peer_tls(config: BrokerConfig) -> PeerTls | None:
    """None without the table [peer_tls]. Raises UnusableCertificate."""
    files = config.peer_tls
    if files is None or config.peer_listen is None:
        return None
    from headwater.transport.tls import ClientCertificates, ServerTlsFiles
    from headwater.transport.tls_reload import ReloadedTls

    host = (config.peer_advertise or config.peer_listen).host
    reloaded = await ReloadedTls.open(
        LISTENER,
        ServerTlsFiles(
            certificate=files.certificate,
            key=files.key,
            client_ca=files.ca,
            client_certificates=ClientCertificates.REQUIRE,
            is_of_node=True,
        ),
        (host,),
    )
    return PeerTls(reloaded, files.mode)
