"""How nodes show each other who they are, as the table `[peer_tls]` of the configuration file:

    [peer_tls]
    certificate = "/etc/headwater/tls/node.pem"
    key = "/etc/headwater/tls/node.key"
    ca = "/etc/headwater/tls/ca.pem"

Without the table nodes know each other by the secret of the cluster alone, and what they send can be overheard.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headwater.broker.settings import setting
from headwater.broker.settings.setting import ConfigError
from headwater.peers.identity import PeerTlsMode


def _mode(value: object) -> PeerTlsMode:
    try:
        return PeerTlsMode(str(value))
    except ValueError:
        raise ConfigError(f"one of {', '.join(each.value for each in PeerTlsMode)} is needed") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTlsConfig:
    certificate: Path
    """PEM: the chain, the node's own certificate first. For servers and for clients: a node is both."""
    key: Path
    ca: Path
    """PEM: who signs the certificates of all nodes."""
    mode: PeerTlsMode = PeerTlsMode.REQUIRE
    """Less than `require` while a cluster moves to TLS."""


_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "certificate": setting.path,
    "key": setting.path,
    "ca": setting.path,
    "mode": _mode,
}
"""Of each key: from a TOML value, or ConfigError with what is allowed."""


def read_peer_tls(value: object) -> PeerTlsConfig:
    """From the table `[peer_tls]`. Raises ConfigError."""
    if isinstance(value, PeerTlsConfig):
        return value
    values = setting.table(value, "peer_tls", _READERS)
    missing = [needed for needed in ("certificate", "key", "ca") if needed not in values]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} missing: PEM files")
    return PeerTlsConfig(**values)
