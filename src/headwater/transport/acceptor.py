"""Accepts the connections of one listener.

A connection is counted, against all limits of the server, before anything is done for it. A TLS handshake that is under
way has a place of its own: without one free, the listener does not accept, and clients wait in the kernel's backlog. So
clients that never finish their handshakes cost places for a few seconds, and no memory beyond them.

A connection of an address that makes too many of them is held for a while and then closed, without a word: so a client
that connects again as soon as it fails is slowed down.
"""

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Final

from headwater.transport.connection import Connection
from headwater.transport.listener import Listener
from headwater.transport.tls_errors import NOT_TLS, handshake_problem

if TYPE_CHECKING:
    from headwater.transport.server import Server

MAX_HANDSHAKES: Final = 64
"""Of one listener, at a time."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
SHUTDOWN_TIMEOUT_S: Final = 2.0
"""How long a client may take to say that it has read everything, when a TLS connection is closed."""
MAX_HELD: Final = 1_000
"""Connections of one listener that are held before they are closed; more are closed at once."""
PAUSE_S: Final = 1.0
"""After an error of the system that more connections will meet, too: no file descriptors, no memory."""
_HANDSHAKE: Final = b"\x16"
"""The first byte of a TLS connection: a record of the handshake."""


class Acceptor:
    def __init__(self, server: "Server", listener: Listener, bound: socket.socket) -> None:
        self._server = server
        self._loop = server.loop
        self._listener = listener
        self._socket = bound
        self._places = asyncio.Semaphore(MAX_HANDSHAKES)
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
            await self._places.acquire()
            try:
                accepted, address = await self._loop.sock_accept(self._socket)
            except OSError as error:
                self._places.release()
                self._server.events.log("accept_failed", logging.ERROR, reason=error.strerror or str(error))
                await asyncio.sleep(PAUSE_S)
                continue
            host = address[0] if isinstance(address, tuple) else "local"
            wait_s = self._server.wait_s_of(host) if self._server.wait_s_of is not None else 0.0
            if wait_s:
                self._places.release()
                self._hold(accepted, host, wait_s)
                continue
            if not self._server.admit(host, self._listener):
                self._places.release()
                accepted.close()
                continue
            task = self._loop.create_task(self._serve(accepted, host))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    def _hold(self, accepted: socket.socket, host: str, wait_s: float) -> None:
        self._server.events.log("connection_refused", peer=host, reason="connection_creation_rate")
        if len(self._held) < MAX_HELD:
            self._held[accepted] = self._loop.call_later(wait_s, self._let_go, accepted)
        else:
            accepted.close()

    def _let_go(self, held: socket.socket) -> None:
        self._held.pop(held).cancel()
        held.close()

    async def _serve(self, accepted: socket.socket, host: str) -> None:
        """Set the connection up. The server has admitted it: if it is never made, its place is given back here."""
        made: Connection | None = None
        try:
            tls = None
            if self._listener.tls is not None and await self._begins_tls(accepted):
                tls = self._listener.tls.current  # one moment's: the files may be replaced meanwhile
            shown = tls.certificate.der if tls is not None else None
            connection = made = Connection(self._server, self._listener, host, shown)
            if tls is None:
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
            else:
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=tls.context,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
                )
        except (OSError, TimeoutError) as error:
            self._failed(host, error)
        finally:
            self._places.release()
            if made is None or not made.was_made:
                accepted.close()
                self._server.release_place(host, self._listener)

    async def _begins_tls(self, accepted: socket.socket) -> bool:
        """Where a listener takes both, the first byte tells: nothing but a handshake begins with it. The byte stays."""
        if not self._listener.takes_plain:
            return True
        readable = asyncio.Event()
        self._loop.add_reader(accepted, readable.set)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await readable.wait()
        finally:
            self._loop.remove_reader(accepted)
        return accepted.recv(1, socket.MSG_PEEK) == _HANDSHAKE

    def _failed(self, host: str, error: Exception) -> None:
        reason = error.reason if isinstance(error, ssl.SSLError) else None
        event = "plaintext_on_tls_listener" if reason in NOT_TLS else "tls_handshake_failed"
        self._server.traffic.bad_request(event)
        self._server.events.log(event, peer=host, listener=self._listener.name, reason=handshake_problem(error))
