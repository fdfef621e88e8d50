"""From a frame to the handler of its API, and back: the one place where errors become answers.

An API is a module in handlers/, and the folder is the list of what is supported. Each has `API`, which names its key
and versions, and one of

    def handle(broker, request: XRequest, context: RequestContext) -> XResponse     (or async def)
    def handle_frame(broker, frame: bytearray, context: RequestContext) -> Answer   (codecs written by hand)

What a client may do is asked before a handler is called where the API's `Access` says so, and else by the handler: of
`context.access`.

A `RequestError` that escapes a handler becomes a response with that code at the top, where the response has such a
field; any other exception is our own mistake: it is logged, answered as UNKNOWN_SERVER_ERROR, and the broker lives on.

Kafka works on one request of a connection at a time, and clients rely on it: what a request asks about includes what
those before it did. `Api.overlaps` is the exception, for the two APIs that clients pipeline for speed: produces, whose
batches are appended in the order in which they came, and fetches, which change nothing. Every other request begins when
all before it on its connection are answered, and holds up those behind it.
"""

import asyncio
import importlib
import inspect
import logging
import pkgutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headwater.broker import handlers
from headwater.broker.access.client_access import ClientAccess
from headwater.broker.api import Api, RequestContext, api_ranges
from headwater.broker.audit.management import Changes
from headwater.broker.quotas.request_usage import HeldLimits
from headwater.model.errors import ErrorCode, RequestError
from headwater.transport.connection import Answer, CloseConnection, Connection, Pieces
from headwater.wire.api_keys import ApiKey
from headwater.wire.cursor import MalformedRequest
from headwater.wire.message import Message
from headwater.wire.message_classes import response_class
from headwater.wire.messages import RequestHeader, read_body, read_header, write_response
from headwater.wire.schema import response_schema
from headwater.wire.typed.api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from headwater.broker.audit.auditor import Auditor
    from headwater.broker.server import Broker


@dataclass(frozen=True, slots=True)
class _Entry:
    api: Api
    handle: Callable[..., Any] | None
    handle_frame: Callable[..., Answer] | None
    changes: Changes | None = None
    """What the audit says of a request, if it does of requests of this API."""


def load_handlers(auditor: "Auditor | None" = None) -> dict[int, _Entry]:
    entries: dict[int, _Entry] = {}
    for found in pkgutil.iter_modules(handlers.__path__):
        module: ModuleType = importlib.import_module(f"{handlers.__name__}.{found.name}")
        api: Api = module.API
        assert api.key not in entries, f"two handlers for API {api.key}"
        changes = auditor.changes_of(api.key) if auditor is not None else None
        entries[api.key] = _Entry(api, getattr(module, "handle", None), getattr(module, "handle_frame", None), changes)
    return entries


