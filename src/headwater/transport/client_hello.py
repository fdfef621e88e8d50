"""Waits for the first record of a TLS handshake without reading it: it stays in the kernel, which wakes the waiter when
all of the record is there.

So a client that says nothing, or only half of what it should, costs a socket and no memory of TLS.
"""

import asyncio
import contextlib
import socket
from typing import Final

_RECORD_HEAD_BYTES: Final = 5
"""Kind, version, length."""
_HANDSHAKE: Final = 0x16
_MAX_RECORD_BYTES: Final = 1 << 14


async def client_hello(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bool:
    """Returns when the record is there, or when it is clear that none will come: whether what has come begins as TLS
    does, which says itself what else is wrong. Raises ConnectionResetError if the client has gone without a word."""
    head = await _arrived(loop, sock, _RECORD_HEAD_BYTES)
    if not head:
        raise ConnectionResetError("closed before the TLS handshake")
    length = int.from_bytes(head[3:5], "big")
    if len(head) == _RECORD_HEAD_BYTES and head[0] == _HANDSHAKE and length <= _MAX_RECORD_BYTES:
        await _arrived(loop, sock, _RECORD_HEAD_BYTES + length)
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return head[0] == _HANDSHAKE


async def _arrived(loop: asyncio.AbstractEventLoop, sock: socket.socket, count: int) -> bytes:
    """So many bytes; fewer, if the client ends before. They can be read again."""
    with contextlib.suppress(OSError):  # where it is not to be had, TLS waits for the rest
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    is_readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sock, _wake, is_readable)
    try:
        await is_readable
    finally:
        loop.remove_reader(sock)
    return sock.recv(count, socket.MSG_PEEK)


def _wake(is_readable: "asyncio.Future[None]") -> None:
    if not is_readable.done():
        is_readable.set_result(None)
