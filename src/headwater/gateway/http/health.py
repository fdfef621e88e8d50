"""/healthz (this process answers), /readyz (a broker answers it), /metrics."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from headwater.gateway.http.metrics import HttpMetrics
from headwater.gateway.http.openapi.operation import ROUTE
from headwater.gateway.kafka.call_threads import CallThreads
from headwater.gateway.kafka.known_topics import KnownTopics

PUBLIC = ("/healthz", "/readyz")
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def health_routes(topics: KnownTopics, metrics: HttpMetrics, threads: CallThreads) -> list[BaseRoute]:
    async def healthz(request: Request) -> Response:
        request.scope[ROUTE] = "/healthz"
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        request.scope[ROUTE] = "/readyz"
        await topics.refresh()
        return PlainTextResponse("ready\n")

    async def metrics_page(request: Request) -> Response:
        request.scope[ROUTE] = "/metrics"
        return Response(await threads.run(metrics.page), media_type=PROMETHEUS)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics_page)]
