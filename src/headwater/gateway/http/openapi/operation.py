"""An endpoint and its description, declared together, so that the description is true.

    class TopicRoutes:
        def operations(self) -> list[Operation]:
            return [
                Operation(
                    "POST", "/v1/topics", self.create_topic, "Create a topic",
                    body=NewTopic, answers={201: Topic}, problems=(409,),
                )
            ]

        async def create_topic(self, request: Request, body: NewTopic) -> Response:
            ...
            return answer(Topic(...), 201)

`query` and `body` are msgspec Structs. What a client sends is read as them before the handler is called, which gets
them as keyword arguments of these names; what does not fit is answered with 400 and the reason (endpoint.py). The types
of answers are only described: a handler that lies about them is found by the tests.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import msgspec
from starlette.responses import Response

JSON = "application/json"
ROUTE = "headwater.route"
"""Where the scope of a request says which route it took, for the metrics."""

Handler = Callable[..., Awaitable[Response]]

ALWAYS = (400, 401, 403, 429, 503)
"""Problems that any operation may answer with."""


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    handler: Handler | None
    """None if the front door answers such requests, so that they do not reach the router."""
    summary: str
    _: KW_ONLY
    answers: Mapping[int, Any]
    """By status: a type, a JSON Schema, a media type that is not JSON (as a string), or None for no content."""
    problems: tuple[int, ...] = ()
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    """The type of a JSON body; None for no body."""
    bodies: Mapping[str, Any] = field(default_factory=dict)
    """Bodies of other media types, as JSON Schema."""
    is_body_required: bool = True
    max_body_bytes: int | None = None
    """None for the limit of the gateway."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that mean something here, and what."""
    path_schemas: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of parameters in the path that are not any string."""
    also: tuple[type[msgspec.Struct], ...] = ()
    """Types that JSON Schemas given here refer to."""
    tag: str = ""
    """Empty for the noun that the path begins with."""
    operation_id: str = ""
    """Empty for the name of the handler."""

    @property
    def name(self) -> str:
        return self.operation_id or getattr(self.handler, "__name__", "")


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A Struct, or anything else that msgspec knows, as JSON."""
    return Response(msgspec.json.encode(value), status, headers=headers, media_type=JSON)
