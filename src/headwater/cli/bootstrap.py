"""Whether a Kafka broker listens where `--bootstrap` says, and lets the command in, asked before a client is made.

librdkafka keeps trying in silence, for as long as a request may take: a connection that is refused, a port that speaks
HTTP, a listener that wants TLS or a login, and a password that is wrong are known at once.
"""

import socket
from contextlib import closing
from typing import TYPE_CHECKING

from headwater.cli.brokers import CONNECT_TIMEOUT_S, Brokers
from headwater.cli.listener_probe import ListenerKind, probe
from headwater.cli.output import CommandFailed
from headwater.client.address import BrokerAddress, InvalidAddress, parse_bootstrap

if TYPE_CHECKING:
    from headwater.client.errors import ClientError

_LOGIN_LINES = "sasl.mechanism, sasl.username and sasl.password"
_CLIENT_FILE = "Name a client file with --client or HEADWATER_CLIENT"


class NoBroker(CommandFailed):
    """No address of the bootstrap list accepts connections, perhaps not yet."""


def check_brokers(brokers: Brokers) -> None:
    """Raises CommandFailed unless at least one address may be that of a broker that lets the command in."""
    problem: CommandFailed = no_broker(brokers.bootstrap)
    for address in addresses(brokers.bootstrap):
        refusal = _plain_problem(address, brokers) if brokers.is_plain else _secured_problem(address, brokers)
        if refusal is None:
            return
        if not isinstance(refusal, NoBroker):
            problem = refusal
    raise problem


def addresses(bootstrap: str) -> tuple[BrokerAddress, ...]:
    """Raises CommandFailed."""
    try:
        return parse_bootstrap(bootstrap)
    except InvalidAddress:
        raise CommandFailed(
            f"--bootstrap {bootstrap!r} is not HOST:PORT.", "For example: 127.0.0.1:9092.", exit_code=2
        ) from None


def no_broker(bootstrap: str) -> NoBroker:
    return NoBroker(
        f"No broker answers at {bootstrap}.", "Start one with `headwater serve`, or name another with --bootstrap."
    )


def not_kafka(bootstrap: str) -> CommandFailed:
    return CommandFailed(
        f"The server at {bootstrap} speaks HTTP, not the Kafka protocol.",
        "Name the address that `headwater serve` shows as `listening on` (127.0.0.1:9092 unless it was given another).",
    )


def not_logged_in(error: "ClientError", brokers: Brokers) -> CommandFailed:
    """The message of the error begins with the address."""
    sasl = brokers.security.sasl if brokers.security is not None else None
    assert sasl is not None, "a login was tried"
    return CommandFailed(
        f"{sasl.user} cannot log in by {sasl.mechanism} at {error}",
        f"User, password and mechanism are in {brokers.file}.",
    )


def unusable_tls_files(error: "ClientError", brokers: Brokers) -> CommandFailed:
    return CommandFailed(f"The PEM files that {brokers.file} names cannot be used: {error}.", exit_code=2)


def _plain_problem(address: BrokerAddress, brokers: Brokers) -> CommandFailed | None:
    try:
        listener = probe(address, CONNECT_TIMEOUT_S)
    except OSError:
        return no_broker(brokers.bootstrap)
    if listener is ListenerKind.HTTP:
        return not_kafka(brokers.bootstrap)
    if listener is ListenerKind.TLS:
        return CommandFailed(
            f"The server at {address} speaks TLS{_but(brokers)}.",
            f"{_CLIENT_FILE} that has security.protocol=SASL_SSL (or SSL), and ssl.ca.location if your own authority "
            "signed the server's certificate.",
        )
    if isinstance(listener, tuple):
        return _needs_login(address, listener, brokers)
    return None


def _secured_problem(address: BrokerAddress, brokers: Brokers) -> CommandFailed | None:
    """Log in as the command will do."""
    from headwater.client.blocking_connection import BlockingConnection
    from headwater.client.errors import ClientError, NotLoggedIn, UnusableTlsFiles
    from headwater.model.errors import ErrorCode
    from headwater.wire.typed.sasl_handshake import SaslHandshakeRequest

    settings = brokers.settings()
    try:
        with closing(BlockingConnection(address, settings)) as connection:
            if settings.sasl is None:
                answer = connection.ask(SaslHandshakeRequest(mechanism=""))
                if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                    return _needs_login(address, tuple(answer.mechanisms), brokers)
    except NotLoggedIn as error:
        return not_logged_in(error, brokers)
    except UnusableTlsFiles as error:
        return unusable_tls_files(error, brokers)
    except ClientError as error:
        return _lost(error, brokers)
    return None


def _lost(error: "ClientError", brokers: Brokers) -> CommandFailed:
    import ssl

    cause: BaseException | None = error.__cause__
    if isinstance(cause, ConnectionRefusedError | socket.gaierror):
        return no_broker(brokers.bootstrap)
    assert brokers.security is not None, "plain brokers are probed"
    tls = brokers.security.tls
    advice = f"How to connect is in {brokers.file}."
    if tls is not None and tls.certificate is None and isinstance(cause, ConnectionError | ssl.SSLEOFError):
        advice += (
            " If the listener wants a certificate of the client, ssl.certificate.location and ssl.key.location name it."
        )
    return CommandFailed(f"No connection by {brokers.security.protocol} to the broker at {error}.", advice)


def _needs_login(address: BrokerAddress, mechanisms: tuple[str, ...], brokers: Brokers) -> CommandFailed:
    offer = " or ".join(each if each.isprintable() else repr(each) for each in mechanisms[:10]) or "no mechanism at all"
    tls = brokers.security is not None and brokers.security.tls is not None
    return CommandFailed(
        f"The broker at {address} wants a login, by {offer}{_but(brokers)}.",
        f"{_CLIENT_FILE} that has security.protocol={'SASL_SSL' if tls else 'SASL_PLAINTEXT'}, {_LOGIN_LINES}.",
    )


def _but(brokers: Brokers) -> str:
    if brokers.file is None or brokers.security is None:
        return ""
    return f", and {brokers.file} has security.protocol={brokers.security.protocol}"
