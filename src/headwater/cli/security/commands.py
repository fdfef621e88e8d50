"""`headwater security`: a broker with TLS, logins and access control in two commands, and what to look after then.

headwater security init --host broker-1.example.com
headwater serve --config headwater-data/headwater.toml
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import CommandFailed, note, print_json, print_table, say

if TYPE_CHECKING:
    from headwater.cli.security.authority import Authority

app = typer.Typer(help="Secure a broker, and check that it is.", no_args_is_help=True, add_completion=False)

DEFAULT_DATA = Path("headwater-data")
MAX_HOST_CHARS = 253
Data = Annotated[
    Path, typer.Option("--data", envvar="HEADWATER_DATA", metavar="DIR", help="The data directory of the broker.")
]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="How clients reach the broker; the first is what they are told. *. stands for one part. May be repeated.",
    ),
]


@app.command()
def init(
    data: Data = DEFAULT_DATA,
    host: Hosts = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where clients connect.")] = "0.0.0.0:9093",
    admin: Annotated[str, typer.Option(metavar="NAME", help="The user who may do everything.")] = "admin",
) -> None:
    """Write certificates, a first user and a configuration: TLS, logins and access control are on."""
    import socket

    from headwater.broker.settings.setting import Address, ConfigError
    from headwater.cli.security.secured_directory import (
        CONFIG,
        HTTP_TOKEN,
        AlreadyThere,
        SecuredPlan,
        client_file,
        write,
    )
    from headwater.security.user_names import UnacceptableUserName, check_user_name

    try:
        check_user_name(admin)
        address = Address.parse(listen)
        if not address.port:
            raise ConfigError("a port is needed that clients can be told, not 0")
        hosts = [_checked_host(each) for each in host or [socket.gethostname()]]
        if hosts[0].startswith("*"):
            raise ConfigError(f"clients cannot be told {hosts[0]}: give the name that they use before it, with --host")
        write(SecuredPlan(directory=data, hosts=hosts, listen=address, users=[admin]))
    except (UnacceptableUserName, ConfigError) as error:
        raise CommandFailed(str(error), exit_code=2) from error
    except AlreadyThere as error:
        raise CommandFailed(f"{error}.", "Nothing was written. Give another directory with --data.") from error
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}.") from error
    login = client_file(data, admin)
    say(
        f"Wrote {data / CONFIG}: TLS and logins on {listen}, access control on.\n"
        f"Clients are told {hosts[0]}:{address.port}; the certificate is for {', '.join(hosts)} and this machine.\n"
        f"{admin} may do everything. The password is in {login} and the files beside it, and nowhere else.\n"
        f"The token for HTTP is in {data / HTTP_TOKEN}.\n\n"
        f"Next:\n"
        f"  headwater serve --config {data / CONFIG}\n"
        f"  headwater topic create orders --client {login}\n"
        f"  headwater user create alice --client {login}\n"
        f"  headwater acl allow alice produce topic orders --client {login}"
    )


@app.command("node-certificate")
def node_certificate(
    host: Annotated[list[str], typer.Argument(metavar="HOST...", help="Under which others reach the node.")],
    data: Data = DEFAULT_DATA,
) -> None:
    """Sign a certificate for one more node, with the authority that init made."""
    from headwater.cli.security.secured_directory import TLS

    with _problems_in_words():
        hosts = [_checked_host(each) for each in host]
        files = _authority(data).issue(hosts[0].replace("*", "any"), hosts)
    note(f"Wrote {files.certificate} and {files.key}. Copy them and {data / TLS / 'ca.pem'} to {hosts[0]}.")


@app.command()
def renew(data: Data = DEFAULT_DATA) -> None:
    """Sign the certificates of nodes in the directory anew, before they expire. Brokers read them by themselves."""
    with _problems_in_words():
        authority = _authority(data)
        for files in authority.node_files():
            authority.renew(files)
            note(f"Renewed {files.certificate}.")


@app.command("rotate-ca")
def rotate_ca(
    data: Data = DEFAULT_DATA,
    finish: Annotated[bool, typer.Option("--finish", help="Stop believing what the authority before signed.")] = False,
) -> None:
    """Put another authority in the place of the one that init made, without a moment when certificates are refused."""
    from headwater.cli.security.secured_directory import TLS, authority_name

    with _problems_in_words():
        authority = _authority(data)
        if finish:
            others = [str(each.certificate) for each in authority.node_files() if not authority.has_signed(each)]
            if others:
                raise CommandFailed(f"{', '.join(others)}: still of the authority before.", "Renew them first.")
            authority.forget_previous()
            note(f"{authority.file} has the present authority alone. Copy it to every node and client.")
            return
        authority.rotate(authority_name())
    file = data / TLS / "ca.pem"
    say(
        f"{file} has both authorities now. Next:\n"
        f"  1. Copy it to every node and client; nodes read it by themselves.\n"
        f"  2. headwater security renew --data {data}      # and copy the certificates of other nodes to them\n"
        f"  3. headwater security rotate-ca --finish --data {data}      # and copy {file} again"
    )


@app.command()
def check(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The configuration of the broker.")] = (
        DEFAULT_DATA / "headwater.toml"
    ),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at a configuration and its files: what is open, what expires, what others may read."""
    from dataclasses import asdict

    from headwater.broker.settings.broker_config import BrokerConfig, ConfigError
    from headwater.cli.security.findings import findings

    try:
        loaded = BrokerConfig.load(config, insecure=True)
    except ConfigError as error:
        raise CommandFailed(str(error), exit_code=2) from error
    found = list(findings(loaded))
    if json:
        print_json([asdict(each) for each in found])
    elif found:
        print_table(("what", "finding", "what to do"), [(each.what, each.finding, each.advice) for each in found])
    else:
        say("Nothing was found that is open, expires soon, or can be read by others.")
    if found:
        raise typer.Exit(1)


def _authority(data: Path) -> "Authority":
    from headwater.cli.security.authority import Authority
    from headwater.cli.security.secured_directory import TLS

    return Authority.load(data / TLS)


@contextmanager
def _problems_in_words() -> Iterator[None]:
    """Raises CommandFailed."""
    from headwater.broker.settings.setting import ConfigError
    from headwater.cli.security.authority import UnusableAuthority

    try:
        yield
    except ConfigError as error:
        raise CommandFailed(str(error), exit_code=2) from error
    except UnusableAuthority as error:
        raise CommandFailed(f"{error}.", "`headwater security init` makes an authority.") from error
    except FileExistsError as error:
        raise CommandFailed(f"{error.filename} is there already.", "`headwater security renew` replaces it.") from error
    except OSError as error:
        raise CommandFailed(f"{error.filename}: {error.strerror}.") from error


def _checked_host(host: str) -> str:
    """Raises ConfigError for what no certificate can be for."""
    import ipaddress
    import re

    from headwater.broker.settings.setting import ConfigError

    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        if len(host) > MAX_HOST_CHARS or not re.fullmatch(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", host):
            raise ConfigError(f"{host!r:.100} is no name or address of a host") from None
    return host
