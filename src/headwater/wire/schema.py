"""The shape of every Kafka message in every version: fields in order, each with a name, a type, a default and
perhaps a tag. Durations and points in time are plain integers of milliseconds and say so in their names (`timeout_ms`).

The shapes lie in schemas.json, which `make schemas` writes from the definitions of the `kio` package; a test compares
them.
"""

import json
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

NULL_UUID = uuid.UUID(int=0)
_FILE = Path(__file__).with_name("schemas.json")
_ARRAY, _NULLABLE = 1, 2


class UnknownMessage(Exception):
    """There is no such API, or not in that version."""


@dataclass(frozen=True, slots=True)
class StructField:
    name: str
    type: "str | Struct"
    """A primitive of the protocol ("int32", "string", …) or a nested struct."""
    is_array: bool
    is_nullable: bool
    default: Any
    tag: int | None


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[StructField, ...]
    is_flexible: bool


@cache
def request_schema(api_key: int, version: int) -> Struct:
    return _message("request", api_key, version)


@cache
def response_schema(api_key: int, version: int) -> Struct:
    return _message("response", api_key, version)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_FILE.read_bytes())
    return table


def _message(kind: str, api_key: int, version: int) -> Struct:
    try:
        return _struct(_table()["apis"][str(api_key)][kind][str(version)])
    except KeyError:
        raise UnknownMessage(f"there is no {kind} of API {api_key} in version {version}") from None


@cache
def _struct(number: int) -> Struct:
    is_flexible, fields = _table()["structs"][number]
    return Struct(tuple(_field(*field) for field in fields), bool(is_flexible))


def _field(name: str, type_: str | int, flags: int, default: Any, tag: int | None) -> StructField:
    return StructField(
        name,
        _struct(type_) if isinstance(type_, int) else type_,
        bool(flags & _ARRAY),
        bool(flags & _NULLABLE),
        _default(type_, bool(flags & _ARRAY), default),
        tag,
    )


def _default(type_: str | int, is_array: bool, default: Any) -> Any:
    if type_ == "uuid" and default is None and not is_array:
        return NULL_UUID
    if type_ in ("bytes", "records") and default == "":
        return b""
    return () if default == [] else default