class Dispatcher:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._entries = load_handlers(broker.auditor)
        self._overlapping = frozenset(key for key, entry in self._entries.items() if entry.api.overlaps)
        self._meters = broker.meters
        self._loop = asyncio.get_running_loop()

    @property
    def apis(self) -> list[Api]:
        return sorted((entry.api for entry in self._entries.values()), key=lambda api: api.key)

    def kind_of(self, frame: bytearray) -> int | None:
        """Requests of one kind overlap: the API's key, or None if it does not allow that."""
        api_key = int.from_bytes(frame[:2], "big")
        return api_key if api_key in self._overlapping else None

    def __call__(self, connection: Connection, frame: bytearray) -> Answer:
        """A request. What a client may send before it has logged in, its login says."""
        started = time.perf_counter()
        login = connection.login
        if login is not None and login.expects_raw_token:
            token_answer: Answer = login.take_raw(frame)
            return token_answer
        header = read_header(frame)
        entry = self._entries.get(header.api_key)
        if login is not None:
            is_served = entry is not None and entry.api.serves(header.api_version)
            login.admit(header.api_key, is_served)
        if entry is None:
            raise CloseConnection(f"API {header.api_key} is not supported")
        api = entry.api
        if not api.serves(header.api_version):
            if api.key != ApiKey.API_VERSIONS:
                raise CloseConnection(f"{api.name} version {header.api_version} is not supported")
            # KIP-511: a client that asks too high is told in version 0 what there is.
            header = RequestHeader(api.key, 0, header.correlation_id, header.client_id, len(frame))
            response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=api_ranges(self.apis))
            return [write_response(api.key, 0, header.correlation_id, response)]
        access: ClientAccess = connection.access or self._admit(connection)
        if access.is_restricted:
            access.api, access.client_id = api.name, header.client_id or ""
        usage = None
        if self._meters.limits_clients:
            limits: HeldLimits | None = connection.limits
            if limits is not None and limits.table is self._meters.table and limits.client_id == header.client_id:
                usage = limits.usage or limits.usage_of(header.api_key, connection, started)
            else:
                usage = self._meters.usage_of(connection, header.api_key, header.client_id, started)
        context = RequestContext(header, connection, access, usage)
        if entry.handle_frame is not None:
            answer = self._handle_frame(entry, frame, context)
        else:
            answer = self._handle(entry, frame, context)
        if usage is not None and usage.is_timed:
            usage.step_ended(time.perf_counter())
        self._measure(api, header.api_version, started, answer)
        return answer

    def _admit(self, connection: Connection) -> ClientAccess:
        """The first request since it is known who the client is."""
        access = self._broker.authorizer.access_of(connection.principal, connection.peer_host, connection.listener.name)
        connection.access = access
        return access

    def _handle_frame(self, entry: _Entry, frame: bytearray, context: RequestContext) -> Answer:
        assert entry.handle_frame is not None, f"{entry.api.name} has a handler"
        try:
            return entry.handle_frame(self._broker, frame, context)
        except (MalformedRequest, CloseConnection):
            raise
        except Exception as error:
            return [self._encode(context, self._failed(entry.api, context, error))]

    def _handle(self, entry: _Entry, frame: bytearray, context: RequestContext) -> Answer:
        request, api = read_body(frame, context.header), entry.api
        assert entry.handle is not None, f"{api.name} has a handler"
        try:
            if context.access.is_restricted and api.access.at_once:
                api.access.check_at_once(request, context.access)
            response = entry.handle(self._broker, request, context)
            if inspect.iscoroutine(response):
                usage = context.usage
                finish = self._finish(entry, context, request, response)
                finishing = self._loop.create_task(finish if usage is None else usage.timed(finish))
                finishing.add_done_callback(lambda _: response.close())  # it may be cancelled before it begins
                return finishing
            if entry.changes is not None:
                self._audit(entry, context, request, response)
            return [self._encode(context, response)]
        except Exception as error:
            return [self._encode(context, self._failed(api, context, error))]

    async def _finish(self, entry: _Entry, context: RequestContext, request: Message, coroutine: Any) -> Pieces | None:
        try:
            response = await coroutine
            if entry.changes is not None:
                self._audit(entry, context, request, response)
            return [self._encode(context, response)]
        except Exception as error:
            return [self._encode(context, self._failed(entry.api, context, error))]

    def _audit(self, entry: _Entry, context: RequestContext, request: Message, response: Message) -> None:
        assert self._broker.auditor is not None and entry.changes is not None, "the audit asked for the API"
        self._broker.auditor.management(entry.api.name, context, entry.changes, request, response)

    def _encode(self, context: RequestContext, response: Message) -> bytearray:
        header = context.header
        throttle_ms = context.usage.answer() if context.usage is not None else 0
        if throttle_ms and "throttle_time_ms" in response.__slots__:
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
        return write_response(header.api_key, header.api_version, header.correlation_id, response)

    def _failed(self, api: Api, context: RequestContext, error: Exception) -> Message:
        if isinstance(error, RequestError):
            code, message = error.code, error.message
        else:
            context.connection.events.log(
                "handler_failed", logging.ERROR, error, api=api.name, version=context.api_version
            )
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "The broker made a mistake; its log says more."
        self._broker.metrics.error(api.name, code)
        names = {field.name for field in response_schema(api.key, context.api_version).fields}
        if "error_code" not in names:
            raise CloseConnection(f"{api.name}: {message}")
        build = response_class(api.key)
        has_message = "error_message" in build.__slots__
        response: Message = build(error_code=code, error_message=message) if has_message else build(error_code=code)
        return response

    def _measure(self, api: Api, version: int, started: float, answer: Answer) -> None:
        metrics = self._broker.metrics
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(
                lambda _: metrics.request_finished(api.name, version, time.perf_counter() - started)
            )
        else:
            metrics.request_finished(api.name, version, time.perf_counter() - started)
