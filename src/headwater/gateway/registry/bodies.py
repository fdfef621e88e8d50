"""Requests and responses of the registry: JSON as Confluent documents it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headwater.gateway.http.bodies import Budget, read_body
from headwater.gateway.registry.registering import SubmittedSchema
from headwater.schemas import refusal
from headwater.schemas.contexts import context_of, within
from headwater.schemas.event_records import references_from_json, references_to_json
from headwater.schemas.events import Config
from headwater.schemas.levels import Level, Mode
from headwater.schemas.limits import MAX_SCHEMA_BYTES
from headwater.schemas.refusal import SchemaRefused
from headwater.schemas.registry import Version
from headwater.schemas.schema import Schema, SchemaType

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES: Final = frozenset({MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json"})
MAX_BODY_BYTES: Final = 8 * MAX_SCHEMA_BYTES
"""A schema is a text inside of JSON: each character may be escaped."""
_UNSUPPORTED: Final = ("metadata", "ruleSet", "schemaTagsToAdd", "schemaTagsToRemove", "propagateSchemaTags")
_UNSUPPORTED_CONFIG: Final = (
    "alias", "compatibilityGroup", "compatibilityPolicy", "defaultMetadata", "overrideMetadata", "defaultRuleSet",
    "overrideRuleSet", "validateFields", "validateRules",
)  # fmt: skip

T = TypeVar("T")


def answer(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type=MEDIA_TYPE)


def refuse(refused: SchemaRefused) -> Response:
    return answer({"error_code": refused.code, "message": refused.message}, refused.status)


async def read_json(request: Request, budget: Budget) -> dict[str, Any]:
    """Raises SchemaRefused, Problem."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in MEDIA_TYPES:
        raise SchemaRefused(415, f"A body is {MEDIA_TYPE} or application/json.")
    body = await read_body(request.receive, request.headers, MAX_BODY_BYTES, budget)
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise SchemaRefused(400, f"The body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise SchemaRefused(400, "The body is no JSON object.")
    return found


def candidate(body: Mapping[str, Any]) -> SubmittedSchema:
    """Raises SchemaRefused."""
    for name in _UNSUPPORTED:
        if body.get(name):
            raise SchemaRefused(422, f"{name} is not supported by this registry")
    text = body.get("schema")
    if not isinstance(text, str):
        raise refusal.invalid_schema("there is no text under schema")
    kind = body.get("schemaType") or SchemaType.AVRO.value
    if not isinstance(kind, str) or kind not in SchemaType.__members__:
        raise refusal.invalid_schema(f"{kind!r:.80} is no schema type: it can be {', '.join(SchemaType.__members__)}")
    try:
        references = references_from_json(body.get("references"))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise refusal.invalid_schema("references are a list of name, subject and version") from None
    schema = Schema(SchemaType[kind], text, references)
    return SubmittedSchema(schema, _number(body, "id"), _number(body, "version"))


def config(body: Mapping[str, Any], before: Config | None) -> Config:
    """Raises SchemaRefused."""
    for name in _UNSUPPORTED_CONFIG:
        if body.get(name):
            raise SchemaRefused(422, f"{name} is not supported by this registry")
    level = body.get("compatibility", before.level.value if before is not None else None)
    if not isinstance(level, str) or level.upper() not in Level.__members__:
        allowed = ", ".join(Level.__members__)
        raise SchemaRefused(42203, f"Invalid compatibility level. Valid values are {allowed}")
    normalize = body.get("normalize")
    return Config(Level[level.upper()], bool(before and before.normalize) if normalize is None else bool(normalize))


def config_answer(found: Config, name: str) -> dict[str, Any]:
    return {name: found.level.value, **({"normalize": True} if found.normalize else {})}


def mode(body: Mapping[str, Any]) -> Mode:
    found = body.get("mode")
    if not isinstance(found, str) or found.upper() not in Mode.__members__:
        raise SchemaRefused(42204, f"Invalid mode. Valid values are {', '.join(Mode.__members__)}")
    return Mode[found.upper()]


def version_number(text: str) -> int | None:
    """None is the latest. Raises SchemaRefused."""
    if text in ("latest", "-1"):
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) < 2**31):
        raise refusal.invalid_version(text[:80])
    return int(text)


def schema_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise SchemaRefused(404, "HTTP 404 Not Found")
    return int(text)


def flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() == "true"


def page(request: Request, items: Sequence[T]) -> Sequence[T]:
    """What `offset` and `limit` ask for; a negative limit is none."""
    bounds = []
    for name, default in (("offset", 0), ("limit", -1)):
        text = request.query_params.get(name, str(default))
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
            raise SchemaRefused(422, f"{name} is no number")
        bounds.append(int(text))
    start = max(bounds[0], 0)
    return items[start:] if bounds[1] < 0 else items[start : start + bounds[1]]


def schema_answer(version: Version, text: str | None = None, *, qualified: bool = False) -> dict[str, Any]:
    """With `qualified`, references name their contexts."""
    schema = version.schema
    body: dict[str, Any] = {"schema": schema.text if text is None else text}
    if schema.type is not SchemaType.AVRO:
        body["schemaType"] = schema.type.value
    if schema.references:
        context = context_of(version.subject)
        references = schema.references
        if qualified:
            references = tuple(replace(each, subject=within(context, each.subject)) for each in references)
        body["references"] = references_to_json(references)
    return body


def wants_qualified(request: Request) -> bool:
    return request.query_params.get("referenceFormat", "").lower() == "qualified"


def version_answer(version: Version, text: str | None = None, *, qualified: bool = False) -> dict[str, Any]:
    body = {"subject": version.subject, "version": version.version, "id": version.schema_id}
    is_deleted = {"deleted": True} if version.is_deleted else {}
    return {**body, **schema_answer(version, text, qualified=qualified), **is_deleted}


def _number(body: Mapping[str, Any], name: str) -> int | None:
    found = body.get(name)
    if found is None or found == -1:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < 2**31:
        raise SchemaRefused(422, f"{name} is no number")
    return found
