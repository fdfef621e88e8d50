"""Output of a TLS connection in slices, with an iteration of the event loop between them.

Encrypting takes about a millisecond for a MiB, in the event loop. A fetch of 50 MiB in one piece would delay the
heartbeats of every other client by as much as a slow disk does.

What waits here is bounded by the responses that a connection has under way: it is not read until all has left. Nothing
is encrypted while the transport has more than it can send.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from headwater.model.replica import Buffer

SLICE_BYTES: Final = 256 * 1024


class SlicedOutput:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, on_empty: Callable[[], None]
    ) -> None:
        """`on_empty` is called when the last slice has left, unless `write` could send everything at once."""
        self._loop = loop
        self._transport = transport
        self._on_empty = on_empty
        self._waiting: deque[memoryview] = deque()
        self._is_paused = False
        self._is_due = False
        """Whether the next slice is on its way to be written."""

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def write(self, pieces: Sequence[Buffer]) -> None:
        """Write the first slice now; the rest follows."""
        is_under_way = bool(self._waiting)
        self._waiting += [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        if not is_under_way:
            self._write_slice()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting and not self._is_paused and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_due = False
        if self._is_paused:
            return
        self._write_slice()
        if not self._waiting:
            self._on_empty()

    def _write_slice(self) -> None:
        if self._transport.is_closing():
            self._waiting.clear()
            return
        left = SLICE_BYTES
        pieces: list[memoryview] = []
        while self._waiting and left:
            piece = self._waiting.popleft()
            if len(piece) > left:
                self._waiting.appendleft(piece[left:])
                piece = piece[:left]
            pieces.append(piece)
            left -= len(piece)
        self._transport.writelines(pieces)
        self._go_on()
