"""`headwater user`: who may log in with a password. Names and passwords are kept by the cluster, made through Kafka's
own API."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.bootstrap import addresses, no_broker
from headwater.cli.brokers import CONNECT_TIMEOUT_S, Bootstrap, Brokers, ClientFile, brokers_of
from headwater.cli.client import Json, cluster
from headwater.cli.client_settings import ClientKind, ClientLogin, settings_text
from headwater.cli.listener_probe import ListenerKind, probe
from headwater.cli.output import CommandFailed, confirm, note, print_json, print_table, say
from headwater.cli.password_source import Password, PasswordFile, PasswordStdin, given_password, new_password
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.scram import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS, SALT_BYTES, ScramMechanism

if TYPE_CHECKING:
    from headwater.client.admin.users import DescribedUser
    from headwater.client.blocking_cluster import BlockingCluster

app = typer.Typer(help="Make and remove users with passwords.", no_args_is_help=True, add_completion=False)

MECHANISMS = (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256)
PLACEHOLDER = "PASSWORD"

Name = Annotated[str, typer.Argument(metavar="NAME")]
Iterations = Annotated[
    int,
    typer.Option(min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="How often the password is hashed: for weak passwords."),
]
For = Annotated[
    ClientKind | None,
    typer.Option("--client-config", help="Print settings with which such a client logs in, and nothing else."),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="HOST:PORT", help="Where the user logs in, if not where this command asks."),
]
CaFile = Annotated[
    str | None, typer.Option("--ca", metavar="FILE", help="PEM file of the authority, for the printed settings.")
]


@app.command()
def create(
    name: Name,
    password_file: PasswordFile = None,
    password_stdin: PasswordStdin = False,
    password: Password = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    any_name: Annotated[bool, typer.Option("--any-name", help="Also names that kafka-python cannot send.")] = False,
    client_config: For = None,
    at: At = None,
    ca: CaFile = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Make a user who may log in. The password is made here, unless one is given, and shown once."""
    _check_name(name, any_name)
    own = given_password(password_file, password_stdin)
    brokers = brokers_of(bootstrap, client_file)
    secret = own or new_password()
    login = _login(brokers, name, secret, at, ca) if client_config is not None else None
    with cluster(brokers) as client:
        if _found(client, name) is not None:
            raise CommandFailed(
                f"User {name} exists already.", f"`headwater user password {name}` gives a new password."
            )
        _set_passwords(client, name, secret, iterations, MECHANISMS)
    _tell("Created", name, secret, is_given=own is not None, json=json, kind=client_config, login=login)


