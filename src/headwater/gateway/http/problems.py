"""The answer when something cannot be done: application/problem+json (RFC 9457)."""

import logging
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"

log = logging.getLogger(__name__)


class Problem(Exception):
    """`title` names the kind of problem and is the same each time; `detail` says what happened here, why, and what to
    do. Members are further fields of the answer."""

    def __init__(
        self, status: int, title: str, detail: str, *, headers: dict[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = headers
        self.members = members

    def response(self) -> Response:
        body = {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}
        return Response(
            msgspec.json.encode({**body, **self.members}), self.status, headers=self.headers, media_type=MEDIA_TYPE
        )


def too_busy(detail: str, retry_after_s: int = 1) -> Problem:
    """A bound of the gateway is reached: come back."""
    return Problem(429, "Too many requests", detail, headers={"Retry-After": str(retry_after_s)})


def bad_request(detail: str, **members: Any) -> Problem:
    return Problem(400, "Bad request", detail, **members)


def unavailable(detail: str) -> Problem:
    """The cluster does not answer; asking again later may help."""
    return Problem(503, "Cluster unavailable", detail, headers={"Retry-After": "1"})


def internal_error() -> Problem:
    return Problem(500, "Internal error", "The gateway failed to handle this request; its log says why.")


async def answer_problem(_: Request, error: Exception) -> Response:
    """Starlette's handler of the exception."""
    assert isinstance(error, Problem), "registered for problems alone"
    return error.response()


async def answer_http_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses: an unknown path, a method that the path does not take."""
    assert isinstance(error, HTTPException), "registered for these alone"
    title = HTTPStatus(error.status_code).phrase
    detail = f"{request.method} {request.url.path[:200]}: {error.detail}. /openapi.json describes what there is."
    headers = dict(error.headers) if error.headers else None
    return Problem(error.status_code, title, detail, headers=headers).response()


async def answer_failure(request: Request, error: Exception) -> Response:
    """Our fault. The client learns that it is, and the log learns the rest."""
    log.error("request_failed method=%s path=%r", request.method, request.url.path[:200], exc_info=error)
    return internal_error().response()
