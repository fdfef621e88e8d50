"""The gateway as an ASGI application: its parts, each with routes and with what lives as long as the server does."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from headwater.gateway.cluster import routes as cluster
from headwater.gateway.cluster.broker_pages import BrokerPages
from headwater.gateway.config import GatewayConfig
from headwater.gateway.console import routes as console
from headwater.gateway.context import Context
from headwater.gateway.groups import routes as groups
from headwater.gateway.http import health, session
from headwater.gateway.http.front_door import Gate
from headwater.gateway.http.problems import Problem, answer_failure, answer_http_error, answer_problem
from headwater.gateway.http.security import Guard
from headwater.gateway.openapi import routes as openapi
from headwater.gateway.push import routes as push
from headwater.gateway.records import routes as records
from headwater.gateway.registry import routes as registry
from headwater.gateway.routes import topics
from headwater.gateway.subscriptions import routes as subscriptions


class Part(NamedTuple):
    routes: Callable[[Context], list[BaseRoute]]
    running: Callable[[Context], AbstractAsyncContextManager[None]] | None = None
    public: tuple[str, ...] = ()
    """Paths that ask nobody for the token. One that ends in `*` is all that begin so."""


PARTS: Sequence[Part] = (
    Part(topics.routes),
    Part(records.routes),
    Part(cluster.routes),
    Part(groups.routes),
    Part(subscriptions.routes, subscriptions.running),
    Part(push.routes, push.running),
    Part(health.routes, public=health.PUBLIC),
    Part(session.routes, public=session.PUBLIC),
    Part(registry.routes, registry.running),
    Part(console.routes, public=console.PUBLIC),
)


class Gateway(Starlette):
    """An application with a gate before everything else, its middleware for errors included."""

    def __init__(self, gate: Gate, **options: Any) -> None:
        super().__init__(**options)
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gate(super().__call__, scope, receive, send)


def build(config: GatewayConfig, parts: Sequence[Part] = PARTS, pages: BrokerPages | None = None) -> Starlette:
    """`pages` are those of the broker in this process, if there is one. Raises BadToken."""
    context = Context(config, pages)
    context.guard = Guard(config, [path for part in parts for path in part.public])

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            context.open()
            stack.push_async_callback(context.close)
            for part in parts:
                if part.running is not None:
                    await stack.enter_async_context(part.running(context))
            yield

    routes = [route for part in parts for route in part.routes(context)]
    routes += openapi.routes(routes)
    return Gateway(
        Gate(context, records.Produce(context)),
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            Problem: answer_problem,
            HTTPException: answer_http_error,
            Exception: answer_failure,
        },
    )
