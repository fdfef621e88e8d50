"""Where ZooKeeper is, and how to reach it, from a metadata URL.

    zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/ROOT]
    zookeepers://...[?ca=FILE&cert=FILE&key=FILE]     with TLS; `cert` and `key` together, for a client's certificate

User and password are percent-encoded, and are ZooKeeper's "digest" login: what is created with one is open to that
login alone. Everything lies below ROOT, so several clusters can share one ZooKeeper. Without `ca` the authorities
that the system trusts count.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from headwater.metadata.limits import check_key

DEFAULT_PORT: Final = 2181
DEFAULT_ROOT: Final = "headwater"
MAX_SERVERS: Final = 16
MAX_ROOT_CHARS: Final = 200
"""Every path in a transaction repeats the root, and ZooKeeper takes 1 MiB."""

_URL = re.compile(
    r"(?P<scheme>zookeepers?)://(?:(?P<login>[^@/?#]*)@)?(?P<hosts>[^/?#@]*)(?P<path>/[^?#]*)?(?:\?(?P<query>.*))?"
)
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_SHAPE = "zookeeper://HOST:PORT,HOST:PORT/ROOT"


@dataclass(frozen=True, slots=True)
class ZookeeperTls:
    """PEM files; None for what the URL left out."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class ZookeeperAddress:
    servers: tuple[str, ...]
    root: str = f"/{DEFAULT_ROOT}"
    login: str = field(default="", repr=False)
    """USER:PASSWORD, or empty."""
    tls: ZookeeperTls | None = None

    @classmethod
    def parse(cls, url: str) -> "ZookeeperAddress":
        """Raises ValueError, which says what is wrong and repeats no password."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError(f"a ZooKeeper URL looks like {_SHAPE}")
        options = _options(match["query"] or "")
        if options and match["scheme"] != "zookeepers":
            raise ValueError(f"{', '.join(sorted(options))} in a ZooKeeper URL: only zookeepers:// has options")
        return cls(
            servers=_servers(match["hosts"]),
            root=_root(match["path"] or ""),
            login=_login(match["login"]),
            tls=_tls(options) if match["scheme"] == "zookeepers" else None,
        )

    def __str__(self) -> str:
        return f"ZooKeeper at {', '.join(self.servers)}"


def _login(login: str | None) -> str:
    if login is None:
        return ""
    user, _, password = login.partition(":")
    if not user or not password:
        raise ValueError("a ZooKeeper URL with a login has USER:PASSWORD before the @")
    return f"{unquote(user, errors='strict')}:{unquote(password, errors='strict')}"


def _servers(hosts: str) -> tuple[str, ...]:
    parts = hosts.split(",")
    if len(parts) > MAX_SERVERS:
        raise ValueError(f"a ZooKeeper URL names at most {MAX_SERVERS} servers, not {len(parts)}")
    servers = []
    for number, part in enumerate(parts, 1):
        match = _HOST.fullmatch(part)
        port = int(match["port"] or DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 65536:
            # Not repeated: it may be the beginning of a login whose password is not percent-encoded.
            raise ValueError(f"host {number} in a ZooKeeper URL is not HOST:PORT; the URL looks like {_SHAPE}")
        servers.append(f"{match['host']}:{port}")
    return tuple(dict.fromkeys(servers))


def _root(path: str) -> str:
    root = path.strip("/") or DEFAULT_ROOT
    try:
        check_key(root)
    except ValueError as error:
        raise ValueError(f"the root in a ZooKeeper URL is a key: {error}") from error
    if len(root) > MAX_ROOT_CHARS:
        raise ValueError(f"the root in a ZooKeeper URL has at most {MAX_ROOT_CHARS} characters, not {len(root)}")
    return f"/{root}"


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=16):
        if name not in ("ca", "cert", "key") or name in options or not value:
            raise ValueError(
                f"option {name[:80]!r} in a ZooKeeper URL: there are ca, cert and key, each once, with a file"
            )
        options[name] = value
    if ("cert" in options) != ("key" in options):
        raise ValueError("a ZooKeeper URL has both cert and key, or neither")
    return options


def _tls(options: dict[str, str]) -> ZookeeperTls:
    def file(name: str) -> Path | None:
        if name not in options:
            return None
        path = Path(options[name])
        try:
            path.open("rb").close()
        except OSError as error:
            raise ValueError(f"{name}={path} in a ZooKeeper URL: {error.strerror}") from error
        return path

    return ZookeeperTls(file("ca"), file("cert"), file("key"))
