"""An endpoint and its description, declared together, so that the description is true.

    def routes(context: Context) -> list[BaseRoute]:
        async def create(request: Request, body: NewTopic) -> Response:
            ...
            return answer(Topic(...), 201)

        return [
            operation(
                "POST", "/v1/topics", create, "Create a topic", context,
                body=NewTopic, answers={201: Topic}, problems=(409,),
            )
        ]

`query` and `body` are msgspec Structs. What a client sends is read as them before the handler is called, which gets
them as keyword arguments of these names; what does not fit is answered with 400 and the reason. The types of answers
are only described: a handler that lies about them is found by the tests.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.gateway.context import Context
from headwater.gateway.http.bodies import read_body
from headwater.gateway.http.problems import Problem, bad_request

JSON = "application/json"
MAX_QUERY_BYTES = 8 * 1024
MAX_SHOWN_CHARS = 100
ROUTE = "headwater.route"
"""Where the scope of a request says which route it took, for the metrics."""

Handler = Callable[..., Awaitable[Response]]

ALWAYS = (400, 401, 403, 429, 503)
"""Problems that any operation may answer with."""


@dataclass(frozen=True)
class Description:
    method: str
    path: str
    name: str
    summary: str
    tag: str
    query: type[msgspec.Struct] | None = None
    body: Any = None
    """The type of a JSON body; None for no body."""
    bodies: Mapping[str, Any] = field(default_factory=dict)
    """Bodies of other media types, as JSON Schema; their handler reads them itself."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that mean something here, and what."""
    answers: Mapping[int, Any] = field(default_factory=dict)
    """By status: a type, a JSON Schema, a media type that is not JSON (as a string), or None for no content."""
    problems: tuple[int, ...] = ()
    path_schemas: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of parameters in the path that are not any string."""
    is_body_required: bool = True
    also: tuple[Any, ...] = ()
    """Types that JSON Schemas given here refer to."""


class Operation(Route):
    def __init__(self, description: Description, endpoint: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__(description.path, endpoint, methods=[description.method], name=description.name)
        self.description = description


def operation(
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    context: Context,
    *,
    answers: Mapping[int, Any],
    tag: str = "",
    name: str | None = None,
    query: type[msgspec.Struct] | None = None,
    body: Any = None,
    bodies: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    problems: tuple[int, ...] = (),
    path_schemas: Mapping[str, Any] | None = None,
    is_body_required: bool = True,
    max_body_bytes: int | None = None,
    also: tuple[Any, ...] = (),
) -> Operation:
    """A route with its description. With `bodies` the handler reads query and body itself."""
    description = Description(
        method, path, name or handler.__name__, summary, tag or path.split("/")[2], query, body, bodies or {},
        headers or {}, answers, problems, path_schemas or {}, is_body_required, also,
    )  # fmt: skip
    reads_body = body is not None and not bodies
    decode = msgspec.json.Decoder(body).decode if reads_body else None
    limit_bytes = max_body_bytes if max_body_bytes is not None else context.config.max_body_bytes

    async def endpoint(request: Request) -> Response:
        request.scope[ROUTE] = path
        given: dict[str, Any] = {}
        if query is not None and not bodies:
            given["query"] = read_query(request, query)
        elif not bodies:
            check_names(request.query_params, ())
        if decode is not None:
            content = await read_body(request.receive, request.headers, limit_bytes, context.budget)
            if content or is_body_required:
                check_content_type(request.headers.get("content-type"))
            given["body"] = parse_json(content if content or is_body_required else b"{}", decode)
        return await handler(request, **given)

    return Operation(description, endpoint)


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A Struct, or anything else that msgspec knows, as JSON."""
    return Response(msgspec.json.encode(value), status, headers=headers, media_type=JSON)


def check_content_type(content_type: str | None) -> None:
    """A page of another site can send a form or text without being asked to by us; JSON it cannot."""
    if content_type is None or content_type.partition(";")[0].strip().lower() != JSON:
        raise Problem(415, "Unsupported media type", f"The body must be JSON: send Content-Type: {JSON}.")


def parse_json(content: bytes, decode: Callable[[bytes], Any]) -> Any:
    try:
        return decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ValidationError is one, too
        raise bad_request(f"The body cannot be read: {error}.") from None
    except RecursionError:
        raise bad_request("The body cannot be read: it is nested too deeply.") from None


def read_query(request: Request, into: type[msgspec.Struct]) -> Any:
    if len(request.scope["query_string"]) > MAX_QUERY_BYTES:
        raise Problem(414, "URI too long", f"The query is longer than {MAX_QUERY_BYTES} bytes.")
    given: dict[str, str] = {}
    for key, value in request.query_params.multi_items():
        if key in given:
            raise bad_request(f"The parameter {key[:MAX_SHOWN_CHARS]} is given twice.")
        given[key] = value
    check_names(given, into.__struct_encode_fields__)
    try:
        return msgspec.convert(given, into, strict=False)
    except msgspec.ValidationError as error:
        raise bad_request(f"The query cannot be read: {error}.") from None


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Raise a Problem for a parameter that does not exist: one that is misspelt must not be passed over."""
    for name in given:
        if name not in known:
            there_are = f"there are {', '.join(known)}" if known else "there are none"
            raise bad_request(f"There is no parameter {name[:MAX_SHOWN_CHARS]!r} here; {there_are}.")
