"""Which brokers a command asks and how it gets in: `--bootstrap`, and `--client` with a client file.

What stands on the command line wins over the environment, and that over the default client file:

    --bootstrap    bootstrap.servers of --client    HEADWATER_BOOTSTRAP    bootstrap.servers of the client file that
    HEADWATER_CLIENT or the default names           127.0.0.1:9092

An empty name of a client file stands for none, not even the default.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import CommandFailed

if TYPE_CHECKING:
    from headwater.client.client_file import ClientFile as FileContent
    from headwater.client.security_options import ClientSecurity
    from headwater.client.settings import ConnectionSettings

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "HEADWATER_BOOTSTRAP"
CLIENT_VARIABLE = "HEADWATER_CLIENT"
CLIENT_ID = "headwater-cli"
CONNECT_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 15.0
_OTHERS_MAY_READ = stat.S_IRWXO
_MAX_FILE_BYTES = 256 * 1024

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="A broker to ask.  [env var: HEADWATER_BOOTSTRAP]",
        show_default=DEFAULT_BOOTSTRAP,
    ),
]
ClientFile = Annotated[
    str | None,
    typer.Option(
        "--client",
        metavar="FILE",
        help="How to log in: a .properties file as Kafka's tools take it.  [env var: HEADWATER_CLIENT]",
        show_default="~/.config/headwater/client.properties",
    ),
]


@dataclass(frozen=True, slots=True)
class Brokers:
    """What a command knows of them before it asks."""

    bootstrap: str
    security: "ClientSecurity | None" = None
    """None: neither TLS nor a login."""
    file: str | None = None
    """The client file, for messages."""
    client_id: str = CLIENT_ID

    def __str__(self) -> str:
        return self.bootstrap

    @property
    def is_plain(self) -> bool:
        return self.security is None or self.security.protocol == "PLAINTEXT"

    def settings(self) -> "ConnectionSettings":
        """For our own client."""
        from headwater.client.settings import ConnectionSettings

        return ConnectionSettings(
            client_id=self.client_id,
            tls=self.security.tls if self.security is not None else None,
            sasl=self.security.sasl if self.security is not None else None,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            request_timeout_s=REQUEST_TIMEOUT_S,
        )

    def security_options(self) -> dict[str, str]:
        """For librdkafka, and with the prefix `kafka.` for queries."""
        return self.security.options() if self.security is not None else {}


def brokers_of(bootstrap: str | None, client_file: str | None, elsewhere: str | None = None) -> Brokers:
    """From the options of a command; `elsewhere` is an address that is better than a default, and less than an option.
    Raises CommandFailed."""
    path = _client_path(client_file)
    content = _content(path) if path is not None else None
    addressed = content.bootstrap if content is not None else None
    in_order = (
        bootstrap,
        addressed if client_file else None,
        os.environ.get(BOOTSTRAP_VARIABLE) or None,
        elsewhere,
        addressed,
    )
    address = next((each for each in in_order if each is not None), DEFAULT_BOOTSTRAP)
    if content is None:
        return Brokers(address)
    return Brokers(address, content.security, str(path), content.client_id or CLIENT_ID)


def local_brokers(
    bootstrap: str | None, client_file: str | None, local: str | None, own_client: Path | None = None
) -> Brokers:
    """Of the local cluster at this address, if there is one: the default client file is not for it, but `own_client` if
    it asks for logins. Raises CommandFailed."""
    is_default = client_file is None and CLIENT_VARIABLE not in os.environ
    if local is not None and is_default and own_client is not None:
        return brokers_of(bootstrap or local, str(own_client))
    return brokers_of(bootstrap, "" if local is not None and is_default else client_file, local)


def default_client_path() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "headwater" / "client.properties"


def _client_path(client_file: str | None) -> Path | None:
    named = client_file if client_file is not None else os.environ.get(CLIENT_VARIABLE)
    if named is not None:
        return Path(named).expanduser() if named else None
    try:
        path = default_client_path()
        return path if path.is_file() else None
    except (OSError, RuntimeError):  # no home
        return None


def _content(path: Path) -> "FileContent":
    from headwater.client.client_file import BadClientFile, read_client_file

    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CommandFailed(f"The client file {path} cannot be read: {error.strerror}.", exit_code=2) from error
    try:
        if len(data) > _MAX_FILE_BYTES:
            raise BadClientFile(f"it has more than {_MAX_FILE_BYTES} bytes")
        content = read_client_file(data.decode(), path.absolute().parent)
    except UnicodeDecodeError:
        raise CommandFailed(
            f"The client file {path} is not UTF-8.", "Write other characters than ASCII as \\u00e9.", exit_code=2
        ) from None
    except BadClientFile as error:
        raise CommandFailed(f"The client file {path} cannot be used: {error}.", exit_code=2) from None
    if content.has_secret and mode & _OTHERS_MAY_READ:
        raise CommandFailed(
            f"Everybody on this machine may read the password in {path} (mode {stat.S_IMODE(mode):04o}).",
            f"Run: chmod 600 {path}",
            exit_code=2,
        )
    return content
