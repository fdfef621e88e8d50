"""Types, enumerations and constants of JSON Schema: which values a schema lists or allows."""

from typing import Any, Final

from headwater.schemas.incompatibility import Incompatibility
from headwater.schemas.json_schema.text import write_json

TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})


def allowed_types(schema: Any) -> frozenset[str]:
    if not isinstance(schema, dict):
        return TYPES
    found = schema.get("type")
    if isinstance(found, str):
        return frozenset({found})
    return frozenset(found) if isinstance(found, list) and found else TYPES


def may_be(types: frozenset[str], kind: str) -> bool:
    return kind in types


def check_values(reader: Any, writer: Any) -> Incompatibility | None:
    """Types, and values where either side lists them."""
    listed = _listed(writer)
    if listed is not None:
        return _check_listed(reader, listed)
    if "const" in reader or "enum" in reader:
        key = "const" if "const" in reader else "enum"
        if _is_boolean_enum(reader, writer):
            return None
        return Incompatibility("ENUM_ARRAY_NARROWED", f"/{key}", "the reader lists values, the writer does not")
    missing = {kind for kind in allowed_types(writer) if not _takes(allowed_types(reader), kind)}
    if not missing:
        return None
    kind = "TYPE_NARROWED" if missing != set(allowed_types(writer)) else "TYPE_CHANGED"
    return Incompatibility(kind, "/type", f"the reader does not allow {', '.join(sorted(missing))}")


def _check_listed(reader: Any, listed: list[Any]) -> Incompatibility | None:
    """Every value that is written, tried on what the reader says of types and values."""
    own = _listed(reader)
    types = allowed_types(reader)
    for value in listed:
        shown = write_json(value)[:80]
        if own is not None and not any(_same(value, each) for each in own):
            return Incompatibility("ENUM_ARRAY_NARROWED", "/enum", f"the reader lacks {shown}")
        if not _takes(types, type_of(value)):
            return Incompatibility("TYPE_CHANGED", "/type", f"the reader does not allow {shown}")
    if own is None and set(reader) - _HARMLESS:
        return _check_rest(reader, listed)
    return None


_NONE: Final = object()
_HARMLESS: Final = frozenset(
    {"type", "enum", "const", "title", "description", "default", "examples", "$schema", "$id", "id", "$comment",
     "definitions", "$defs", "$anchor", "deprecated", "readOnly", "writeOnly", "format", "anyOf", "oneOf", "allOf"}
)  # fmt: skip


def _check_rest(reader: Any, listed: list[Any]) -> Incompatibility | None:
    """Values are at hand: whether they hold to the reader's other keywords is a matter of validating them."""
    import jsonschema_rs

    plain = {key: value for key, value in reader.items() if key not in ("$ref", "$schema", "anyOf", "oneOf", "allOf")}
    try:
        validator = jsonschema_rs.Draft7Validator(plain, retriever=_never)
        wrong = next((value for value in listed if not validator.is_valid(value)), _NONE)
    except (ValueError, jsonschema_rs.ReferencingError) as error:  # a reference inside: it cannot be checked
        return Incompatibility("ENUM_ARRAY_NARROWED", "/enum", f"cannot be told: {str(error)[:100]}")
    if wrong is _NONE:
        return None
    return Incompatibility("ENUM_ARRAY_NARROWED", "/enum", f"the reader does not allow {write_json(wrong)[:80]}")


def _never(url: str) -> Any:
    """Nothing is fetched."""
    raise ValueError(f"{url[:80]} is not at hand")


def _listed(schema: Any) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def _is_boolean_enum(reader: Any, writer: Any) -> bool:
    """The one type whose values can all be listed."""
    listed = _listed(reader) or []
    types = allowed_types(writer)
    values: dict[str, list[Any]] = {"boolean": [True, False], "null": [None]}
    return types <= set(values) and all(
        any(_same(value, each) for each in listed) for kind in types for value in values[kind]
    )


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _takes(types: frozenset[str], kind: str) -> bool:
    return kind in types or (kind == "integer" and "number" in types)


def _same(one: Any, other: Any) -> bool:
    """1 and 1.0 are the same number; 1 and true are not the same."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
