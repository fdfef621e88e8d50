"""One connection to one broker: requests go out as they come, answers are matched to them.

A broker answers the requests of a connection in their order: a request behind one that waits is answered after it.
Whatever goes wrong with the socket or the bytes ends the connection, and every request on it with `BrokerGone`.
"""

import asyncio
import struct
from typing import Any, Self, cast

from headwater.gateway.kafka.errors import BrokerGone
from headwater.wire.message import Message
from headwater.wire.requests import MalformedResponse, read_response, write_request

CLIENT_ID = "headwater-gateway"
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 15.0
"""Beyond what a request says itself that it waits."""
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
MAX_PENDING = 1_000
_LENGTH = struct.Struct(">i")
_MAX_ID = 2**31 - 1


class KafkaConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._pending: dict[int, tuple[int, int, asyncio.Future[Message]]] = {}
        self._next_id = 0

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(cls, host, port)
        except (OSError, TimeoutError) as error:
            raise BrokerGone(f"no broker answers at {host}:{port}: {error}") from error
        return connection

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, api_key: int, version: int, *, wait_s: float = 0.0, **fields: Any) -> Message:
        """The answer. `wait_s` is how long the broker was asked to wait with it."""
        if self._transport is None or self._transport.is_closing():
            raise BrokerGone("the connection is closed")
        if len(self._pending) >= MAX_PENDING:
            raise BrokerGone(f"{MAX_PENDING} requests wait for their answers")
        number = self._next_id
        self._next_id = 0 if number == _MAX_ID else number + 1
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[number] = (api_key, version, future)
        self._transport.write(write_request(api_key, version, number, CLIENT_ID, Message(**fields)))
        try:
            async with asyncio.timeout(wait_s + ANSWER_TIMEOUT_S):
                return await future
        except TimeoutError:
            self.close()
            raise BrokerGone("the broker did not answer in time") from None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._fail("the connection is closed")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        position = 0
        while len(self._received) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received, position)
            if not 4 <= length <= MAX_RESPONSE_BYTES:
                self._end(f"an answer of {length} bytes")
                return
            start = position + _LENGTH.size
            if len(self._received) < start + length:
                break
            position = start + length
            self._answered(bytes(self._received[start:position]))
        del self._received[:position]

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the broker closed the connection: {error}" if error else "the broker closed the connection")

    def _answered(self, frame: bytes) -> None:
        (number,) = _LENGTH.unpack_from(frame)
        asked = self._pending.pop(number, None)
        if asked is None:
            self._end(f"an answer to request {number}, which was not asked")
            return
        api_key, version, future = asked
        if future.done():  # no caller waits for it any more
            return
        try:
            future.set_result(read_response(frame, api_key, version, number))
        except MalformedResponse as error:
            future.set_exception(BrokerGone(str(error)))
            self._end(str(error))

    def _end(self, reason: str) -> None:
        self._fail(reason)
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: str) -> None:
        pending, self._pending = self._pending, {}
        for _, _, future in pending.values():
            if not future.done():
                future.set_exception(BrokerGone(reason))
