"""TLS of a listener: its files, the context that is made from them, and what is wrong with them.

A context is never changed after it was made: one that is loaded again would keep authorities that were taken away, and
a certificate half written would end it. `tls_reload` makes a new one when the files have changed, and keeps the old one
while the new files do not fit together.

TLS 1.2 and 1.3 with forward secrecy and authenticated ciphers, no tickets (a client would outlive the removal of its
authority by hours), no renegotiation, no compression.
"""

import enum
import ssl
import stat
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headwater.transport.tls_errors import UnusableCertificate

_CIPHERS_OF_1_2: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_OPTIONS: Final = ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
MAX_FILE_BYTES: Final = 1024 * 1024
_OTHERS_MAY_READ: Final = stat.S_IRWXO


class ClientCertificates(enum.StrEnum):
    NONE = "none"
    REQUEST = "request"
    """A client may show one; it must be good."""
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTlsFiles:
    """PEM files of a listener."""

    certificate: Path
    """The chain: the listener's own certificate first."""
    key: Path
    client_ca: Path | None = None
    """Who signs the certificates of clients."""
    client_certificates: ClientCertificates = ClientCertificates.NONE
    revoked: Path | None = None
    """A list of revoked certificates (CRL) by the authority of clients."""
    is_of_node: bool = False
    """The certificate is shown to other nodes as well, which are servers: `client_ca` signs theirs."""

    @property
    def paths(self) -> tuple[Path, ...]:
        optional = (self.client_ca, self.revoked)
        return (self.certificate, self.key, *(path for path in optional if path is not None))


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What the listener's own certificate says."""

    names: tuple[str, ...]
    """DNS names and addresses that it is for."""
    not_before: datetime
    not_after: datetime
    der: bytes

    def covers(self, host: str) -> bool:
        wanted = host.lower().rstrip(".")
        parent = wanted.partition(".")[2]
        return any(name == wanted or (parent and name == f"*.{parent}") for name in self.names)


@dataclass(frozen=True, slots=True)
class TlsContext:
    """Files as they were read at one moment."""

    context: ssl.SSLContext
    certificate: CertificateFacts
    outgoing: ssl.SSLContext | None = None
    """For connections to other nodes, whose names are checked; None unless the files are a node's."""


def read_context(files: ServerTlsFiles, now: datetime, hosts: tuple[str, ...] = ()) -> TlsContext:
    """A context for the listener that clients reach under the names `hosts`. Reads files: not for the event loop.
    Raises UnusableCertificate."""
    _check_key_mode(files.key)
    certificate = _certificate(files.certificate)
    if now > certificate.not_after:
        raise UnusableCertificate(
            f"{files.certificate}: the certificate expired on {certificate.not_after:%Y-%m-%d %H:%M} UTC. Renew it."
        )
    for host in hosts:
        if not certificate.covers(host):
            names = ", ".join(certificate.names) or "none"
            who = "other nodes" if files.is_of_node else "clients"
            raise UnusableCertificate(
                f"{files.certificate}: {who} are sent to {host}, which the certificate is not for (it names {names})."
                f" Advertise one of its names, or get one with {host} among its subject alternative names."
            )
    context = _with_certificate(ssl.PROTOCOL_TLS_SERVER, files)
    _ask_clients(context, files)
    return TlsContext(context, certificate, _outgoing(files) if files.is_of_node else None)


def _with_certificate(side: int, files: ServerTlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS_OF_1_2)
    context.options |= _OPTIONS
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise UnusableCertificate(
            f"The certificate {files.certificate} and the key {files.key} cannot be used together: {_words(error)}."
        ) from error
    return context


def _outgoing(files: ServerTlsFiles) -> ssl.SSLContext:
    """The other node must have a certificate of the authority, for the name by which it is reached."""
    context = _with_certificate(ssl.PROTOCOL_TLS_CLIENT, files)
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname, "a client's context asks for both"
    _trust(context, files)
    return context


def _ask_clients(context: ssl.SSLContext, files: ServerTlsFiles) -> None:
    context.num_tickets = 0
    if files.client_certificates is ClientCertificates.NONE:
        return
    required = files.client_certificates is ClientCertificates.REQUIRE
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    _trust(context, files)


def _trust(context: ssl.SSLContext, files: ServerTlsFiles) -> None:
    if files.client_ca is None:
        raise UnusableCertificate("A listener that asks clients for certificates needs client_ca: who signs them.")
    try:
        context.load_verify_locations(files.client_ca)
        if files.revoked is not None:
            context.load_verify_locations(files.revoked)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (OSError, ssl.SSLError) as error:
        who = "nodes" if files.is_of_node else "clients"
        raise UnusableCertificate(f"The authority of {who} cannot be read: {_words(error)}.") from error


def _certificate(path: Path) -> CertificateFacts:
    try:
        with path.open("rb") as file:
            pem = file.read(MAX_FILE_BYTES + 1)
        if len(pem) > MAX_FILE_BYTES:
            raise UnusableCertificate(f"{path} has more than {MAX_FILE_BYTES} bytes: it is not a certificate.")
        own = x509.load_pem_x509_certificates(pem)[0]
    except OSError as error:
        raise UnusableCertificate(f"The certificate {path} cannot be read: {_words(error)}.") from error
    except ValueError as error:
        raise UnusableCertificate(f"{path} has no certificate in PEM form: {error}.") from error
    return CertificateFacts(
        _names(own), own.not_valid_before_utc, own.not_valid_after_utc, own.public_bytes(Encoding.DER)
    )


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    dns = (name.lower() for name in names.get_values_for_type(x509.DNSName))
    return (*dns, *map(str, names.get_values_for_type(x509.IPAddress)))


def _check_key_mode(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UnusableCertificate(f"The key {path} cannot be read: {_words(error)}.") from error
    if mode & _OTHERS_MAY_READ:
        raise UnusableCertificate(
            f"Everybody on this machine may read the key {path} (mode {stat.S_IMODE(mode):04o}). Run: chmod 600 {path}"
        )


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return error.strerror or str(error)


Stamp = tuple[tuple[int, int, int], ...]
"""When the files were written, which files they are, and how long: enough to see that one was replaced."""


def stamp(files: ServerTlsFiles) -> Stamp | None:
    """None while a file is missing: it is just being replaced. Symbolic links are followed, because Kubernetes replaces
    the directory that they point into."""
    try:
        stats = [path.stat() for path in files.paths]
    except OSError:
        return None
    return tuple((found.st_mtime_ns, found.st_ino, found.st_size) for found in stats)
