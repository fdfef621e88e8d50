"""How connections to brokers are made: names, time-outs, TLS, the login."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.client.errors import UnusableTlsFiles
from headwater.security.sasl_client import PasswordLogin, SaslClient, TokenLogin
from headwater.security.sasl_mechanisms import SaslMechanism

NONCE_BYTES = 24
MAX_RESPONSE_BYTES = 1024 * 1024 * 1024
"""Far above what any request here asks for. A longer announcement comes from a server of another protocol."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, as the brokers' listener needs them."""

    authorities: str | None
    """Whom to trust; None: whom this machine trusts."""
    certificate: str | None
    key: str | None
    key_password: str | None
    checks_host_name: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslLogin:
    """Who the client is, and how it proves that."""

    mechanism: SaslMechanism
    user: str
    password: str = field(repr=False)

    def client(self) -> SaslClient:
        return SaslClient(self.mechanism, PasswordLogin(self.user, self.password))


@dataclass(frozen=True, slots=True)
class SaslToken:
    """A token of an issuer that the brokers believe, instead of a password (OAUTHBEARER)."""

    source: Callable[[], str] = field(repr=False)
    """Called at each login, and not on the event loop: it may read a file (`TokenFile`), or ask the issuer. Settings
    are equal where this is."""

    def client(self) -> SaslClient:
        return SaslClient(SaslMechanism.OAUTHBEARER, TokenLogin(self.source))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Hashable: connections with the same settings may be shared."""

    client_id: str
    tls: TlsFiles | None = None
    sasl: SaslLogin | SaslToken | None = None
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 15.0
    """For a response, beyond the time that the request itself lets the broker wait."""


def tls_context(tls: TlsFiles) -> ssl.SSLContext:
    """Raises UnusableTlsFiles."""
    try:
        context = ssl.create_default_context(cafile=tls.authorities)
        context.check_hostname = tls.checks_host_name
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key, tls.key_password)
    except OSError as error:
        raise UnusableTlsFiles(str(error)) from error
    return context
