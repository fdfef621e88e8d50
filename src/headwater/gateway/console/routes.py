"""The console: its page and files at / and /console/, and what only the console asks for.

    GET /                    the page
    GET /console/<file>      its modules and styles
    GET /console/traffic     the broker's counters of each topic (traffic.py)
    GET /v1/pipelines        pipelines as they report themselves (pipelines.py)

Files are read once. They carry no secret and are public, so that a page without a session can show its login; what they
ask the API for is not.
"""

import hashlib
import mimetypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headwater.gateway.console.pipelines import Pipelines, PipelineStatuses
from headwater.gateway.console.traffic import Traffic
from headwater.gateway.http.openapi import Operation, answer
from headwater.gateway.http.openapi.operation import ROUTE
from headwater.gateway.http.problems import Problem

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
PUBLIC = ("/", *(f"/console/{path.relative_to(STATIC).as_posix()}" for path in STATIC.rglob("*") if path.is_file()))
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
SECURITY = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    media_type: str
    tag: str

    @property
    def headers(self) -> dict[str, str]:
        # Asked for again each time, and mostly answered with 304: a new version is seen at once.
        return {**SECURITY, "ETag": self.tag, "Cache-Control": "no-cache"}


class ConsoleRoutes:
    def __init__(self, traffic: Traffic, pipelines: PipelineStatuses) -> None:
        self._traffic = traffic
        self._pipelines = pipelines

    def operations(self) -> list[Operation]:
        return [
            Operation(
                "GET", "/v1/pipelines", self.list_pipelines, "List pipelines as they report themselves",
                answers={200: Pipelines}, problems=(502,),
            )
        ]  # fmt: skip

    def routes(self) -> list[BaseRoute]:
        return [Route("/console/traffic", self.show_traffic), *file_routes()]

    async def list_pipelines(self, request: Request) -> Response:
        return answer(await self._pipelines.read())

    async def show_traffic(self, request: Request) -> Response:
        request.scope[ROUTE] = "/console/traffic"
        return answer(await self._traffic.read())


def file_routes() -> list[BaseRoute]:
    """The page and its files, which need no cluster."""
    files = dict(_files(STATIC))

    async def page(request: Request) -> Response:
        request.scope[ROUTE] = "/"
        return _file_response(request, files[PAGE])

    async def file(request: Request) -> Response:
        request.scope[ROUTE] = "/console/{file}"
        requested = files.get(request.path_params["file"])
        if requested is None:
            raise Problem(404, "Not found", "The console has no such file.")
        return _file_response(request, requested)

    return [Route("/", page), Route("/console/{file:path}", file)]


def _files(directory: Path) -> Iterator[tuple[str, File]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            media_type = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            tag = f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
            yield path.relative_to(directory).as_posix(), File(content, media_type, tag)


def _file_response(request: Request, file: File) -> Response:
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=file.headers)
    return Response(file.content, headers=file.headers, media_type=file.media_type)
