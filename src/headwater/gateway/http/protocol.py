"""uvicorn's protocols with bounds that they lack: on the size of a request's head, and on the time that a request takes
to arrive. A client that sends a byte a second must not hold memory, or a connection, for long.

Nor must one that does not read: an application that sends it more than it takes may cut it off (`abort`). Closing would
wait until it has read what is on its way.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_HEAD_BYTES = 64 * 1024
ARRIVAL_TIMEOUT_S = 60.0
"""From its first byte, or from the connection, to the end of its body."""


ABORT = "headwater.abort"
"""Where the scope of a request has the call that ends its connection."""


def abort(scope: Any) -> None:
    """Cut a client off, whatever is on its way to it."""
    scope[ABORT]()


class HeadTooLarge(Exception):
    """The client sends headers, and more headers."""


class BoundedHttpProtocol(HttpToolsProtocol):
    _head_bytes = 0
    _is_in_head = True
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(ARRIVAL_TIMEOUT_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except HeadTooLarge:
            self.send_400_response("The head of the request is too large.")
            return
        # llhttp gives a header when it is whole: one that never ends is counted here.
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > 2 * MAX_HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]
        self._head_bytes = 0
        self._is_in_head = True
        if self._timer is None:
            self._timer = self.loop.call_later(ARRIVAL_TIMEOUT_S, self._give_up)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_timer()
        super().on_message_complete()

    def _count(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BoundedSocketProtocol(WebSocketsSansIOProtocol):
    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:  # a request that is refused has no scope
            self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]
