"""Whether a Kafka broker listens where `--bootstrap` says, asked before a client is made.

librdkafka keeps trying in silence, for as long as a request may take: a connection that is refused, or a port that
speaks HTTP, is known at once.
"""

import socket
import struct
from contextlib import suppress

from headwater.cli.output import CommandFailed
from headwater.client.address import BrokerAddress, InvalidAddress, parse_bootstrap

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 2.0
"""For the first bytes of an answer. A server that needs longer counts as a broker: the client has its own time-outs."""
API_VERSIONS = 18
CLIENT_ID = "headwater-cli"
HTTP = b"HTTP/"


class NoBroker(CommandFailed):
    """No address of the bootstrap list accepts connections, perhaps not yet."""


def check_bootstrap(bootstrap: str) -> None:
    """Raises CommandFailed unless at least one address may be that of a broker."""
    speaks_http = False
    for address in addresses(bootstrap):
        with suppress(OSError):
            if not _speaks_http(address):
                return
            speaks_http = True
    raise not_kafka(bootstrap) if speaks_http else no_broker(bootstrap)


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


def _speaks_http(address: BrokerAddress) -> bool:
    """Raises OSError if nothing listens there. Some servers answer anything with HTTP, others only an HTTP request."""
    # Packed here: the schemas of the protocol would take longer to load than the broker to answer.
    body = struct.pack(">hhih", API_VERSIONS, 0, 0, len(CLIENT_ID)) + CLIENT_ID.encode()
    first = _first_bytes(address, struct.pack(">i", len(body)) + body)
    if first:
        return first.startswith(HTTP)
    with suppress(OSError):
        return _first_bytes(address, b"GET / HTTP/1.0\r\n\r\n").startswith(HTTP)
    return False


def _first_bytes(address: BrokerAddress, question: bytes) -> bytes:
    """Of the answer; empty if the server does not answer or closes the connection."""
    with socket.create_connection(address, CONNECT_TIMEOUT_S) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        with suppress(OSError):
            connection.sendall(question)
            return connection.recv(16)
    return b""
