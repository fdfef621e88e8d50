"""One address that a server accepts connections on: its name, how connections are protected there, and its limits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # a broker without TLS does not load what reads certificates
    from headwater.transport.connection import Connection
    from headwater.transport.tls_reload import ReloadedTls

UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listener:
    name: str
    tls: "ReloadedTls | None" = None
    takes_plain: bool = False
    """Whether a connection that does not begin with a TLS handshake is served as it is, although there is `tls`."""
    asks_who: bool = False
    """Whether a client has to prove who it is before it is trusted."""
    new_login: "Callable[[Connection], Any] | None" = None
    """Makes the login of a connection, which those who handle its requests know."""
    examine: "Callable[[Connection], None] | None" = None
    """Called when a connection is made, before its first request: what the certificate of the client says. Raises
    CloseConnection if the client may not stay."""
    max_connections: int = UNLIMITED


PLAINTEXT: Final = Listener(name="PLAINTEXT")
