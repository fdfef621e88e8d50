"""The data directory of a secured broker before its first start: what `headwater security init` writes.

    headwater.toml           the configuration for `headwater serve --config`
    tls/                     an authority, and the certificate of this node (authority.py)
    bootstrap-users.json     the first users, taken in by the first start, and removed then
    http-token               what clients of HTTP must bear
    clients/                 settings with which each first user logs in, for each kind of client

Passwords are in the files under clients/ and nowhere else. Files with secrets are for their owner alone.
"""

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.broker.access import bootstrap_users
from headwater.broker.access.gateway_user import GATEWAY_USER
from headwater.broker.access.user_record import UserRecord
from headwater.broker.settings.setting import Address
from headwater.cli.client_settings import ClientKind, ClientLogin, settings_text
from headwater.cli.password_source import new_password
from headwater.client.security_options import ClientSecurity
from headwater.client.settings import SaslLogin, TlsFiles
from headwater.security.principal import Principal
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from headwater.cli.security.authority import Authority, NodeFiles

CONFIG: Final = "headwater.toml"
TLS: Final = "tls"
CLIENTS: Final = "clients"
HTTP_TOKEN: Final = "http-token"
TOKEN_BYTES: Final = 32
CLIENT_FILES: Final = {
    ClientKind.JAVA: "{user}.properties",
    ClientKind.LIBRDKAFKA: "{user}.librdkafka.json",
    ClientKind.KCAT: "{user}.kcat.conf",
    ClientKind.KAFKA_PYTHON: "{user}.kafka_python.py",
    ClientKind.AIOKAFKA: "{user}.aiokafka.py",
}
"""By the kind of client. The first is what `--client` takes."""
_OWNER_ONLY: Final = 0o600


class AlreadyThere(Exception):
    """The directory is in use. The message names what is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredPlan:
    """What is to be written. The first user may do everything."""

    directory: Path
    hosts: Sequence[str]
    """Under which clients reach the node; the first is the one that they are given."""
    listen: Address
    users: Sequence[str]


def write(plan: SecuredPlan) -> None:
    """Raises AlreadyThere, or OSError."""
    from headwater.cli.security.authority import Authority

    directory = plan.directory
    for name in (CONFIG, TLS, CLIENTS, bootstrap_users.FILE_NAME, "metadata.db", "store"):
        if (directory / name).exists():
            raise AlreadyThere(f"{directory / name} is there already")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = Authority.create(directory / TLS, authority_name())
    node = authority.issue("node", plan.hosts)
    users = write_logins(directory, authority.file, str(Address(plan.hosts[0], plan.listen.port)), plan.users)
    write_private(directory / bootstrap_users.FILE_NAME, users)
    write_private(directory / CONFIG, _config(plan, authority, node), 0o644)  # last: with it the directory is complete


def write_logins(directory: Path, authority: Path, bootstrap: str, users: Sequence[str]) -> str:
    """Files for the clients of users at these brokers, with passwords that are drawn here, and a token for HTTP.
    Returns what a broker takes the users in from. Raises OSError."""
    passwords = {user: new_password() for user in users}
    (directory / CLIENTS).mkdir(mode=0o700)
    for user, password in passwords.items():
        for path, text in _client_files(directory, authority, bootstrap, user, password):
            write_private(path, text + "\n")
    write_private(directory / HTTP_TOKEN, secrets.token_urlsafe(TOKEN_BYTES) + "\n")
    return bootstrap_users.text_of(
        {
            user: UserRecord(credentials=_credentials(password), created_ms=_now_ms())
            for user, password in passwords.items()
        }
    )


def authority_name() -> str:
    """Two authorities of one cluster are told apart by it."""
    return f"Headwater authority {secrets.token_hex(4)}"


def client_file(directory: Path, user: str, kind: ClientKind = ClientKind.JAVA) -> Path:
    return directory / CLIENTS / CLIENT_FILES[kind].format(user=user)


def _client_files(
    directory: Path, authority: Path, bootstrap: str, user: str, password: str
) -> Iterator[tuple[Path, str]]:
    tls = TlsFiles(str(authority.absolute()), None, None, None, checks_host_name=True)
    sasl = SaslLogin(mechanism=SaslMechanism.SCRAM_SHA_512, user=user, password=password)
    login = ClientLogin(bootstrap, ClientSecurity(tls, sasl))
    for kind in CLIENT_FILES:
        yield client_file(directory, user, kind), settings_text(kind, login)


def _credentials(password: str) -> dict[ScramMechanism, ScramCredential]:
    return {
        mechanism: ScramCredential.of_password(mechanism, password, os.urandom(SALT_BYTES), DEFAULT_ITERATIONS)
        for mechanism in ScramMechanism
    }


def _config(plan: SecuredPlan, authority: "Authority", node: "NodeFiles") -> str:
    directory = plan.directory.absolute()
    supers = [Principal.user(plan.users[0]), Principal.user(GATEWAY_USER)]
    return f"""\
# Written by `headwater security init`. `headwater serve --print-config` shows every setting with its meaning.
data_dir = {_text(directory)}

# HTTP, the schema registry and the console are for this machine, and ask for the token in this file.
http_token_file = {_text(directory / HTTP_TOKEN)}
http_ca = {_text(authority.file.absolute())}

[security]
authorization = "on"
# {supers[1]} is the HTTP interface of this broker.
super_users = [{", ".join(_text(each) for each in supers)}]

[[listener]]
name = "clients"
protocol = "SASL_SSL"
listen = {_text(plan.listen)}
advertise = {_text(Address(plan.hosts[0], plan.listen.port))}
certificate = {_text(node.certificate.absolute())}
key = {_text(node.key.absolute())}
"""


def _text(value: object) -> str:
    """As TOML, which has JSON's escapes."""
    import json

    return json.dumps(str(value), ensure_ascii=False)


def write_private(path: Path, text: str, mode: int = _OWNER_ONLY) -> None:
    """For its owner alone, unless said otherwise. Raises FileExistsError, or another OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
