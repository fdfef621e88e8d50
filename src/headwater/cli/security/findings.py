"""What is wrong, or soon will be, with how a broker is secured: from its configuration and the files that it names."""

import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.broker.access.bootstrap_users import FILE_NAME
from headwater.broker.access.gateway_user import GATEWAY_USER
from headwater.broker.cluster.peer_identity import peer_hosts, tls_files
from headwater.broker.settings.authorization import Authorization
from headwater.broker.settings.exposure import exposures
from headwater.peers.identity import PeerTlsMode
from headwater.transport.tls import ClientCertificates, ServerTlsFiles, read_context
from headwater.transport.tls_errors import UnusableCertificate

if TYPE_CHECKING:
    from headwater.broker.settings.broker_config import BrokerConfig
    from headwater.broker.settings.listener_config import ListenerConfig

EXPIRES_SOON_DAYS: Final = 30
_OTHERS: Final = stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    finding: str
    advice: str


def findings(config: "BrokerConfig") -> Iterator[Finding]:
    for sentence in exposures(replace(config, insecure_metadata=False)):  # what was accepted is there all the same
        yield Finding("listeners", sentence, "use TLS and logins, or loopback")
    if config.authorizes is Authorization.OFF and any(each.asks_who for each in config.client_listeners):
        yield Finding("authorization", "every user may do everything", 'set authorization = "on"')
    if config.authorizes is Authorization.OBSERVE:
        yield Finding("authorization", "what bindings refuse is only logged", 'set authorization = "on" when it fits')
    if config.authorizes is not Authorization.OFF and config.http is not None and config.http_token_file is None:
        finding = f"HTTP on {config.http} lets every program of this machine do what User:{GATEWAY_USER} may"
        yield Finding("http", finding, 'set http_token_file, or http = "off"')
    if config.authorizes is not Authorization.OFF and not config.audits:
        yield Finding("audit", "who does what is not recorded", 'set audit = "auto"')
    for listener in config.client_listeners:
        yield from _of_certificate(listener)
    yield from _of_peers(config)
    yield from _of_secrets(config)


def _of_certificate(listener: "ListenerConfig") -> Iterator[Finding]:
    if listener.certificate is None or listener.key is None:
        return
    what = f"listener {listener.name}"
    files = ServerTlsFiles(
        certificate=listener.certificate,
        key=listener.key,
        client_ca=listener.client_ca,
        client_certificates=ClientCertificates(listener.client_certificates),
        revoked=listener.revoked,
    )
    yield from _of_files(what, files, () if listener.advertise is None else (listener.advertise.host,))


def _of_peers(config: "BrokerConfig") -> Iterator[Finding]:
    tls = config.peer_tls
    if tls is None or not config.is_clustered:
        return
    yield from _of_files("peer_tls", tls_files(tls), peer_hosts(config))
    if tls.mode is not PeerTlsMode.REQUIRE:
        finding = f'nodes without TLS are let in (mode = "{tls.mode}")'
        yield Finding("peer_tls", finding, 'set mode = "require" when all nodes have TLS')


def _of_files(what: str, files: ServerTlsFiles, hosts: tuple[str, ...]) -> Iterator[Finding]:
    now = datetime.now(UTC)
    try:
        expires = read_context(files, now, hosts).certificate.not_after
    except UnusableCertificate as error:
        yield Finding(what, str(error), "the broker does not start, or keeps the certificate that it has")
        return
    days = (expires - now).days
    if days < EXPIRES_SOON_DAYS:
        yield Finding(what, f"the certificate expires in {days} days", "replace its files; they are read again")


def _of_secrets(config: "BrokerConfig") -> Iterator[Finding]:
    """Files that others on this machine may read."""
    paths = [config.data_dir, config.http_token_file, config.data_dir / "tls" / "ca.key"]
    paths += [each.key for each in config.client_listeners]
    paths += [config.cluster_secret_file, config.peer_tls.key if config.peer_tls is not None else None]
    if config.metadata_url.startswith("sqlite:"):
        paths.append(Path(config.metadata_url.removeprefix("sqlite:").removeprefix("//")))
    for path in paths:
        if path is not None and _is_open(path):
            yield Finding(str(path), "others on this machine may read it", f"chmod o= {path}")
    if (config.data_dir / FILE_NAME).exists():
        yield Finding(
            str(config.data_dir / FILE_NAME), "the first users were not taken in yet", "start the broker once"
        )


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & _OTHERS)
    except OSError:
        return False
