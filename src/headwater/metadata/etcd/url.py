"""Where etcd is, and how to reach it, from a metadata URL.

    etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PREFIX]
    etcds://...[?ca=FILE&cert=FILE&key=FILE]        with TLS; `cert` and `key` together, for a client's certificate

User and password are percent-encoded. Keys lie below PREFIX + "/", so several clusters can share one etcd. Without `ca`
the certificates that gRPC trusts by default count.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from headwater.metadata.limits import check_key

DEFAULT_PORT: Final = 2379
DEFAULT_PREFIX: Final = "headwater"
MAX_ENDPOINTS: Final = 16
MAX_FILE_BYTES: Final = 1024 * 1024
"""Of a file with certificates or a key."""

_URL = re.compile(
    r"(?P<scheme>etcds?)://(?:(?P<login>[^@/?#]*)@)?(?P<hosts>[^/?#@]*)(?P<path>/[^?#]*)?(?:\?(?P<query>.*))?"
)
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_SHAPE = "etcd://HOST:PORT,HOST:PORT/PREFIX"


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """PEM bytes; None for what the URL left out."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX
    user: str = ""
    password: str = field(default="", repr=False)
    tls: EtcdTls | None = None

    @classmethod
    def parse(cls, url: str) -> "EtcdAddress":
        """Raises ValueError, which says what is wrong and repeats no password. Reads the files that a TLS URL names."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError(f"an etcd URL looks like {_SHAPE}")
        user, password = _login(match["login"])
        options = _options(match["query"] or "")
        if options and match["scheme"] != "etcds":
            raise ValueError(f"{', '.join(sorted(options))} in an etcd URL: only etcds:// has options")
        return cls(
            endpoints=_endpoints(match["hosts"]),
            prefix=_prefix(match["path"] or ""),
            user=user,
            password=password,
            tls=_tls(options) if match["scheme"] == "etcds" else None,
        )

    def __str__(self) -> str:
        return f"etcd at {', '.join(self.endpoints)}"


def _login(login: str | None) -> tuple[str, str]:
    if login is None:
        return "", ""
    user, _, password = login.partition(":")
    if not user or not password:
        raise ValueError("an etcd URL with a login has USER:PASSWORD before the @")
    return unquote(user, errors="strict"), unquote(password, errors="strict")


def _endpoints(hosts: str) -> tuple[str, ...]:
    parts = hosts.split(",")
    if len(parts) > MAX_ENDPOINTS:
        raise ValueError(f"an etcd URL names at most {MAX_ENDPOINTS} endpoints, not {len(parts)}")
    endpoints = []
    for number, part in enumerate(parts, 1):
        match = _HOST.fullmatch(part)
        port = int(match["port"] or DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 65536:
            # Not repeated: it may be the beginning of a login whose password is not percent-encoded.
            raise ValueError(f"host {number} in an etcd URL is not HOST:PORT; the URL looks like {_SHAPE}")
        endpoints.append(f"{match['host']}:{port}")
    return tuple(dict.fromkeys(endpoints))


def _prefix(path: str) -> str:
    prefix = path.strip("/")
    if not prefix:
        return DEFAULT_PREFIX
    try:
        check_key(prefix)
    except ValueError as error:
        raise ValueError(f"the prefix in an etcd URL is a key: {error}") from error
    return prefix


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=16):
        if name not in ("ca", "cert", "key") or name in options or not value:
            raise ValueError(f"option {name[:80]!r} in an etcd URL: there are ca, cert and key, each once, with a file")
        options[name] = value
    if ("cert" in options) != ("key" in options):
        raise ValueError("an etcd URL has both cert and key, or neither")
    return options


def _tls(options: dict[str, str]) -> EtcdTls:
    def pem(name: str) -> bytes | None:
        if name not in options:
            return None
        path = Path(options[name])
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{name}={path} in an etcd URL: {error.strerror}") from error
        if b"-----BEGIN " not in data or len(data) > MAX_FILE_BYTES:
            raise ValueError(f"{name}={path} in an etcd URL is no PEM file of at most {MAX_FILE_BYTES} bytes")
        return data

    return EtcdTls(pem("ca"), pem("cert"), pem("key"))
