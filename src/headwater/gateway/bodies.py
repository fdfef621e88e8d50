"""Bodies of requests, read no further than is allowed: each one, and all of them together."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from headwater.gateway.problems import Problem, bad_request, too_busy

READ_TIMEOUT_S = 30.0
"""For a whole body. A client that sends a byte a second must not hold memory for long."""
MAX_LENGTH_DIGITS = 18


class Budget:
    """Bytes that bodies may take at one time. Whoever wants more than is left is refused at once, not queued."""

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
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await _read(receive, limit_bytes, budget)
    except TimeoutError:
        raise Problem(
            408,
            "Request timeout",
            f"The body did not arrive within {READ_TIMEOUT_S:.0f} s.",
            headers={"Connection": "close"},
        ) from None


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


async def _read(receive: Receive, limit_bytes: int, budget: Budget) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect()
            part: bytes = message.get("body", b"")
            if size_bytes + len(part) > limit_bytes:
                raise too_large(limit_bytes)
            budget.take(len(part))
            size_bytes += len(part)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        budget.give_back(size_bytes)
