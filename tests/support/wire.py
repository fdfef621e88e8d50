"""Requests by hand, in any version: for what no client library sends, or shows.

`WireClient` speaks over a blocking socket, `AsyncWireClient` over the test's event loop. Both send requests in the
order of the calls, and take the responses in it. A request is named by its API's number and its fields (`messages`);
its response is of the class of its API, which the type checker does not know and the run does."""

import asyncio
import socket
import struct
from collections import deque
from typing import Any, Self

from headwater.testing.broker import Broker
from headwater.wire.api_keys import ApiKey
from headwater.wire.codec import struct_reader
from headwater.wire.cursor import Cursor
from headwater.wire.message_classes import request_class, response_class
from headwater.wire.requests import write_request
from headwater.wire.schema import response_schema
from tests.support.messages import build

TIMEOUT_S = 60.0
CLIENT_ID = "by hand"
MAX_BUFFERED_BYTES = 64 * 1024 * 1024


class WireClient:
    """A connection of its own."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, TIMEOUT_S)
        self._waiting: deque[int] = deque()
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        self.send(api_key, version, **fields)
        return self.answer(api_key, version)

    def send(self, api_key: int, version: int, **fields: Any) -> None:
        self._socket.sendall(self.frame(api_key, version, **fields))

    def frame(self, api_key: int, version: int, **fields: Any) -> bytes:
        """The next request, to be sent before any other."""
        self._sent += 1
        self._waiting.append(self._sent)
        return bytes(write_request(build(request_class(api_key), **fields), version, self._sent, CLIENT_ID))

    def answer(self, api_key: int, version: int) -> Any:
        (size,) = struct.unpack(">i", self._receive(4))
        return response(self._receive(size), api_key, version, self._waiting)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            assert received, "the broker closed the connection"
            data += received
        return bytes(data)


class AsyncWireClient:
    """A connection of its own, on the event loop of the broker that it asks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: deque[int] = deque()
        self._sent = 0

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Self:
        return cls(*await asyncio.open_connection(*address, limit=MAX_BUFFERED_BYTES))

    def close(self) -> None:
        self._writer.close()

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        self.send(api_key, version, **fields)
        return await self.answer(api_key, version)

    def send(self, api_key: int, version: int, **fields: Any) -> bytearray:
        """The bytes that were sent."""
        self._sent += 1
        self._waiting.append(self._sent)
        request = write_request(build(request_class(api_key), **fields), version, self._sent, CLIENT_ID)
        self._writer.write(request)
        return request

    async def answer(self, api_key: int, version: int) -> Any:
        return self.read(await self.receive(), api_key, version)

    async def receive(self) -> bytes:
        """A response as it comes. Raises IncompleteReadError or OSError when the broker closes the connection."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    def read(self, data: bytes, api_key: int, version: int) -> Any:
        return response(data, api_key, version, self._waiting)


def ask(broker: Broker | tuple[str, int], api_key: int, version: int, **fields: Any) -> Any:
    """One request on a connection of its own."""
    with WireClient((broker.host, broker.port) if isinstance(broker, Broker) else broker) as wire:
        return wire.ask(api_key, version, **fields)


def response(data: bytes, api_key: int, version: int, waiting: deque[int]) -> Any:
    """A response in a frame, of the class of its API. `waiting` has the ids of the requests that were sent; one that
    wants no response (acks=0) is stepped over."""
    (correlation_id,) = struct.unpack_from(">i", data)
    assert correlation_id in waiting, "a response is to a request, and they come in the order of the requests"
    while waiting.popleft() != correlation_id:
        continue
    schema = response_schema(api_key, version)
    cursor = Cursor(data, 4)
    if schema.is_flexible and api_key != ApiKey.API_VERSIONS:
        cursor.skip_tags()
    message = struct_reader(schema, response_class(api_key))(cursor)
    assert cursor.position == len(data), "a response has no bytes left over"
    return message
