"""Whether a Kafka broker listens where `--bootstrap` says, asked before a client is made.

librdkafka keeps trying in silence, for as long as a request may take: a connection that is refused, or a port that
speaks HTTP, is known at once.
"""

import socket
import struct
from contextlib import suppress
from typing import TypeAlias

from headwater.cli.output import CommandFailed

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 2.0
"""For the first bytes of an answer. A server that needs longer counts as a broker: the client has its own time-outs."""
API_VERSIONS = 18
CLIENT_ID = b"headwater-cli"
HTTP = b"HTTP/"

Address: TypeAlias = tuple[str, int]


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


def addresses(bootstrap: str) -> list[Address]:
    return [_address(each.strip(), bootstrap) for each in bootstrap.split(",")]


def no_broker(bootstrap: str) -> NoBroker:
    return NoBroker(
        f"No broker answers at {bootstrap}.", "Start one with `headwater serve`, or name another with --bootstrap."
    )


def not_kafka(bootstrap: str) -> CommandFailed:
    return CommandFailed(
        f"The server at {bootstrap} speaks HTTP, not the Kafka protocol.",
        "Name the address that `headwater serve` shows as `listening on` (127.0.0.1:9092 unless it was given another).",
    )


def _address(text: str, bootstrap: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise CommandFailed(f"--bootstrap {bootstrap!r} is not HOST:PORT.", "For example: 127.0.0.1:9092.", exit_code=2)
    return host.strip("[]"), int(port)


def _speaks_http(address: Address) -> bool:
    """Raises OSError if nothing listens there. Some servers answer anything with HTTP, others only an HTTP request."""
    body = struct.pack(">hhih", API_VERSIONS, 0, 0, len(CLIENT_ID)) + CLIENT_ID
    first = _first_bytes(address, struct.pack(">i", len(body)) + body)
    if first:
        return first.startswith(HTTP)
    with suppress(OSError):
        return _first_bytes(address, b"GET / HTTP/1.0\r\n\r\n").startswith(HTTP)
    return False


def _first_bytes(address: Address, question: bytes) -> bytes:
    """Of the answer; empty if the server does not answer or closes the connection."""
    with socket.create_connection(address, CONNECT_TIMEOUT_S) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        with suppress(OSError):
            connection.sendall(question)
            return connection.recv(16)
    return b""
