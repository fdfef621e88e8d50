"""Lets one through at each turn of the event loop, and addresses in turn.

For work that takes a millisecond of the loop, and that strangers can ask for as often as they like: between two pieces
of it everything else runs once. An address that was not let through in this second goes before those that were, so that
one that asks for much does not hold up another.
"""

import asyncio
from collections import deque
from typing import Final

SECOND_S: Final = 1.0

_Waiting = dict[str, deque["asyncio.Future[None]"]]
"""By address, in the order of their turns. As many as there are connections."""


class Turnstile:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._first: Final[_Waiting] = {}
        self._others: Final[_Waiting] = {}
        self._seen: Final[set[str]] = set()
        """Addresses of this second that were let through."""
        self._second_began = 0.0
        self._next: asyncio.Handle | None = None

    async def passed(self, host: str) -> None:
        """Returns when it is the turn of one that came from this address."""
        if self._loop.time() - self._second_began >= SECOND_S:
            self._seen.clear()
            self._second_began = self._loop.time()
        waiting = self._others if host in self._seen or host in self._others else self._first
        turn: asyncio.Future[None] = self._loop.create_future()
        waiting.setdefault(host, deque()).append(turn)
        if self._next is None:
            self._next = self._loop.call_soon(self._let_one_through)
        await turn

    def _let_one_through(self) -> None:
        self._next = None
        while waiting := self._first or self._others:
            host = next(iter(waiting))
            turns = waiting.pop(host)
            turn = turns.popleft()
            if turns:
                self._others.setdefault(host, deque()).extend(turns)  # behind the others
            if not turn.done():
                self._seen.add(host)
                turn.set_result(None)
                break
        if self._first or self._others:
            self._next = self._loop.call_soon(self._let_one_through)
