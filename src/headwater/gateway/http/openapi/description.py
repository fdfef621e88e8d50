"""The OpenAPI 3.1 description of the operations, served at /openapi.json. It is made when it is first asked for."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.gateway.http.openapi.operation import ALWAYS, JSON, ROUTE, Operation
from headwater.gateway.http.problems import MEDIA_TYPE

REFERENCE = "#/components/schemas/{name}"
PROBLEM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["title", "status", "detail"],
}


def description_route(operations: Sequence[Operation]) -> Route:
    descriptions: list[bytes] = []

    async def description(request: Request) -> Response:
        request.scope[ROUTE] = "/openapi.json"
        if not descriptions:
            descriptions.append(msgspec.json.encode(describe(operations, version("headwater"))))
        return Response(descriptions[0], media_type=JSON)

    return Route("/openapi.json", description)


def describe(operations: Iterable[Operation], headwater_version: str) -> dict[str, Any]:
    types = [type_ for each in operations for type_ in _types(each)]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    schema_of = dict(zip(map(id, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(each, schema_of, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater",
            "version": headwater_version,
            "description": "Topics, records and subscriptions over HTTP. Every error is application/problem+json.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _types(each: Operation) -> list[Any]:
    return [type_ for type_ in (each.query, each.body, *each.answers.values(), *each.also) if _is_type(type_)]


def _is_type(value: Any) -> bool:
    return value is not None and not isinstance(value, str | Mapping)


def _operation(each: Operation, schema_of: Mapping[int, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "tags": [each.tag or each.path.split("/")[2]],
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": each.path_schemas.get(name, {"type": "string"})}
        for name in re.findall(r"\{(\w+)", each.path)
    ]
    if each.query is not None:
        parameters += _query_parameters(each.query, schema_of, components)
    parameters += [
        {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}
        for name, text in each.headers.items()
    ]
    if parameters:
        operation["parameters"] = parameters
    content = {media_type: {"schema": schema} for media_type, schema in each.bodies.items()}
    if each.body is not None:
        content = {JSON: {"schema": _schema(each.body, schema_of)}, **content}
    if content:
        operation["requestBody"] = {"required": each.is_body_required, "content": content}
    operation["responses"] = _responses(each, schema_of, has_body=bool(content))
    return operation


def _query_parameters(
    query: type[msgspec.Struct], schema_of: Mapping[int, Any], components: Mapping[str, Any]
) -> list[dict[str, Any]]:
    schema = schema_of[id(query)]
    if "$ref" in schema:
        schema = components[schema["$ref"].rsplit("/", 1)[1]]
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            **({"description": of["description"]} if "description" in of else {}),
            "schema": _without_null(of),
        }
        for name, of in schema["properties"].items()
    ]


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A query has no null: the parameter is absent instead."""
    kept = {name: value for name, value in schema.items() if name != "default" or value is not None}
    if "anyOf" in kept:
        options = [option for option in kept["anyOf"] if option != {"type": "null"}]
        kept = {**{name: value for name, value in kept.items() if name != "anyOf"}, "anyOf": options}
        if len(options) == 1:
            kept = {**{name: value for name, value in kept.items() if name != "anyOf"}, **options[0]}
    return kept


def _responses(each: Operation, schema_of: Mapping[int, Any], *, has_body: bool) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, type_ in sorted(each.answers.items()):
        response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if isinstance(type_, str):
            response["content"] = {type_: {}}
        elif type_ is not None:
            response["content"] = {JSON: {"schema": _schema(type_, schema_of)}}
        responses[str(status)] = response
    of_bodies = (413, 415) if has_body else ()
    for status in sorted({*ALWAYS, *of_bodies, *each.problems} - set(each.answers)):
        problem = {"schema": {"$ref": REFERENCE.format(name="Problem")}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: problem}}
    return responses


def _schema(type_: Any, schema_of: Mapping[int, Any]) -> Any:
    return type_ if isinstance(type_, Mapping) else schema_of[id(type_)]
