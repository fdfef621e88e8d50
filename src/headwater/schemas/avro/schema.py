"""Avro schemas: read with what they refer to, and written in one way.

Canonical: attributes in a fixed order, no blanks, a primitive by its name alone. Normal: also full names everywhere,
and other attributes sorted.
"""

from collections.abc import Mapping
from typing import Any, Final

from headwater.schemas.avro.types import NAMED, PRIMITIVES, Type, TypeReader, full_name
from headwater.schemas.json_schema.text import read_json, write_json
from headwater.schemas.schema import InvalidSchema

_ORDER: Final = (
    "type", "name", "namespace", "doc", "aliases", "fields", "symbols", "items", "values", "size", "default", "order",
)  # fmt: skip


def read_avro(text: str, named: Mapping[str, str]) -> tuple[Any, Type]:
    """What is declared, and its types. Raises InvalidSchema."""
    reader = TypeReader()
    for referred, name in {text: name for name, text in named.items()}.items():  # two names may mean one schema
        try:
            reader.read(_declared(referred))
        except InvalidSchema as error:
            raise InvalidSchema(f"In what {name} refers to: {error}") from None
    declared = _declared(text)
    return declared, reader.read(declared)


def canonical(declared: Any) -> str:
    return write_json(_ordered(declared))


def normal(declared: Any) -> str:
    return write_json(_normal(declared, ""))


def _declared(text: str) -> Any:
    """A name alone may come without the quotation marks of JSON."""
    return text.strip() if text.strip() in PRIMITIVES else read_json(text)


def _ordered(declared: Any) -> Any:
    if isinstance(declared, list):
        return [_ordered(each) for each in declared]
    if not isinstance(declared, dict):
        return declared
    if set(declared) == {"type"} and isinstance(declared["type"], str):
        return declared["type"]
    ordered = [key for key in _ORDER if key in declared] + [key for key in declared if key not in _ORDER]
    found = {}
    for key in ordered:
        value = declared[key]
        if key == "fields" and isinstance(value, list):
            found[key] = [{inner: _inner(each, inner) for inner in _field_order(each)} for each in value]
        else:
            found[key] = _ordered(value) if key in ("type", "items", "values") else value
    return found


def _field_order(each: dict[str, Any]) -> list[str]:
    first = [key for key in ("name", "type", "doc", "default", "order", "aliases") if key in each]
    return first + [key for key in each if key not in first]


def _inner(each: dict[str, Any], key: str) -> Any:
    return _ordered(each[key]) if key == "type" else each[key]


def _normal(declared: Any, namespace: str) -> Any:
    if isinstance(declared, str):
        return declared if declared in PRIMITIVES else full_name(declared, namespace)
    if isinstance(declared, list):
        return [_normal(each, namespace) for each in declared]
    kind = declared.get("type")
    if isinstance(kind, dict | list):
        return _normal(kind, namespace)
    found: dict[str, Any] = {"type": kind}
    if kind in NAMED:
        found["name"] = full_name(declared["name"], declared.get("namespace", namespace))
        namespace = found["name"].rpartition(".")[0]
        if declared.get("aliases"):
            found["aliases"] = sorted(full_name(alias, namespace) for alias in declared["aliases"])
    elif kind not in (*PRIMITIVES, "array", "map"):
        return full_name(kind, namespace)
    for key in sorted(set(declared) - {"type", "name", "namespace", "aliases"}):
        value = declared[key]
        if key == "fields":
            found[key] = [_normal_field(each, namespace) for each in value]
        else:
            found[key] = _normal(value, namespace) if key in ("items", "values") else value
    return kind if len(found) == 1 else found


def _normal_field(each: dict[str, Any], namespace: str) -> dict[str, Any]:
    rest = {key: each[key] for key in sorted(each) if key not in ("name", "type")}
    return {"name": each["name"], "type": _normal(each["type"], namespace), **rest}
