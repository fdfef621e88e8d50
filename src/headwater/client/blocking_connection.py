"""One connection to one broker, blocking: a request goes out, then its response comes back.

`send` and `receive` are apart, so that a broker can prepare a response while the one before is worked on. Not
thread-safe, and not to be used in a process that was forked after it was opened.

Whatever goes wrong with the socket or with the bytes closes the connection and is a `ConnectionLost`: the next try
opens a new one.
"""

import os
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

from headwater.client.address import BrokerAddress
from headwater.client.connection_problems import handshake_problem_of, problem_of
from headwater.client.errors import ConnectionLost, NotLoggedIn, NotServed
from headwater.client.exchange import Exchange, Sent
from headwater.client.settings import MAX_RESPONSE_BYTES, NONCE_BYTES, ConnectionSettings, tls_context
from headwater.wire.message import Request, ResponseT
from headwater.wire.requests import MalformedResponse

_LENGTH = struct.Struct(">i")


def zeroed(size: int) -> memoryview:
    return memoryview(bytearray(size))


class BlockingConnection:
    def __init__(
        self,
        address: BrokerAddress,
        settings: ConnectionSettings,
        allocate: Callable[[int], memoryview] = zeroed,
    ) -> None:
        """`allocate` makes the buffer of a response, which its records stay in. Raises ConnectionLost, NotLoggedIn and
        UnusableTlsFiles."""
        self.address = address
        self._settings = settings
        self._allocate = allocate
        login = settings.sasl.client() if settings.sasl is not None else None
        self._exchange = Exchange(settings.client_id, login, os.urandom(NONCE_BYTES))
        self._sent: Sent[Any] | None = None
        """The request that has no response yet."""
        context = tls_context(settings.tls) if settings.tls is not None else None
        try:
            self._socket = socket.create_connection(address, settings.connect_timeout_s)
        except OSError as error:
            raise ConnectionLost(f"{address}: {problem_of(error)}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._encrypt(context)
            self._shake_hands()
        except (OSError, MalformedResponse, NotServed) as error:
            raise self._lost(error) from error
        except NotLoggedIn as error:
            self._socket.close()
            raise NotLoggedIn(f"{address}: {error}") from error
        except BaseException:
            self._socket.close()
            raise

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    @property
    def is_idle(self) -> bool:
        """No response is under way."""
        return self._sent is None

    def fileno(self) -> int:
        """For `select`: readable when a response begins to arrive."""
        return self._socket.fileno()

    def version(self, api_key: int, at_most: int | None = None) -> int:
        """The newest version that both sides speak. Raises ConnectionLost: another broker may speak one."""
        try:
            return self._exchange.version(api_key, at_most)
        except NotServed as error:
            raise self._lost(error) from error

    def ask(self, request: Request[ResponseT]) -> ResponseT:
        return self.receive(self.send(request))

    def send(self, request: Request[ResponseT], *, at_most: int | None = None, wait_ms: int = 0) -> Sent[ResponseT]:
        """`at_most` is the newest version that says what is meant; `wait_ms` is the time that the broker was asked to
        take before it answers."""
        assert self._sent is None, "the response to the request before was received"
        try:
            sent, data = self._exchange.send(request, at_most)
            self._socket.settimeout(self._settings.request_timeout_s + wait_ms / 1000)
            self._socket.sendall(data)
        except (OSError, NotServed) as error:
            raise self._lost(error) from error
        self._sent = sent
        return sent

    def receive(self, sent: Sent[ResponseT]) -> ResponseT:
        """The response to the request that was sent."""
        assert self._sent is sent, "a response follows its request"
        self._sent = None
        try:
            return sent.read(self._receive_frame())
        except (OSError, MalformedResponse) as error:
            raise self._lost(error) from error

    def close(self) -> None:
        self._sent = None
        self._socket.close()

    def _encrypt(self, context: ssl.SSLContext) -> None:
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=self.address.host)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {handshake_problem_of(error, self._authorities)}") from error

    @property
    def _authorities(self) -> str | None:
        return self._settings.tls.authorities if self._settings.tls is not None else None

    def _shake_hands(self) -> None:
        self._socket.settimeout(self._settings.request_timeout_s)
        steps = self._exchange.handshake()
        try:
            data = next(steps)
            while True:
                self._socket.sendall(data)
                data = steps.send(self._receive_frame())
        except StopIteration:
            return

    def _receive_frame(self) -> memoryview:
        length_bytes = bytearray(_LENGTH.size)
        self._fill(memoryview(length_bytes))
        (length,) = _LENGTH.unpack(length_bytes)
        if not 0 <= length <= MAX_RESPONSE_BYTES:
            raise MalformedResponse("what answers there does not speak the Kafka protocol, or needs TLS")
        frame = self._allocate(length)
        self._fill(frame)
        return frame

    def _fill(self, buffer: memoryview) -> None:
        filled = 0
        while filled < len(buffer):
            count = self._socket.recv_into(buffer[filled:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            filled += count

    def _lost(self, error: Exception) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"{self.address}: {problem_of(error, self._authorities)}")
