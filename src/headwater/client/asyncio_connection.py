"""One connection to one broker on an event loop: requests go out as they come, responses are matched to them.

A broker answers the requests of a connection in their order: a request behind one that waits is answered after it.
Whatever goes wrong with the socket or the bytes ends the connection, and every request on it with `ConnectionLost`.
The bytes of a large response land where they stay.
"""

import asyncio
import os
from collections.abc import Generator
from typing import Any, Self, cast

from headwater.client.address import BrokerAddress
from headwater.client.connection_problems import handshake_problem_of, problem_of
from headwater.client.errors import ClientError, ConnectionLost, NotLoggedIn, NotServed
from headwater.client.exchange import Exchange, Sent
from headwater.client.settings import MAX_RESPONSE_BYTES, NONCE_BYTES, ConnectionSettings, tls_context
from headwater.wire.frame import FrameReader, FrameTooLarge
from headwater.wire.message import Records, Request, ResponseT
from headwater.wire.requests import MalformedResponse, correlation_id

MAX_PENDING = 1_000
SCRATCH_BYTES = 64 * 1024


class AsyncioConnection(asyncio.BufferedProtocol):
    def __init__(self, address: BrokerAddress, settings: ConnectionSettings) -> None:
        self.address = address
        self._settings = settings
        login = settings.sasl.client() if settings.sasl is not None else None
        self._exchange = Exchange(settings.client_id, login, os.urandom(NONCE_BYTES))
        self._frames = FrameReader(bytearray(SCRATCH_BYTES), MAX_RESPONSE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, tuple[Sent[Any], asyncio.Future[Any]]] = {}
        self._handshake: Generator[bytearray, Records, None] | None = None
        self._is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, address: BrokerAddress, settings: ConnectionSettings) -> Self:
        """Raises ConnectionLost, NotLoggedIn and UnusableTlsFiles."""
        context = tls_context(settings.tls) if settings.tls is not None else None
        connection = cls(address, settings)
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, *address, ssl=context, server_hostname=address.host if context else None
                )
                await connection._is_ready
        except (OSError, TimeoutError) as error:
            connection.close()
            tls = settings.tls
            words = problem_of(error) if tls is None else handshake_problem_of(error, tls.authorities)
            raise ConnectionLost(f"no broker answers at {address}: {words}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: Request[ResponseT], *, at_most: int | None = None, wait_s: float = 0.0) -> ResponseT:
        """The response. `at_most` is the newest version that says what is meant; `wait_s` is how long the broker was
        asked to wait with the response."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLost(f"{self.address}: the connection is closed")
        if len(self._pending) >= MAX_PENDING:
            raise ConnectionLost(f"{self.address}: {MAX_PENDING} requests wait for their responses")
        try:
            sent, data = self._exchange.send(request, at_most)
        except NotServed as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        future: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._pending[sent.correlation_id] = (sent, future)
        self._transport.write(data)
        try:
            async with asyncio.timeout(wait_s + self._settings.request_timeout_s):
                return await future
        except TimeoutError:
            self.close()
            raise ConnectionLost(f"{self.address}: the broker did not answer in time") from None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._fail("the connection is closed")

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._handshake = self._exchange.handshake()
        self._transport.write(next(self._handshake))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, count: int) -> None:
        try:
            for frame in self._frames.advance(count):
                if self._handshake is not None:
                    self._shake_hands(self._handshake, frame)
                else:
                    self._answered(frame)
        except (FrameTooLarge, MalformedResponse, NotServed) as error:
            self._end(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the broker closed the connection: {error}" if error else "the broker closed the connection")

    def _shake_hands(self, handshake: Generator[bytearray, Records, None], frame: bytearray) -> None:
        if self._settings.sasl is None:
            self._shaken(_next_step(handshake, frame))
            return
        # A step of a login derives a key from the password, as often as the broker says.
        step = asyncio.get_running_loop().run_in_executor(None, _next_step, handshake, frame)
        step.add_done_callback(self._step_done)

    def _step_done(self, step: "asyncio.Future[bytearray | None]") -> None:
        if step.cancelled():
            return
        error = step.exception()
        if error is None:
            self._shaken(step.result())
        elif isinstance(error, NotLoggedIn):
            if not self._is_ready.done():
                self._is_ready.set_exception(NotLoggedIn(f"{self.address}: {error}"))
            self._end(str(error))
        else:
            self._end(str(error))

    def _shaken(self, data: bytearray | None) -> None:
        """The next bytes of the handshake; None when it is over."""
        if data is not None and self._transport is not None:
            self._transport.write(data)
        elif data is None:
            self._handshake = None
            if not self._is_ready.done():
                self._is_ready.set_result(None)

    def _answered(self, frame: bytearray) -> None:
        number = correlation_id(frame)
        sent, future = self._pending.pop(number, (None, None))
        if sent is None or future is None:
            raise MalformedResponse(f"a response to request {number}, which was not sent")
        if future.done():  # no caller waits for it any more
            return
        try:
            future.set_result(sent.read(frame))
        except MalformedResponse as error:
            future.set_exception(ConnectionLost(f"{self.address}: {error}"))
            raise

    def _end(self, reason: str) -> None:
        self._fail(reason)
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: str) -> None:
        lost: ClientError = ConnectionLost(f"{self.address}: {reason}")
        pending, self._pending = self._pending, {}
        for _, future in pending.values():
            if not future.done():
                future.set_exception(lost)
        if not self._is_ready.done():
            self._is_ready.set_exception(lost)
            self._is_ready.exception()  # nothing may wait for it any more


def _next_step(handshake: Generator[bytearray, Records, None], frame: bytearray) -> bytearray | None:
    """None when the handshake is over."""
    try:
        return handshake.send(frame)
    except StopIteration:
        return None
