"""/healthz (this process answers), /readyz (a broker answers it), /metrics."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from headwater.gateway.context import Context
from headwater.gateway.openapi.operation import ROUTE

PUBLIC = ("/healthz", "/readyz")
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def routes(context: Context) -> list[BaseRoute]:
    async def healthz(request: Request) -> Response:
        request.scope[ROUTE] = "/healthz"
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        request.scope[ROUTE] = "/readyz"
        await context.topics.refresh()
        return PlainTextResponse("ready\n")

    async def metrics(request: Request) -> Response:
        request.scope[ROUTE] = "/metrics"
        page = await context.in_thread(context.metrics.page)
        return Response(page, media_type=PROMETHEUS)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]
