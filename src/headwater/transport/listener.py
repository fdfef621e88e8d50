"""One address that a server accepts connections on: its name, how connections are protected there, and its limits."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # a broker without TLS does not load what reads certificates
    from headwater.transport.tls_reload import ReloadedTls

UNLIMITED: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listener:
    name: str
    tls: "ReloadedTls | None" = None
    asks_who: bool = False
    """Whether a client has to prove who it is before it is trusted."""
    max_connections: int = UNLIMITED


PLAINTEXT: Final = Listener(name="PLAINTEXT")
