"""How much disk each partition takes, asked of the brokers directly: librdkafka has no call for DescribeLogDirs.

One request on a connection of its own, as the protocol defines it:

    length int32 | api key 35 int16 | version 1 int16 | correlation id int32 | client id string | topics int32 (-1: all)
"""

import socket
import struct
from collections.abc import Iterable

from headwater.cli.client import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S

DESCRIBE_LOG_DIRS = 35
VERSION = 1
CORRELATION_ID = 1
CLIENT_ID = b"headwater-cli"
MAX_RESPONSE_BYTES = 64 * 1024 * 1024


def partition_sizes(brokers: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Bytes by topic and partition, the largest of its replicas. A broker that does not tell is left out."""
    sizes: dict[tuple[str, int], int] = {}
    for host, port in brokers:
        try:
            answer = _ask(host, port)
        except (OSError, ValueError, struct.error):
            continue
        for key, size_bytes in answer:
            sizes[key] = max(size_bytes, sizes.get(key, 0))
    return sizes


def _ask(host: str, port: int) -> list[tuple[tuple[str, int], int]]:
    from headwater.wire.codec import Cursor, MalformedRequest, struct_reader
    from headwater.wire.schema import response_schema

    schema = response_schema(DESCRIBE_LOG_DIRS, VERSION)
    head = struct.pack(">hhih", DESCRIBE_LOG_DIRS, VERSION, CORRELATION_ID, len(CLIENT_ID))
    request = head + CLIENT_ID + struct.pack(">i", -1)
    with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as connection:
        connection.settimeout(REQUEST_TIMEOUT_S)
        connection.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", _exactly(connection, 4))
        if not 4 <= length <= MAX_RESPONSE_BYTES:
            raise ValueError(f"an answer of {length} bytes")
        answer = _exactly(connection, length)
    try:
        message = struct_reader(schema, schema)(Cursor(answer, 4))
    except MalformedRequest as error:
        raise ValueError(str(error)) from error
    return [
        ((topic.name, partition.partition_index), partition.partition_size)
        for directory in message.results or ()
        for topic in directory.topics or ()
        for partition in topic.partitions or ()
    ]


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        received += chunk
    return bytes(received)
