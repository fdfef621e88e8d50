"""Lets one through at each turn of the event loop, and addresses in turn.

For work that takes a millisecond of the loop, and that strangers can ask for as often as they like: between two pieces of
it everything else runs once, and an address that asks for much does not hold up another.
"""

import asyncio
from collections import deque
from typing import Final


class Turnstile:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: Final[dict[str, deque[asyncio.Future[None]]]] = {}
        """By address, in the order of their turns. As many as there are connections."""
        self._next: asyncio.Handle | None = None

    async def passed(self, host: str) -> None:
        """Returns when it is the turn of one that came from this address."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(host, deque()).append(turn)
        if self._next is None:
            self._next = self._loop.call_soon(self._let_one_through)
        await turn

    def _let_one_through(self) -> None:
        self._next = None
        while self._waiting:
            host = next(iter(self._waiting))
            waiting = self._waiting.pop(host)
            turn = waiting.popleft()
            if waiting:
                self._waiting[host] = waiting  # behind the others
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            self._next = self._loop.call_soon(self._let_one_through)
