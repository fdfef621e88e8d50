"""One request, one response, over a plain socket: for what no client library sends or shows."""

import socket
import struct

from headwater.testing.broker import Broker
from headwater.wire.codec import Cursor, struct_reader, struct_writer
from headwater.wire.messages import Message
from headwater.wire.schema import request_schema, response_schema

TIMEOUT_S = 60.0
CORRELATION_ID = 77


def ask(broker: Broker, api_key: int, version: int, **fields: object) -> Message:
    asked, answered = request_schema(api_key, version), response_schema(api_key, version)
    out = bytearray(struct.pack(">hhih", api_key, version, CORRELATION_ID, -1))
    if asked.is_flexible:
        out.append(0)
    struct_writer(asked)(out, Message(**fields))
    with socket.create_connection((broker.host, broker.port), TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(out)) + out)
        (size,) = struct.unpack(">i", _read(connection, 4))
        answer = _read(connection, size)
    assert struct.unpack_from(">i", answer) == (CORRELATION_ID,)
    cursor = Cursor(answer, 4)
    if answered.is_flexible:
        cursor.skip_tags()
    message = struct_reader(answered, answered)(cursor)
    assert cursor.position == len(answer), "the response has bytes left over"
    return message


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        received = connection.recv(size - len(data))
        assert received, "the broker closed the connection"
        data += received
    return data
