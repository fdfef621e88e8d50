"""What a node proves to its peers that it belongs to the cluster with: the secret, and with TLS a certificate.

Nodes move from plain connections to TLS one after the other, in three rounds of restarts. In each, what the nodes that
are ahead do, those that are behind take:

    accept     connects without TLS, takes both
    prefer     connects with TLS, takes both
    require    connects with TLS, takes nothing else
"""

import enum
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from headwater.peers.cluster_secrets import ClusterSecrets

if TYPE_CHECKING:  # a node without TLS does not load what reads certificates
    from headwater.transport.tls_reload import ReloadedTls


class PeerTlsMode(enum.StrEnum):
    ACCEPT = "accept"
    PREFER = "prefer"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class PeerTls:
    files: "ReloadedTls"
    mode: PeerTlsMode = PeerTlsMode.REQUIRE

    @property
    def is_for_calls(self) -> bool:
        """Whether this node connects with TLS."""
        return self.mode is not PeerTlsMode.ACCEPT

    @property
    def is_required(self) -> bool:
        return self.mode is PeerTlsMode.REQUIRE


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    secrets: ClusterSecrets
    tls: PeerTls | None = None

    @classmethod
    def of(cls, secret: bytes) -> Self:
        """Of a node without TLS, whose secret stays. Raises ValueError if it is too short."""
        return cls(ClusterSecrets(secret))


def binding(server_certificate: bytes, caller_certificate: bytes) -> bytes:
    """What both ends of one TLS connection know alike, and the ends of two do not: both certificates, in DER form. A
    proof about it is worth nothing on another connection: what stands between two nodes cannot pass it on."""
    return hashlib.sha256(server_certificate).digest() + hashlib.sha256(caller_certificate).digest()
