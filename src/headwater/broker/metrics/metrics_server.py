"""A tiny HTTP server for the metrics page, on the broker's own event loop.

It answers `GET /metrics`, `GET /groups` (group_health.py), `GET /segments` (segments_page.py), `GET /quotas`
(quotas/quotas_page.py), and `GET /livez`, which says that the broker's loop turns; one request per connection.
`PageAccess` says what readers are shown. What it reads, how long it waits and how many connections it keeps are
limited, so that no client can use it to slow the broker down. While it runs it also samples how late the event loop is,
which is the first thing to look at when a broker feels slow.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias
from urllib.parse import parse_qs

from headwater.broker.metrics.metrics import Metrics
from headwater.broker.metrics.metrics_page import CONTENT_TYPE, metrics_text
from headwater.logs.events import log_event
from headwater.metadata.store import Unavailable, Unknown
from headwater.transport.token_file import bears

MAX_CONNECTIONS = 16
MAX_REQUEST_BYTES = 8 * 1024
REQUEST_TIMEOUT_S = 5.0
MAX_QUERY_FIELDS = 8
DELAY_SAMPLE_INTERVAL_S = 0.25
JSON = "application/json"
NEEDS_TOKEN = b"send Authorization: Bearer with the token of metrics_token_file\n"
NO_NAMES = b"names of topics and groups are shown on a loopback address, or with a token (metrics_token_file)\n"

GroupsPage: TypeAlias = Callable[[str | None], bytes]
"""The page about one group, or about all."""
SegmentsPage: TypeAlias = Callable[[str], Awaitable[bytes | None]]
"""The page about a topic; None if there is no such topic."""
QuotasPage: TypeAlias = Callable[[], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAccess:
    """`/livez` is for everyone, `/metrics` for those who show the token, if there is one. The other pages, and values
    of topics, groups and users, are for those who show the token, or where `shows_names` says so."""

    token: bytes | None = None
    shows_names: bool = True

    def is_let_in(self, head: bytes) -> bool:
        return self.token is None or any(bears(value, self.token) for value in _values(head, b"authorization"))

    @property
    def names_are_shown(self) -> bool:
        return self.shows_names or self.token is not None


def _values(head: bytes, name: bytes) -> Iterable[bytes]:
    for line in head.split(b"\r\n")[1:]:
        field, _, value = line.partition(b":")
        if field.lower() == name:
            yield value.strip()


class MetricsServer:
    def __init__(self, metrics: Metrics, pages: "_Pages", listener: asyncio.Server) -> None:
        self._metrics = metrics
        self._pages = pages
        self._listener = listener
        self._sampler = asyncio.create_task(self._sample_loop_delay(), name="metrics-loop-delay")

    @classmethod
    async def start(
        cls,
        metrics: Metrics,
        host: str,
        port: int,
        groups_page: GroupsPage | None = None,
        segments_page: SegmentsPage | None = None,
        quotas_page: QuotasPage | None = None,
        access: PageAccess = PageAccess(),
    ) -> Self | None:
        """None, and a warning, if the address cannot be had: a broker without its metrics still serves."""
        pages = _Pages(metrics, groups_page, segments_page, quotas_page, access)
        try:
            listener = await asyncio.start_server(
                pages.accept, host, port, limit=MAX_REQUEST_BYTES, start_serving=False
            )
        except OSError as error:
            reason = error.strerror or str(error)
            advice = "choose another address with --metrics, or --metrics off"
            log_event("metrics_unavailable", logging.WARNING, host=host, port=port, reason=reason, advice=advice)
            return None
        server = cls(metrics, pages, listener)
        try:
            await listener.start_serving()
        except BaseException:
            await server.stop()
            raise
        return server

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        self._listener.close()
        tasks = [self._sampler, *self._pages.connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._listener.wait_closed()

    async def _sample_loop_delay(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + DELAY_SAMPLE_INTERVAL_S
            await asyncio.sleep(DELAY_SAMPLE_INTERVAL_S)
            self._metrics.loop_delayed(max(0.0, loop.time() - due))


class _Pages:
    """Answers connections."""

    def __init__(
        self,
        metrics: Metrics,
        groups_page: GroupsPage | None,
        segments_page: SegmentsPage | None,
        quotas_page: QuotasPage | None,
        access: PageAccess,
    ) -> None:
        self._metrics = metrics
        self._access = access
        self._quotas_page = quotas_page
        self._groups_page = groups_page
        self._segments_page = segments_page
        self.connections: set[asyncio.Task[None]] = set()
        self._one_page_at_a_time = asyncio.Lock()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this callback as a task"
        self.connections.add(task)
        try:
            if len(self.connections) <= MAX_CONNECTIONS:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client went away, or never came to the point
        finally:
            self.connections.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large", b"too long\n")
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"this is an HTTP/1.1 server\n")
        method, target, _ = words
        path, _, query = target.partition(b"?")
        known = {
            b"/livez": True,
            b"/metrics": True,
            b"/groups": self._groups_page,
            b"/segments": self._segments_page,
            b"/quotas": self._quotas_page,
        }
        if known.get(path) is None:
            return _response("404 Not Found", b"try /metrics\n")
        if method != b"GET":
            return _response("405 Method Not Allowed", b"only GET\n", "Allow: GET\r\n")
        if path == b"/livez":
            return _response("200 OK", b"ok\n")
        if not self._access.is_let_in(head):
            return _response("401 Unauthorized", NEEDS_TOKEN, "WWW-Authenticate: Bearer\r\n")
        if path != b"/metrics":
            if not self._access.names_are_shown:
                return _response("403 Forbidden", NO_NAMES)
            if path == b"/quotas":
                assert self._quotas_page is not None, "it was looked for"
                return _response("200 OK", self._quotas_page(), content_type=JSON)
            try:
                fields = parse_qs(query.decode("latin-1"), max_num_fields=MAX_QUERY_FIELDS)
            except ValueError:
                return _response("400 Bad Request", b"ask for one group or topic\n")
            return await self._answer_about(path, fields)
        async with self._one_page_at_a_time:
            text = await metrics_text(self._metrics, shows_names=self._access.names_are_shown)
        return _response("200 OK", text)

    async def _answer_about(self, path: bytes, fields: dict[str, list[str]]) -> bytes:
        if path == b"/groups":
            assert self._groups_page is not None, "it was looked for"
            named = fields.get("group")
            return _response("200 OK", self._groups_page(named[0] if named else None), content_type=JSON)
        assert self._segments_page is not None, "it was looked for"
        if "topic" not in fields:
            return _response("400 Bad Request", b"ask for one topic: /segments?topic=NAME\n")
        async with self._one_page_at_a_time:
            try:
                found = await self._segments_page(fields["topic"][0])
            except (Unavailable, Unknown):
                return _response("503 Service Unavailable", b"the metadata store does not answer; try again\n")
        if found is None:
            return _response("404 Not Found", b"there is no such topic\n")
        return _response("200 OK", found, content_type=JSON)


def _response(status: str, body: bytes, extra_headers: str = "", content_type: str = CONTENT_TYPE) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"{extra_headers}Connection: close\r\n\r\n"
    )
    return head.encode() + body
