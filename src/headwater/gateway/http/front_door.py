"""What every request passes first: it is counted, and it must be allowed.

Writing records is most of what a busy gateway does, and most of what its requests cost is the way through the router.
Such a request is answered from here, without it.
"""

import logging
import time
from collections.abc import Mapping
from typing import Protocol

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.gateway.http.kafka_problems import FAILURES, problem_of
from headwater.gateway.http.metrics import OTHER, HttpMetrics
from headwater.gateway.http.openapi.operation import JSON, ROUTE
from headwater.gateway.http.problems import Problem, internal_error
from headwater.gateway.http.security import Guard

BEFORE_TOPIC, AFTER_TOPIC = "/v1/topics/", "/records"
RECORDS_ROUTE = "/v1/topics/{topic}/records"
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

log = logging.getLogger(__name__)


class ProduceRequests(Protocol):
    async def __call__(
        self, topic: str, query: bytes, headers: Mapping[str, str], receive: Receive
    ) -> tuple[int, bytes, Mapping[str, str] | None]:
        """Status, body and further headers of the answer. Raises Problem, KafkaFailure."""


class FrontDoor:
    def __init__(self, app: ASGIApp, guard: Guard, metrics: HttpMetrics, produce: ProduceRequests) -> None:
        self._app = app
        self._guard = guard
        self._metrics = metrics
        self._produce = produce

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._request(scope, receive, send)
        elif kind == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_s = time.perf_counter()
        metrics = self._metrics
        metrics.in_flight += 1
        status = 500
        is_in_app = False
        method: str = scope["method"]

        async def counting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            headers = _headers(scope)
            self._guard.check(method, scope["path"], headers)
            topic = _produced_topic(method, scope["path"])
            if topic:
                scope[ROUTE] = RECORDS_ROUTE
                status, body, more = await self._produce(topic, scope["query_string"], headers, receive)
                await _send_json(send, status, body, more)
            else:
                is_in_app = True
                await self._app(scope, receive, counting_send)
        except FAILURES as failure:
            await problem_of(failure).response()(scope, receive, counting_send)
        except ClientDisconnect:
            status = 499  # the client does not read an answer any more
        except Exception as error:
            if is_in_app:
                raise  # the application has answered, and uvicorn logs it
            log.error("request_failed method=%s path=%r", method, scope["path"][:200], exc_info=error)
            await internal_error().response()(scope, receive, counting_send)
        finally:
            metrics.in_flight -= 1
            route = scope.get(ROUTE, OTHER)
            metrics.answered(method if method in METHODS else OTHER, route, status, time.perf_counter() - started_s)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._guard.check("GET", scope["path"], {**_headers(scope), "upgrade": "websocket"})
        except Problem as problem:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": problem.title})
            return
        await self._app(scope, receive, send)


def _produced_topic(method: str, path: str) -> str:
    """The topic that a request writes records to; empty for any other request."""
    if method == "POST" and path.endswith(AFTER_TOPIC) and path.startswith(BEFORE_TOPIC):
        topic = path[len(BEFORE_TOPIC) : -len(AFTER_TOPIC)]
        return topic if "/" not in topic else ""
    return ""


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _send_json(send: Send, status: int, body: bytes, more: Mapping[str, str] | None) -> None:
    headers = [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(body))]
    if more is not None:
        headers += [(name.encode(), value.encode()) for name, value in more.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
