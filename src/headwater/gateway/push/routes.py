"""/v1/subscriptions/{name}/events and /socket."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from headwater.gateway.http.kafka_problems import FAILURES, problem_of
from headwater.gateway.http.openapi import Operation
from headwater.gateway.http.openapi.endpoint import check_names
from headwater.gateway.http.problems import Problem, too_busy
from headwater.gateway.push.events import EventStream, parse_event_id
from headwater.gateway.push.sockets import MAX_CREDIT, POLICY_VIOLATION, TRY_AGAIN_LATER, RecordSocket
from headwater.gateway.subscriptions.members.member_pool import Member
from headwater.gateway.subscriptions.members.stream_member import StreamMember
from headwater.gateway.subscriptions.reads import SubscriptionReads
from headwater.gateway.subscriptions.routes import NAMES, ONE

MAX_STREAMED = 500
"""Clients of events and sockets, together."""
PATIENCE_S = 5.0
"""A client that lost its connection comes back before the gateway has seen that it went."""
CREDIT = "credit"
LAST_EVENT_ID = "last-event-id"


class EventsQuery(Struct):
    max_in_flight: Annotated[
        int, Meta(ge=1, le=1_000, description="Of a queue: so many records that are not acknowledged.")
    ] = 100


class PushRoutes:
    def __init__(self, reads: SubscriptionReads) -> None:
        self._reads = reads
        self._clients = _StreamedClients()

    def operations(self) -> list[Operation]:
        return [
            Operation(
                "GET", f"{ONE}/events", self.events, "Records as server-sent events",
                query=EventsQuery, path_schemas=NAMES,
                headers={"Last-Event-ID": "Of a stream: go on behind this event."},
                answers={200: None}, problems=(404, 409, 414, 502),
            )
        ]  # fmt: skip

    def routes(self) -> list[BaseRoute]:
        return [WebSocketRoute(f"{ONE}/socket", self.socket)]

    async def events(self, request: Request, query: EventsQuery) -> Response:
        member = await self._reads.member(request.path_params["name"])
        positions = {}
        await self._clients.vacant(member)
        with self._clients.one_more(member):
            last = request.headers.get(LAST_EVENT_ID, "")
            if isinstance(member, StreamMember) and last:
                positions = parse_event_id(last)
                await member.seek(positions)
        return _CountedStream(EventStream(member, query.max_in_flight, positions), self._clients, member)

    async def socket(self, websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            credit = _credit(websocket)
            member = await self._reads.member(websocket.path_params["name"])
            await self._clients.vacant(member)
            with self._clients.one_more(member):
                await RecordSocket(websocket, member, credit).run()
        except FAILURES as failure:
            problem = problem_of(failure)
            frame = {"problem": {"title": problem.title, "detail": problem.detail}}
            await websocket.send_text(msgspec.json.encode(frame).decode())
            await websocket.close(POLICY_VIOLATION if problem.status < 429 else TRY_AGAIN_LATER)


class _StreamedClients:
    """The clients that records are streamed to at this moment."""

    def __init__(self) -> None:
        self._count = 0
        self._streams: set[StreamMember] = set()
        self._left = asyncio.Event()

    async def vacant(self, member: Member) -> None:
        """Wait a while for the stream's reader to go, if there is one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while member in self._streams:
                    self._left.clear()
                    await self._left.wait()

    @contextmanager
    def one_more(self, member: Member) -> Iterator[None]:
        if self._count >= MAX_STREAMED:
            raise too_busy(f"{MAX_STREAMED} clients are streamed to at this moment.", 5)
        if member in self._streams:
            raise Problem(
                409, "Stream is being read", "Another client reads this stream here: two would tear its order apart."
            )
        self._count += 1
        if isinstance(member, StreamMember):
            self._streams.add(member)
        try:
            yield
        finally:
            self._count -= 1
            if isinstance(member, StreamMember):
                self._streams.discard(member)
                self._left.set()


class _CountedStream(Response):
    """An event stream that counts while it lasts."""

    def __init__(self, stream: EventStream, clients: _StreamedClients, member: Member) -> None:
        super().__init__()
        self._stream = stream
        self._clients = clients
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._clients.one_more(self._member):
            await self._stream(scope, receive, send)


def _credit(websocket: WebSocket) -> int:
    check_names(websocket.query_params, (CREDIT,))
    text = websocket.query_params.get(CREDIT, "100")
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= MAX_CREDIT):
        raise Problem(400, "Bad request", f"credit is a number from 0 to {MAX_CREDIT}.")
    return int(text)