@app.command("list")
def list_all(json: Json = False, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """List the users who have a password."""
    from headwater.client.admin.users import describe_users

    with cluster(brokers_of(bootstrap, client_file)) as client:
        users = client.answer(describe_users())
    users.sort(key=lambda user: user.name)
    if json:
        print_json([asdict(user) for user in users])
        return
    print_table(("user", "mechanisms"), [(user.name, ", ".join(user.iterations)) for user in users], empty="No users.")


@app.command()
def describe(name: Name, json: Json = False, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """Show how a user may log in, and what bindings say to the user."""
    from headwater.cli.acl_requests import bindings_of_user
    from headwater.security.acl_words import sentence

    with cluster(brokers_of(bootstrap, client_file)) as client:
        user = _known(client, name)
        bindings = bindings_of_user(client, name)
    sentences = [sentence(each) for each in bindings] if bindings is not None else None
    if json:
        print_json({**asdict(user), "bindings": sentences})
        return
    how = ", ".join(f"{mechanism} ({count} iterations)" for mechanism, count in user.iterations.items())
    say(f"User {name} logs in by {how}, or PLAIN where a listener offers it.")
    if sentences is None:
        say("The cluster holds no client to bindings: every user may do everything.")
    for each in sentences or ():
        say(each)


@app.command()
def password(
    name: Name,
    password_file: PasswordFile = None,
    password_stdin: PasswordStdin = False,
    password: Password = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    client_config: For = None,
    at: At = None,
    ca: CaFile = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Give a user another password. It holds from the next login on; connections that exist go on."""
    own = given_password(password_file, password_stdin)
    brokers = brokers_of(bootstrap, client_file)
    secret = own or new_password()
    login = _login(brokers, name, secret, at, ca) if client_config is not None else None
    with cluster(brokers) as client:
        user = _known(client, name)
        mechanisms = [each for each in MECHANISMS if each.sasl.value in user.iterations]
        _set_passwords(client, name, secret, iterations, mechanisms)
    _tell("Changed", name, secret, is_given=own is not None, json=json, kind=client_config, login=login)


@app.command()
def delete(
    name: Name,
    keep_acls: Annotated[bool, typer.Option("--keep-acls", help="Leave what bindings say to the user.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Remove a user, who is cut off at once, with the bindings that name the user."""
    from headwater.cli.acl_requests import bindings_of_user, delete_bindings
    from headwater.client.admin.users import remove_password

    with cluster(brokers_of(bootstrap, client_file)) as client:
        user = _known(client, name)
        bindings = [] if keep_acls else bindings_of_user(client, name) or []
        confirm(f"Delete user {name}{f' and {len(bindings)} bindings' if bindings else ''}?", yes)
        for mechanism in user.iterations:
            client.answer(remove_password(name, mechanism))
        if bindings:
            delete_bindings(client, bindings)
    note(f"Deleted user {name}{f' and {len(bindings)} bindings' if bindings else ''}.")


@app.command("client-config")
def client_config(
    name: Name,
    kind: Annotated[ClientKind, typer.Option("--for", help="The client.")],
    password_file: PasswordFile = None,
    password_stdin: PasswordStdin = False,
    password: Password = None,
    at: At = None,
    ca: CaFile = None,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Print settings with which a client logs in as this user."""
    secret = given_password(password_file, password_stdin)
    if secret is None:
        note(f"Put the password where {PLACEHOLDER} stands: the cluster does not know it.")
    say(settings_text(kind, _login(brokers_of(bootstrap, client_file), name, secret or PLACEHOLDER, at, ca)))


def _check_name(name: str, is_any_name: bool) -> None:
    from headwater.security.user_names import UnacceptableUserName, check_user_name

    try:
        check_user_name(name, is_any_name=is_any_name)
    except UnacceptableUserName as error:
        raise CommandFailed(str(error), exit_code=2) from None


def _found(client: "BlockingCluster", name: str) -> "DescribedUser | None":
    from headwater.client.admin.users import describe_users
    from headwater.client.errors import BrokerRefused
    from headwater.model.errors import ErrorCode

    try:
        (user,) = client.answer(describe_users([name]))
    except BrokerRefused as error:
        if error.code == ErrorCode.RESOURCE_NOT_FOUND:
            return None
        raise
    return user


def _known(client: "BlockingCluster", name: str) -> "DescribedUser":
    user = _found(client, name)
    if user is None:
        raise CommandFailed(f"User {name} does not exist.", "`headwater user list` shows the users.")
    return user


def _set_passwords(
    client: "BlockingCluster",
    name: str,
    secret: str,
    iterations: int,
    mechanisms: "list[ScramMechanism] | tuple[ScramMechanism, ...]",
) -> None:
    from headwater.client.admin.users import NewPassword, set_password

    for mechanism in mechanisms:
        salt = os.urandom(SALT_BYTES)
        client.answer(set_password(NewPassword(name, secret, mechanism, salt, iterations)))


def _login(brokers: Brokers, name: str, secret: str, at: str | None, ca: str | None) -> ClientLogin:
    """As the user at the listener of this command, or at another, which is looked at."""
    from headwater.client.security_options import ClientSecurity
    from headwater.client.settings import SaslLogin, TlsFiles

    own = brokers.security
    if at is None and own is not None and own.sasl is not None:
        mechanism, tls = own.sasl.mechanism, own.tls
    else:
        mechanism, is_encrypted = _offer(brokers.bootstrap if at is None else at)
        files = own.tls if own is not None else None
        tls = files or TlsFiles(None, None, None, None, checks_host_name=True) if is_encrypted else None
    if tls is not None and ca is not None:
        tls = TlsFiles(str(Path(ca).absolute()), None, None, None, checks_host_name=True)
    sasl = SaslLogin(mechanism=mechanism, user=name, password=secret)
    return ClientLogin(brokers.bootstrap if at is None else at, ClientSecurity(tls, sasl))


def _offer(bootstrap: str) -> tuple[SaslMechanism, bool]:
    """By what users log in there, and whether over TLS. Behind TLS it is what listeners have unless told otherwise."""
    address = addresses(bootstrap)[0]
    try:
        listener = probe(address, CONNECT_TIMEOUT_S)
    except OSError:
        raise no_broker(bootstrap) from None
    if isinstance(listener, tuple):
        offered = [each for each in SaslMechanism if each in listener and each is not SaslMechanism.OAUTHBEARER]
        return (offered[-1] if offered else SaslMechanism.SCRAM_SHA_512), False
    if listener is not ListenerKind.TLS:
        note(f"Clients need no login at {address}. Name the listener where they do with --at HOST:PORT.")
    return SaslMechanism.SCRAM_SHA_512, listener is ListenerKind.TLS


def _tell(
    what: str, name: str, secret: str, *, is_given: bool, json: bool, kind: ClientKind | None, login: ClientLogin | None
) -> None:
    if kind is not None and login is not None:
        note(f"{what} user {name}. What follows holds the password, which is not shown again.")
        say(settings_text(kind, login))
    elif json:
        print_json({"user": name, "password": None if is_given else secret})
    elif is_given:
        note(f"{what} user {name}.")
    else:
        note(f"{what} user {name}. The password is shown only now:")
        say(secret)
