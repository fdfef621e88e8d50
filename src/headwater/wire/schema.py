"""The shape of every Kafka message in every version, taken from kio's generated classes.

kio ships the protocol's definitions as one dataclass per message and version. Here they are reduced to
what a codec needs: fields in order, with a name, a type, a default and perhaps a tag. Durations and
points in time are plain integers of milliseconds and say so in their names (`timeout_ms`).
"""

import dataclasses
import datetime
import enum
import types
import typing
import uuid
from dataclasses import dataclass
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema

NULL_UUID = uuid.UUID(int=0)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_PLAIN_INT = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: "str | Struct"
    """A primitive of the protocol ("int32", "string", …) or a nested struct."""
    is_array: bool
    is_nullable: bool
    default: Any
    tag: int | None


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Field, ...]
    is_flexible: bool

    def defaults(self) -> dict[str, Any]:
        return {field.name: field.default for field in self.fields}


@cache
def request_schema(api_key: int, version: int) -> Struct:
    return _struct(load_request_schema(api_key, version))


@cache
def response_schema(api_key: int, version: int) -> Struct:
    return _struct(load_response_schema(api_key, version))


@cache
def _struct(entity: type) -> Struct:
    fields = tuple(_field(field) for field in dataclasses.fields(entity))
    return Struct(fields, bool(entity.__flexible__))  # type: ignore[attr-defined]


def _field(field: "dataclasses.Field[Any]") -> Field:
    inner, is_array, is_nullable = _unwrap(field.type)
    kafka_type: str = field.metadata.get("kafka_type", "")
    field_type: str | Struct
    if dataclasses.is_dataclass(inner):
        field_type = _struct(inner)  # type: ignore[arg-type]
    else:
        field_type = _PLAIN_INT.get(kafka_type, kafka_type)
    name = f"{field.name}_ms" if kafka_type.startswith(("timedelta", "datetime")) else field.name
    default = _plain_default(field, field_type, is_array, is_nullable)
    # A point in time that kio spells None is -1 on the wire, and a missing id is all zeros: neither is a null.
    is_nullable = is_nullable and field_type not in ("int64", "uuid")
    return Field(name, field_type, is_array, is_nullable, default, field.metadata.get("tag"))


def _unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """(inner type, is it an array, may it be null)"""
    is_nullable = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        (annotation,) = (arg for arg in typing.get_args(annotation) if arg is not types.NoneType)
        is_nullable = True
    if typing.get_origin(annotation) is not tuple:
        return annotation, False, is_nullable
    inner = typing.get_args(annotation)[0]
    return _unwrap(inner)[0], True, is_nullable


def _plain_default(field: "dataclasses.Field[Any]", field_type: str | Struct, is_array: bool, is_nullable: bool) -> Any:
    default = field.default
    if is_array:
        return None if default is None else ()
    if isinstance(field_type, Struct):
        return None
    if default is dataclasses.MISSING or default is None:
        return _zero(field_type, is_nullable)
    if isinstance(default, datetime.timedelta):
        return default // _MILLISECOND
    if isinstance(default, enum.Enum):
        return int(default.value)
    return default


def _zero(kafka_type: str, is_nullable: bool) -> Any:
    match kafka_type:
        case "uuid":
            return NULL_UUID
        case "int64" if is_nullable:
            return -1
        case _ if is_nullable:
            return None
        case "bool":
            return False
        case "float64":
            return 0.0
        case "string":
            return ""
        case "bytes" | "records":
            return b""
        case _:
            return 0
