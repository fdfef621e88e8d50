"""The gateway as an ASGI application: its parts, each with routes and with what lives as long as the server does."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from headwater.gateway.config import GatewayConfig
from headwater.gateway.context import Context
from headwater.gateway.problems import Problem, answer_problem


class Part(NamedTuple):
    routes: Callable[[Context], list[BaseRoute]]
    running: Callable[[Context], AbstractAsyncContextManager[None]] | None = None


PARTS: Sequence[Part] = ()


def build(config: GatewayConfig, parts: Sequence[Part] = PARTS) -> Starlette:
    context = Context(config)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(context.close)
            for part in parts:
                if part.running is not None:
                    await stack.enter_async_context(part.running(context))
            yield

    routes = [route for part in parts for route in part.routes(context)]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={Problem: answer_problem})
