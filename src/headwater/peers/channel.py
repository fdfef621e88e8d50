"""The way to a remote store: at most one connection, made when it is needed. Calls leave in the order in which they
were made.

The bytes on their way are limited; calls beyond that wait here and leave as replies come in. Nothing is ever sent
twice: when the connection cannot be made or is lost, every call that waits fails with StoreUnreachable, and the next
call connects anew.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from headwater.logs.events import log_event
from headwater.model.replica import Buffer, StoreError, StoreUnreachable
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import PeerAddress
from headwater.peers.peer_connection import EndedUnproven, NotProven, PeerConnection, fail
from headwater.transport.tls_errors import handshake_problem
from headwater.wire.cursor import MalformedRequest

MAX_WAITING_CALLS: Final = 10_000
SHUTDOWN_TIMEOUT_S: Final = 2.0
"""Of a TLS connection that is closed."""
_NUMBERS: Final = 1 << 32

Encode: TypeAlias = Callable[[int, int], Sequence[Buffer]]
"""(version, number) -> a request. Called when it is sent: only then is the store's version known."""


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    connect_timeout_s: float = 1.0
    """For the connection and the handshake together."""
    call_timeout_s: float | None = None
    """A store that leaves the oldest call unanswered for so long is taken for lost. None: wait forever."""
    in_flight_bytes: int = 32 * 1024 * 1024
    """Bytes sent and not answered. One call may be larger, and is then alone on its way."""


class _Call(NamedTuple):
    encode: Encode
    size_bytes: int
    reply: "asyncio.Future[bytearray]"


class Channel:
    def __init__(
        self,
        address: PeerAddress,
        identity: PeerIdentity,
        options: ChannelOptions,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """`on_lost` is called when an established connection is lost, not when none could be made."""
        self._address = address
        self._identity = identity
        self._options = options
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._connection: PeerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._calls: deque[_Call] = deque()
        self._in_flight_bytes = 0
        self._number = 0
        self._version = 0
        self._is_closed = False
        self._complaint = ""
        """What was logged last about the other side, while no connection was made."""
        self._suspicion = ""
        """What will be logged if it happens again: a node that stops looks like that once."""

    @property
    def in_flight_bytes(self) -> int:
        return self._in_flight_bytes

    def call(self, encode: Encode, size_bytes: int) -> "asyncio.Future[bytearray]":
        """Send a request of about that size, now or when there is room. The future gets the frame of the reply, or a
        StoreError."""
        reply: asyncio.Future[bytearray] = self._loop.create_future()
        connection = self._connection
        if connection is not None and not self._calls and self._has_room(size_bytes):
            self._send(connection, encode, size_bytes, reply)
            return reply
        if self._is_closed or len(self._calls) >= MAX_WAITING_CALLS:
            reason = "was given up" if self._is_closed else f"leaves {MAX_WAITING_CALLS} calls waiting"
            fail(reply, StoreUnreachable(f"the store at {self._address.host}:{self._address.port} {reason}"))
            return reply
        self._calls.append(_Call(encode, size_bytes, reply))
        if connection is None and self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())
        return reply

    def close(self) -> None:
        """Close the connection. Calls that wait fail, and so do later ones."""
        self._is_closed = True
        self._on_lost = None
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close("closed by this side")
        self._fail_all(StoreUnreachable("the connection was closed by this side"))

    def _has_room(self, size_bytes: int) -> bool:
        return not self._in_flight_bytes or self._in_flight_bytes + size_bytes <= self._options.in_flight_bytes

    async def _connect(self) -> None:
        host, port = self._address
        connection: PeerConnection | None = None
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                connection = await self._open()
            if not connection.is_open:
                raise StoreUnreachable(f"store at {host}:{port}: lost right after the handshake")
        except (OSError, StoreError, MalformedRequest, TimeoutError) as error:
            self._connecting = None
            if connection is not None:
                connection.close("lost")
            self._complain(error)
            if not isinstance(error, StoreUnreachable):
                is_late = isinstance(error, TimeoutError)
                reason = f"no connection within {self._options.connect_timeout_s} s"
                error = StoreUnreachable(f"store at {host}:{port}: {reason if is_late else handshake_problem(error)}")
            self._fail_all(error)
        except BaseException:
            self._connecting = None
            if connection is not None:
                connection.close("given up")
            raise
        else:
            self._connecting = None
            self._connection = connection
            self._complaint = self._suspicion = ""
            self._send_waiting()

    async def _open(self) -> PeerConnection:
        """A connection whose two ends have proven themselves to each other."""
        host, port = self._address
        tls = self._identity.tls
        if tls is None or not tls.is_for_calls:
            _, connection = await self._loop.create_connection(self._new_connection, host, port)
            return await self._prove(connection, None)
        own = tls.files.current  # one moment's: the files may be replaced meanwhile
        assert own.outgoing is not None, "the files of a node are for both directions"
        _, connection = await self._loop.create_connection(
            self._new_connection, host, port, ssl=own.outgoing, server_hostname=host,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )  # fmt: skip
        return await self._prove(connection, own.certificate.der)

    async def _prove(self, connection: PeerConnection, own_certificate: bytes | None) -> PeerConnection:
        try:
            self._version = await connection.shake_hands(self._identity.secrets, own_certificate)
        except BaseException:
            connection.close("no handshake")
            raise
        return connection

    def _complain(self, error: Exception) -> None:
        """Log why the other side is not trusted, or does not trust this one, once until that is something else. A node
        that is merely away is others' business."""
        if not isinstance(error, ssl.SSLError | NotProven | MalformedRequest):
            return
        reason = handshake_problem(error)
        if isinstance(error, EndedUnproven) and reason != self._suspicion:
            self._suspicion = reason
        elif reason != self._complaint:
            self._complaint = reason
            host, port = self._address
            log_event("peer_handshake_failed", logging.WARNING, peer=f"{host}:{port}", reason=reason)

    def _new_connection(self) -> PeerConnection:
        return PeerConnection(self._address, self._options.call_timeout_s, self._replied, self._lost)

    def _replied(self, size_bytes: int) -> None:
        self._in_flight_bytes -= size_bytes
        if self._calls:
            self._send_waiting()

    def _send_waiting(self) -> None:
        while self._calls and self._connection is not None and self._has_room(self._calls[0].size_bytes):
            call = self._calls.popleft()
            if call.reply.done():
                continue  # the caller gave up before anything was sent
            self._send(self._connection, call.encode, call.size_bytes, call.reply)

    def _send(
        self, connection: PeerConnection, encode: Encode, size_bytes: int, reply: "asyncio.Future[bytearray]"
    ) -> None:
        self._number = number = (self._number + 1) % _NUMBERS
        self._in_flight_bytes += size_bytes
        connection.send(number, encode(self._version, number), size_bytes, reply)

    def _lost(self, connection: PeerConnection, error: StoreUnreachable) -> None:
        if connection is not self._connection:
            return  # its handshake was not finished: it carried no calls
        self._connection = None
        self._in_flight_bytes = 0
        self._fail_all(error)
        if self._on_lost is not None:
            self._on_lost()

    def _fail_all(self, error: StoreUnreachable) -> None:
        calls, self._calls = self._calls, deque()
        for call in calls:
            fail(call.reply, error)
