"""Requests that librdkafka has no call for, sent to a broker on a connection of their own."""

import socket
import struct
from typing import TYPE_CHECKING, Any

from headwater.cli.bootstrap import CONNECT_TIMEOUT_S, Address
from headwater.cli.client import REQUEST_TIMEOUT_S
from headwater.cli.output import CommandFailed

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from headwater.wire.message import Message

CORRELATION_ID = 1
CLIENT_ID = "headwater-cli"
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
FIND_COORDINATOR = 10
GROUP_KEY, TRANSACTION_KEY = 0, 1


class BrokerDidNotAnswer(CommandFailed):
    """The connection failed, or the broker does not know the request."""


def ask(broker: Address, api_key: int, version: int, **fields: Any) -> "Message":
    """Send one request to one broker. Raises BrokerDidNotAnswer."""
    from headwater.wire.message import Message
    from headwater.wire.requests import MalformedResponse, read_response, write_request

    request = write_request(api_key, version, CORRELATION_ID, CLIENT_ID, Message(**fields))
    try:
        return read_response(_exchange(broker, request), api_key, version, CORRELATION_ID)
    except (OSError, ValueError, MalformedResponse) as error:
        host, port = broker
        raise BrokerDidNotAnswer(
            f"The broker at {host}:{port} does not answer request {api_key}: {error}.", "Is it older than this command?"
        ) from error


def brokers(client: "AdminClient") -> list[Address]:
    found = client.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
    return [(broker.host, broker.port) for _, broker in sorted(found.items())]


def coordinator(client: "AdminClient", name: str, key_type: int = GROUP_KEY) -> Address:
    """The broker that coordinates a group, or a transactional id."""
    first, *_ = brokers(client)
    answer = ask(first, FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[name])
    found = answer.coordinators[0]
    if found.error_code:
        raise CommandFailed(f"The coordinator of {name} is not known now (error {found.error_code}).", "Try it again.")
    return found.host, found.port


def check(code: int, reason: str | None, subject: str) -> None:
    """Raises CommandFailed for the error code of a response."""
    if code:
        raise CommandFailed(*_explanation(code, reason, subject))


def _explanation(code: int, reason: str | None, subject: str) -> tuple[str, str]:
    """What happened, and what to do. librdkafka has no texts for errors of requests that it does not make."""
    from headwater.model.errors import ErrorCode

    if code == ErrorCode.NON_EMPTY_GROUP:
        return f"{subject} has members that are running.", "Stop them first."
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return f"{subject} does not exist.", "`headwater group list` shows the existing groups."
    if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return f"{subject} does not exist.", "`headwater transaction list` shows the existing ids."
    if code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        return f"{subject} has no coordinator now.", "Try it again."
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    return (f"{subject}: {reason.rstrip('.')} ({name})." if reason else f"{subject}: the broker answers {name}."), ""


def message(**fields: object) -> object:
    """A struct within a request."""
    from headwater.wire.message import Message

    return Message(**fields)


def _exchange(broker: Address, request: bytearray) -> bytes:
    with socket.create_connection(broker, CONNECT_TIMEOUT_S) as connection:
        connection.settimeout(REQUEST_TIMEOUT_S)
        connection.sendall(request)
        (length,) = struct.unpack(">i", _exactly(connection, 4))
        if not 4 <= length <= MAX_RESPONSE_BYTES:
            raise ValueError(f"an answer of {length} bytes")
        return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        received += chunk
    return bytes(received)
