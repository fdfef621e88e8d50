"""What every request passes first: it is counted, and it must be allowed.

Writing records is most of what a busy gateway does, and most of what its requests cost is the way through the router.
Such a request takes a shorter one from here.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.gateway.context import Context
from headwater.gateway.http.metrics import OTHER
from headwater.gateway.http.problems import MEDIA_TYPE, Problem, failure
from headwater.gateway.openapi.operation import JSON, ROUTE

BEFORE_TOPIC, AFTER_TOPIC = "/v1/topics/", "/records"
RECORDS_ROUTE = "/v1/topics/{topic}/records"
log = logging.getLogger(__name__)

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Writing(Protocol):
    async def __call__(
        self, topic: str, query: bytes, headers: Mapping[str, str], receive: Receive
    ) -> tuple[int, bytes, Mapping[str, str] | None]:
        """Status, body and further headers of the answer. Raises Problem."""


class Gate:
    def __init__(self, context: Context, produce: Writing) -> None:
        self._guard = context.guard
        self._metrics = context.metrics
        self._produce = produce

    async def __call__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._request(app, scope, receive, send)
        elif kind == "websocket":
            await self._socket(app, scope, receive, send)
        else:
            await app(scope, receive, send)

    async def _request(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        started_s = time.perf_counter()
        metrics = self._metrics
        metrics.in_flight += 1
        status = 500
        is_ours = True
        method: str = scope["method"]

        async def counting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            headers = _headers(scope)
            path: str = scope["path"]
            self._guard.check(method, path, headers)
            if method == "POST" and path.endswith(AFTER_TOPIC) and path.startswith(BEFORE_TOPIC):
                topic = path[len(BEFORE_TOPIC) : -len(AFTER_TOPIC)]
                if topic and "/" not in topic:
                    scope[ROUTE] = RECORDS_ROUTE
                    status, body, more = await self._produce(topic, scope["query_string"], headers, receive)
                    await _send_json(send, status, body, more)
                    return
            is_ours = False
            await app(scope, receive, counting_send)
        except Problem as problem:
            status = problem.status
            await _send_problem(send, problem)
        except ClientDisconnect:
            status = 499  # nobody is there to be told
        except Exception as error:
            if not is_ours:
                raise  # the application has answered, and uvicorn logs it
            log.error("request_failed method=%s path=%r", method, scope["path"][:200], exc_info=error)
            await _send_problem(send, failure())
        finally:
            metrics.in_flight -= 1
            route = scope.get(ROUTE, OTHER)
            metrics.answered(method if method in METHODS else OTHER, route, status, time.perf_counter() - started_s)

    async def _socket(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._guard.check("GET", scope["path"], {**_headers(scope), "upgrade": "websocket"})
        except Problem as problem:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": problem.title})
            return
        await app(scope, receive, send)


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _send_json(send: Send, status: int, body: bytes, more: Mapping[str, str] | None) -> None:
    headers = [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(body))]
    if more is not None:
        headers += [(name.encode(), value.encode()) for name, value in more.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_problem(send: Send, problem: Problem) -> None:
    told: dict[str, Any] = {"type": "about:blank", "title": problem.title, "status": problem.status}
    body = msgspec.json.encode({**told, "detail": problem.detail, **problem.members})
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    headers += [(name.lower().encode(), value.encode()) for name, value in (problem.headers or {}).items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
