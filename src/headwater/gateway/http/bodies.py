"""Bodies of requests, read no further than is allowed: each one, and all of them together.

How long a body may take is the affair of the server (protocol.py), which ends the connection.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from headwater.gateway.http.problems import Problem, bad_request, too_busy

MAX_LENGTH_DIGITS = 18


class Budget:
    """Bytes that bodies may take at one time. A request that needs more than is left is refused at once, not queued."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        if self.taken_bytes + size_bytes > self._limit_bytes:
            raise too_busy("The gateway holds as many bytes of requests as it may. Try it again in a moment.")
        self.taken_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.taken_bytes -= size_bytes
        assert self.taken_bytes >= 0, "what is given back was taken"

    @contextmanager
    def hold(self, size_bytes: int) -> Iterator[None]:
        self.take(size_bytes)
        try:
            yield
        finally:
            self.give_back(size_bytes)


async def read_body(receive: Receive, headers: Mapping[str, str], limit_bytes: int, budget: Budget) -> bytes:
    """The body of an ASGI request. It is in the budget until this returns; who keeps it longer takes it again."""
    check_announced(headers.get("content-length"), limit_bytes)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False) and len(body) <= limit_bytes:
        return body  # it came at once, as small ones do
    return await _read(message, receive, limit_bytes, budget)


def check_announced(content_length: str | None, limit_bytes: int) -> None:
    """Refuse what is too large before any of it is read."""
    if content_length is None:
        return
    if not (content_length.isascii() and content_length.isdigit() and len(content_length) <= MAX_LENGTH_DIGITS):
        raise bad_request("Content-Length is not a number.")
    if int(content_length) > limit_bytes:
        raise too_large(limit_bytes)


def too_large(limit_bytes: int) -> Problem:
    return Problem(
        413,
        "Content too large",
        f"The body is larger than the {limit_bytes} bytes that are allowed here. Send less at once.",
        limit_bytes=limit_bytes,
    )


async def _read(message: Message, receive: Receive, limit_bytes: int, budget: Budget) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    try:
        while True:
            if message["type"] == "http.disconnect":
                raise ClientDisconnect()
            part: bytes = message.get("body", b"")
            if size_bytes + len(part) > limit_bytes:
                raise too_large(limit_bytes)
            budget.take(len(part))
            size_bytes += len(part)
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)
            message = await receive()
    finally:
        budget.give_back(size_bytes)
