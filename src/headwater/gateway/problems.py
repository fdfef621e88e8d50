"""What a client is told when something cannot be done: application/problem+json (RFC 9457)."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


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
        told = {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}
        return Response(
            msgspec.json.encode({**told, **self.members}), self.status, headers=self.headers, media_type=MEDIA_TYPE
        )


def too_busy(detail: str, retry_after_s: int = 1) -> Problem:
    """A bound of the gateway is reached: come back."""
    return Problem(429, "Too many requests", detail, headers={"Retry-After": str(retry_after_s)})


async def answer_problem(_: Request, error: Exception) -> Response:
    """Starlette's handler of the exception."""
    assert isinstance(error, Problem), "registered for problems alone"
    return error.response()
