"""What listens at an address, seen from a client without TLS and without a login: a broker that takes it, one that
wants TLS or a login, or a server of HTTP.

Requests and answers are packed here: the schemas of the protocol would take longer to load than the broker to answer.
"""

import enum
import socket
import struct
from contextlib import suppress
from typing import Final

from headwater.client.address import BrokerAddress

ANSWER_TIMEOUT_S: Final = 2.0
"""For the first bytes of an answer. A server that needs longer counts as a broker: the client has its own time-outs."""
MAX_ANSWER_BYTES: Final = 16 * 1024
"""Of both answers; a broker's have one or two thousand."""
MAX_MECHANISMS: Final = 20
_API_VERSIONS: Final = 18
_SASL_HANDSHAKE: Final = 17
_UNSUPPORTED_SASL_MECHANISM: Final = 33
_CLIENT_ID: Final = b"headwater-cli"
_HTTP: Final = b"HTTP/"
_TLS_ALERT: Final = b"\x15\x03"


class ListenerKind(enum.Enum):
    BROKER = enum.auto()
    """Or what has not answered yet."""
    TLS = enum.auto()
    HTTP = enum.auto()


def probe(address: BrokerAddress, connect_timeout_s: float) -> ListenerKind | tuple[str, ...]:
    """A tuple has the mechanisms of a login that the broker asks for. Raises OSError if nothing listens there."""
    # A broker that asks for a login answers a mechanism that does not exist with those that do, and others that they
    # take no login.
    question = _request(_API_VERSIONS, 0, 0, b"") + _request(_SASL_HANDSHAKE, 1, 1, struct.pack(">h", 0))
    answer = _answer(address, connect_timeout_s, question, frames=2)
    if answer.startswith(_HTTP):
        return ListenerKind.HTTP
    if answer and not answer.startswith(_TLS_ALERT):
        return _mechanisms(answer) or ListenerKind.BROKER
    # Some servers answer anything with HTTP, others only an HTTP request.
    with suppress(OSError):
        if not answer and _answer(address, connect_timeout_s, b"GET / HTTP/1.0\r\n\r\n", frames=0).startswith(_HTTP):
            return ListenerKind.HTTP
    return ListenerKind.TLS if answer or _speaks_tls(address, connect_timeout_s) else ListenerKind.BROKER


def _request(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", api_key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID + body
    return struct.pack(">i", len(request)) + request


def _answer(address: BrokerAddress, connect_timeout_s: float, question: bytes, frames: int) -> bytes:
    """So many frames, or what came of them; with 0 the first bytes. Empty if the server does not answer or closes the
    connection."""
    with socket.create_connection(address, connect_timeout_s) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        answer = b""
        with suppress(OSError):
            connection.sendall(question)
            while len(answer) < MAX_ANSWER_BYTES and (chunk := connection.recv(MAX_ANSWER_BYTES)):
                answer += chunk
                if len(_frames(answer)) >= frames or answer.startswith((_HTTP, _TLS_ALERT)):
                    break
        return answer


def _frames(answer: bytes) -> list[bytes]:
    frames = []
    while len(answer) >= 4:
        (length,) = struct.unpack_from(">i", answer)
        if not 0 <= length <= len(answer) - 4:
            break
        frames.append(answer[4 : 4 + length])
        answer = answer[4 + length :]
    return frames


def _mechanisms(answer: bytes) -> tuple[str, ...] | None:
    """Of the second frame; None if it does not ask for a login."""
    frames = _frames(answer)
    if len(frames) < 2:
        return None
    try:
        correlation_id, code, count = struct.unpack_from(">ihi", frames[1])
        if (correlation_id, code) != (1, _UNSUPPORTED_SASL_MECHANISM) or not 0 < count <= MAX_MECHANISMS:
            return None
        mechanisms, at = [], 10
        for _ in range(count):
            (length,) = struct.unpack_from(">h", frames[1], at)
            mechanisms.append(frames[1][at + 2 : at + 2 + max(length, 0)].decode())
            at += 2 + max(length, 0)
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(mechanisms)


def _speaks_tls(address: BrokerAddress, connect_timeout_s: float) -> bool:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: who is there does not matter
    with suppress(OSError), socket.create_connection(address, connect_timeout_s) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        with context.wrap_socket(connection, server_hostname=address.host):
            return True
    return False
