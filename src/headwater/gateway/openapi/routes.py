"""GET /openapi.json: made when somebody asks first."""

from collections.abc import Sequence
from importlib.metadata import version

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headwater.gateway.http.openapi.description import describe
from headwater.gateway.openapi.operation import JSON, ROUTE


def routes(described: Sequence[BaseRoute]) -> list[BaseRoute]:
    made: list[bytes] = []

    async def description(request: Request) -> Response:
        request.scope[ROUTE] = "/openapi.json"
        if not made:
            made.append(msgspec.json.encode(describe(described, version("headwater"))))
        return Response(made[0], media_type=JSON)

    return [Route("/openapi.json", description)]
