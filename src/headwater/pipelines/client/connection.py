"""One connection to one broker, blocking: a request goes out, then its response comes back.

`send` and `receive` are apart, so that a broker can prepare a response while the one before is worked on. Not
thread-safe, and not to be used in a process that was forked after it was opened.

Whatever goes wrong with the socket or with the bytes closes the connection and is a `ConnectionLost`: the
next try opens a new one.
"""

import socket
import ssl
import struct
from typing import Any

import numpy as np

from headwater.pipelines.client.apis import SUPPORTED
from headwater.pipelines.client.config import BrokerAddress, ClientConfig, TlsFiles
from headwater.pipelines.errors import InvalidOption
from headwater.wire.api_keys import ApiKey
from headwater.wire.message import Message
from headwater.wire.requests import MalformedResponse, read_response, write_request

MAX_RESPONSE_BYTES = 1024 * 1024 * 1024
MAX_CORRELATION_ID = 2**31
_LENGTH = struct.Struct(">i")


class ConnectionLost(Exception):
    """The connection broke, or what came over it was not an answer. `address` is part of the message."""


class BrokerConnection:
    def __init__(self, address: BrokerAddress, config: ClientConfig) -> None:
        self.address = address
        self._client_id = config.client_id
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._awaited: tuple[int, int, int] | None = None
        """(API key, version, correlation id) of the request that has no response yet."""
        self._next_id = 0
        self._socket = self._open(config)
        self._versions = self._ask_versions()

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    @property
    def is_idle(self) -> bool:
        """No response is under way."""
        return self._awaited is None

    def fileno(self) -> int:
        """For `select`: readable when a response begins to arrive."""
        return self._socket.fileno()

    def version(self, api_key: int, at_most: int | None = None) -> int:
        """The newest version that both sides speak."""
        ours_least, ours_most = SUPPORTED[api_key]
        theirs_least, theirs_most = self._versions.get(api_key, (0, -1))
        newest = min(ours_most if at_most is None else at_most, theirs_most)
        if newest < max(ours_least, theirs_least):
            raise self._lost(f"it does not serve API {api_key} in a version that is known here")
        return newest

    def ask(self, api_key: int, **fields: Any) -> Message:
        self.send(api_key, self.version(api_key), Message(**fields))
        return self.receive()

    def send(self, api_key: int, version: int, request: Message, wait_ms: int = 0) -> None:
        """`wait_ms` is the time that the broker was asked to take before it answers."""
        assert self._awaited is None, "the response to the request before was received"
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) % MAX_CORRELATION_ID
        data = write_request(api_key, version, correlation_id, self._client_id, request)
        try:
            self._socket.settimeout(self._request_timeout_s + wait_ms / 1000)
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error
        self._awaited = (api_key, version, correlation_id)

    def receive(self) -> Message:
        """The response to the request that was sent."""
        assert self._awaited is not None, "a response follows a request"
        awaited, self._awaited = self._awaited, None
        try:
            return read_response(self._receive_frame(), *awaited)
        except (OSError, MalformedResponse) as error:
            raise self._lost(error) from error

    def close(self) -> None:
        self._awaited = None
        self._socket.close()

    def _open(self, config: ClientConfig) -> socket.socket:
        context = _tls_context(config.tls) if config.tls is not None else None
        address = (self.address.host, self.address.port)
        try:
            plain = socket.create_connection(address, config.connect_timeout_ms / 1000)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return context.wrap_socket(plain, server_hostname=self.address.host) if context is not None else plain
            except BaseException:
                plain.close()
                raise
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {_reason(error)}") from error

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        """In version 0, which every broker serves."""
        self.send(ApiKey.API_VERSIONS, 0, Message())
        answer = self.receive()
        if answer.error_code:
            raise self._lost(f"it refuses to say what it serves (error {answer.error_code})")
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys or ()}

    def _receive_frame(self) -> memoryview:
        (length,) = _LENGTH.unpack(self._receive_exactly(_LENGTH.size))
        if not 0 <= length <= MAX_RESPONSE_BYTES:
            raise MalformedResponse("what answers there does not speak the Kafka protocol, or needs TLS")
        return self._receive_exactly(length)

    def _receive_exactly(self, size: int) -> memoryview:
        """Into an array that is not filled with zeros first: its memory is there when bytes arrive, whatever length was
        announced."""
        received = np.empty(size, np.uint8).data
        filled = 0
        while filled < size:
            count = self._socket.recv_into(received[filled:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            filled += count
        return received

    def _lost(self, reason: Exception | str) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"{self.address}: {_reason(reason)}")


def _tls_context(tls: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.authorities)
        context.check_hostname = tls.checks_host_name
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key, tls.key_password)
    except OSError as error:
        files = ", ".join(filter(None, (tls.authorities, tls.certificate, tls.key)))
        raise InvalidOption(f"The PEM files of the options kafka.ssl.… ({files}) cannot be used: {error}.") from error
    return context


def _reason(error: Exception | str) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
