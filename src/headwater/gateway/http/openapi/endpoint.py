"""Operations as routes: what a client sends is read as it was declared, and given to the handler."""

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.gateway.http.bodies import Budget, read_body
from headwater.gateway.http.openapi.operation import JSON, ROUTE, Operation
from headwater.gateway.http.problems import Problem, bad_request

MAX_QUERY_BYTES = 8 * 1024
MAX_SHOWN_CHARS = 100

T = TypeVar("T")
Query = TypeVar("Query", bound=msgspec.Struct)


def operation_route(operation: Operation, budget: Budget, max_body_bytes: int) -> Route:
    """`max_body_bytes` is the limit of operations that have none of their own."""
    handler, query, limit_bytes = operation.handler, operation.query, operation.max_body_bytes or max_body_bytes
    assert handler is not None, "the front door answers the others"
    decode = msgspec.json.Decoder(operation.body).decode if operation.body is not None else None

    async def endpoint(request: Request) -> Response:
        request.scope[ROUTE] = operation.path
        arguments: dict[str, object] = {}
        if query is not None:
            arguments["query"] = read_query(request, query)
        else:
            check_names(request.query_params, ())
        if decode is not None:
            body = await read_body(request.receive, request.headers, limit_bytes, budget)
            if body or operation.is_body_required:
                check_content_type(request.headers.get("content-type"))
            else:
                body = b"{}"
            arguments["body"] = parse_json(body, decode)
        return await handler(request, **arguments)

    return Route(operation.path, endpoint, methods=[operation.method], name=operation.name)


def check_content_type(content_type: str | None) -> None:
    """A page of another site can send a form or text without being asked to by us; JSON it cannot."""
    if content_type is None or content_type.partition(";")[0].strip().lower() != JSON:
        raise Problem(415, "Unsupported media type", f"The body must be JSON: send Content-Type: {JSON}.")


def parse_json(content: bytes, decode: Callable[[bytes], T]) -> T:
    """Raises Problem."""
    try:
        return decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # ValidationError is one, too
        raise bad_request(f"The body cannot be read: {error}.") from None
    except RecursionError:
        raise bad_request("The body cannot be read: it is nested too deeply.") from None


def read_query(request: Request, kind: type[Query]) -> Query:
    """Raises Problem."""
    if len(request.scope["query_string"]) > MAX_QUERY_BYTES:
        raise Problem(414, "URI too long", f"The query is longer than {MAX_QUERY_BYTES} bytes.")
    parameters: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in parameters:
            raise bad_request(f"The parameter {name[:MAX_SHOWN_CHARS]} is given twice.")
        parameters[name] = value
    check_names(parameters, kind.__struct_encode_fields__)
    try:
        return msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        raise bad_request(f"The query cannot be read: {error}.") from None


def check_names(names: Iterable[str], known: Collection[str]) -> None:
    """Raises Problem for a parameter that does not exist: one that is misspelt must not be passed over."""
    for name in names:
        if name not in known:
            there_are = f"there are {', '.join(known)}" if known else "there are none"
            raise bad_request(f"There is no parameter {name[:MAX_SHOWN_CHARS]!r} here; {there_are}.")
