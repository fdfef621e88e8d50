"""A protocol whose answers come when a test says so."""

import asyncio

from headwater.transport.connection import Answer, Connection, Promise
from headwater.wire.cursor import MalformedRequest


class NoTraffic:
    def connection_opened(self) -> None: ...

    def connection_closed(self) -> None: ...

    def bytes_in(self, count: int) -> None: ...

    def bytes_out(self, count: int) -> None: ...

    def bad_request(self, event: str) -> None: ...


class Scripted:
    """Answers a request with its own bytes: at once, or when a test says so."""

    def __init__(self) -> None:
        self.outcomes: dict[bytes, asyncio.Future[None]] = {}
        self.started: asyncio.Queue[bytes] = asyncio.Queue()

    def handle(self, connection: Connection, frame: bytearray) -> "Answer | Promise":
        name = bytes(frame)
        if name == b"!":
            raise MalformedRequest("not a request")
        self.started.put_nowait(name[:1])
        if name.isupper():
            return [name]
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.outcomes[name[:1]] = outcome
        return Promise(outcome, lambda _: [name])


def one_kind(_: bytearray) -> str:
    return "any"
