"""Accepts the connections of one listener.

A connection is counted, against all limits of the server, before anything is done for it. Of TLS nothing is done before
the client's first record is whole: until then it waits in the kernel, and costs a socket. Handshakes begin one at each
turn of the event loop, in turn for the addresses that they come from, because each takes a millisecond of the loop. Of
those under way there is a number; beyond it the oldest is given up. So clients that never finish, or only begin, keep
out no other, and cost little memory for a few seconds.

A connection of an address that makes too many of them is held for a while and then closed, without a word: so a client
that connects again as soon as it fails is slowed down.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Final

from headwater.transport.client_hello import client_hello
from headwater.transport.connection import Connection
from headwater.transport.listener import Listener
from headwater.transport.strangers import Strangers
from headwater.transport.tls_errors import NOT_TLS, handshake_problem
from headwater.transport.turnstile import Turnstile

if TYPE_CHECKING:
    from headwater.transport.server import Server

MAX_HANDSHAKES: Final = 512
"""Of one listener, at a time; each takes some 50 KiB."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""From the connection on."""
LEAST_HANDSHAKE_S: Final = 0.1
SHUTDOWN_TIMEOUT_S: Final = 2.0
"""How long a client may take to say that it has read everything, when a TLS connection is closed."""
MAX_ACCEPTS_AT_ONCE: Final = 32
MAX_HELD: Final = 1_000
"""Connections of one listener that are held before they are closed; more are closed at once."""
PAUSE_S: Final = 1.0
"""After an error of the system that more connections will meet, too: no file descriptors, no memory."""


class Acceptor:
    def __init__(self, server: "Server", listener: Listener, bound: socket.socket) -> None:
        self._server = server
        self._loop = server.loop
        self._listener = listener
        self._socket = bound
        self._handshakes = Strangers()
        self._turnstile = Turnstile(self._loop)
        self._serving: set[asyncio.Task[None]] = set()
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        self._accepting = self._loop.create_task(self._accept())

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Accept no more. Connections that are being set up are given up."""
        self._accepting.cancel()
        for task in self._serving:
            task.cancel()
        for held in list(self._held):
            self._let_go(held)
        self._socket.close()

    async def _accept(self) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(self._socket)
            except OSError as error:
                self._server.events.log("accept_failed", logging.ERROR, reason=error.strerror or str(error))
                await asyncio.sleep(PAUSE_S)
                continue
            self._accepted(accepted, address)
            self._accept_more()

    def _accept_more(self) -> None:
        """Those that have come, too: a client must not wait for a turn of the loop for each that came before it."""
        with contextlib.suppress(OSError):  # there are no more, or what the next turn will tell
            for _ in range(MAX_ACCEPTS_AT_ONCE):
                accepted, address = self._socket.accept()
                accepted.setblocking(False)
                self._accepted(accepted, address)

    def _accepted(self, accepted: socket.socket, address: object) -> None:
        host = str(address[0]) if isinstance(address, tuple) else "local"
        wait_s = self._server.wait_s_of(host) if self._server.wait_s_of is not None else 0.0
        if wait_s:
            self._hold(accepted, host, wait_s)
            return
        if not self._server.admit(host, self._listener):
            accepted.close()
            return
        made: list[Connection] = []
        task = self._loop.create_task(self._serve(accepted, host, made))
        self._serving.add(task)
        # Not in the task: one that is cancelled before it begins has no end of its own.
        task.add_done_callback(lambda task: self._served(task, accepted, host, made))
        if self._listener.tls is not None:
            self._server.expects(task, host, self._listener)

    def _hold(self, accepted: socket.socket, host: str, wait_s: float) -> None:
        self._server.events.log("connection_refused", peer=host, reason="connection_creation_rate")
        if len(self._held) < MAX_HELD:
            self._held[accepted] = self._loop.call_later(wait_s, self._let_go, accepted)
        else:
            accepted.close()

    def _let_go(self, held: socket.socket) -> None:
        self._held.pop(held).cancel()
        held.close()

    async def _serve(self, accepted: socket.socket, host: str, made: list[Connection]) -> None:
        """Set the connection up, and put it into `made`."""
        try:
            if self._listener.tls is None:
                await self._take(accepted, host, made)
            else:
                await self._shake_hands(accepted, host, made)
        except (OSError, TimeoutError) as error:
            self._failed(host, error)

    def _served(self, task: "asyncio.Task[None]", accepted: socket.socket, host: str, made: list[Connection]) -> None:
        """The server has admitted the connection: if it was never made, its place is given back here."""
        self._serving.discard(task)
        self._server.no_longer_expects(task, self._listener)
        if not any(connection.was_made for connection in made):
            for connection in made:
                connection.give_up()
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)  # a transport that has it already learns of the end by that
            accepted.close()
            self._server.release_place(host, self._listener)

    async def _take(self, accepted: socket.socket, host: str, made: list[Connection]) -> None:
        """As it is, without TLS."""
        made.append(Connection(self._server, self._listener, host))
        await self._loop.connect_accepted_socket(lambda: made[0], accepted)

    async def _shake_hands(self, accepted: socket.socket, host: str, made: list[Connection]) -> None:
        ends_at = self._loop.time() + HANDSHAKE_TIMEOUT_S
        async with asyncio.timeout_at(ends_at):
            begins_tls = await client_hello(self._loop, accepted)
            if begins_tls or not self._listener.takes_plain:
                await self._turnstile.passed(host)
        if self._listener.takes_plain and not begins_tls:
            await self._take(accepted, host, made)
            return
        task, handshakes = asyncio.current_task(), self._handshakes
        assert self._listener.tls is not None and task is not None, "a task that sets up TLS"
        tls = self._listener.tls.current  # one moment's: the files may be replaced meanwhile
        made.append(Connection(self._server, self._listener, host, tls.certificate.der))
        if len(handshakes) >= MAX_HANDSHAKES:
            handshakes.close_one_for(host)
        handshakes.add(task, host, task.cancel)
        try:
            await self._loop.connect_accepted_socket(
                lambda: made[0],
                accepted,
                ssl=tls.context,
                ssl_handshake_timeout=max(LEAST_HANDSHAKE_S, ends_at - self._loop.time()),
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        finally:
            handshakes.discard(task)

    def _failed(self, host: str, error: Exception) -> None:
        reason = error.reason if isinstance(error, ssl.SSLError) else None
        event = "plaintext_on_tls_listener" if reason in NOT_TLS else "tls_handshake_failed"
        self._server.traffic.bad_request(event)
        late = f"not done within {HANDSHAKE_TIMEOUT_S:g} s"
        words = late if isinstance(error, TimeoutError) and not str(error) else handshake_problem(error)
        self._server.events.log(event, peer=host, listener=self._listener.name, reason=words)
