"""/v1/subscriptions/{name}/events and /socket; and the webhooks, which have no route but live as long as the server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from headwater.gateway.context import Context
from headwater.gateway.http.problems import Problem, too_busy
from headwater.gateway.kafka.brokers import Refused
from headwater.gateway.kafka.connection import BrokerGone
from headwater.gateway.kafka.group_configs import problem_of
from headwater.gateway.openapi import operation
from headwater.gateway.openapi.operation import check_names
from headwater.gateway.push.dispatcher import Dispatcher
from headwater.gateway.push.events import EventStream, parse_event_id
from headwater.gateway.push.sockets import MAX_CREDIT, POLICY_VIOLATION, TRY_AGAIN_LATER, RecordSocket
from headwater.gateway.subscriptions.members.member_pool import Member
from headwater.gateway.subscriptions.members.stream_member import StreamMember
from headwater.gateway.subscriptions.routes import NAMES, ONE

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MAX_STREAMED = 500
"""Clients of events and sockets, together."""
PATIENCE_S = 5.0
"""A client that lost its connection comes back before the gateway has seen that it went."""
CREDIT = "credit"
LAST_EVENT_ID = "last-event-id"


class EventsQuery(Struct):
    max_in_flight: Annotated[
        int, Meta(ge=1, le=1_000, description="Of a queue: so many records that nobody has settled.")
    ] = 100


@asynccontextmanager
async def running(context: Context) -> AsyncIterator[None]:
    context.pushing = Dispatcher(context)
    context.metrics.register(lambda: _families(context))
    async with context.pushing.running():
        yield


def routes(context: Context) -> list[BaseRoute]:
    streamed = _Streamed()

    async def events(request: Request, query: EventsQuery) -> Response:
        name = request.path_params["name"]
        member = await _member(context, name)
        positions = {}
        await streamed.vacant(member)
        with streamed.one_more(member):
            last = request.headers.get(LAST_EVENT_ID, "")
            if isinstance(member, StreamMember) and last:
                positions = parse_event_id(last)
                await member.seek(positions)
        return _Counted(EventStream(member, query.max_in_flight, positions), streamed, member)

    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            credit = _credit(websocket)
            member = await _member(context, websocket.path_params["name"])
            await streamed.vacant(member)
            with streamed.one_more(member):
                await RecordSocket(websocket, member, credit).run()
        except Problem as problem:
            told = {"problem": {"title": problem.title, "detail": problem.detail}}
            await websocket.send_text(msgspec.json.encode(told).decode())
            await websocket.close(POLICY_VIOLATION if problem.status < 429 else TRY_AGAIN_LATER)

    return [
        operation(
            "GET",
            f"{ONE}/events",
            events,
            "Records as server-sent events",
            context,
            query=EventsQuery,
            path_schemas=NAMES,
            headers={"Last-Event-ID": "Of a stream: go on behind this event."},
            answers={200: None},
            problems=(404, 409, 414, 502),
        ),
        WebSocketRoute(f"{ONE}/socket", socket),
    ]


class _Streamed:
    """Who is streamed to at this moment."""

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


class _Counted(Response):
    """An event stream that counts while it lasts."""

    def __init__(self, stream: EventStream, streamed: _Streamed, member: Member) -> None:
        super().__init__()
        self._stream = stream
        self._streamed = streamed
        self._member = member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streamed.one_more(self._member):
            await self._stream(scope, receive, send)


async def _member(context: Context, name: str) -> Member:
    try:
        return await context.subscriptions.member(name)
    except (BrokerGone, Refused) as error:
        raise problem_of(error) from None


def _credit(websocket: WebSocket) -> int:
    check_names(websocket.query_params, (CREDIT,))
    text = websocket.query_params.get(CREDIT, "100")
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= MAX_CREDIT):
        raise Problem(400, "Bad request", f"credit is a number from 0 to {MAX_CREDIT}.")
    return int(text)


def _families(context: Context) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    pushing = context.pushing
    if pushing is None:
        return
    for name, help_text, value in (
        ("taken", "Records that webhooks have taken.", pushing.counts.taken),
        ("failed", "Requests to webhooks that failed.", pushing.counts.failed),
        ("dead", "Records that webhooks did not take as often as is allowed.", pushing.counts.dead),
    ):
        yield CounterMetricFamily(f"headwater_push_{name}", help_text, value)
    yield GaugeMetricFamily("headwater_push_subscriptions", "Subscriptions that are pushed here.", pushing.pumps)
