"""Requests that are good but for one field, made from the table of all messages."""

import copy
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headwater.wire.codec import struct_writer
from headwater.wire.message import Message
from headwater.wire.message_classes import request_class
from headwater.wire.schema import Struct, StructField, request_schema

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
STRINGS = ["", "\0", "..", "a b/c=d,e%\n", "\U0001f40d" * 40, "x" * 300, "x" * 30_000, "-1", "99999999999999999999"]
BYTES = [b"", b"\0", b"\xff" * 20, b"\x00\x00\x7f\xff\xff\xff" * 3]
UNKNOWN_TWICE = b"\x02\x63\x01a\x63\x01a"
UUIDS = [uuid.UUID(int=0), uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]

Good = Callable[[StructField], Any]
"""The value of a primitive field in a request that makes sense."""


@dataclass(frozen=True, slots=True)
class Place:
    """A field somewhere in a message: through the first element of each array on the way."""

    path: tuple[str, ...]
    field: StructField

    def __str__(self) -> str:
        return ".".join((*self.path, self.field.name))

    def put(self, message: Message, value: Any) -> Message:
        """A copy of the message with another value here."""
        changed = copy.deepcopy(message)
        inner = changed
        for name in self.path:
            found = getattr(inner, name)
            inner = found[0] if isinstance(found, list) else found
        setattr(inner, self.field.name, value)
        return changed

    def get(self, message: Message) -> Any:
        for name in self.path:
            found = getattr(message, name)
            message = found[0] if isinstance(found, list) else found
        return getattr(message, self.field.name)


def good_message(api_key: int, version: int, good: Good) -> Message:
    return _good_message(request_schema(api_key, version), request_class(api_key), good)


def _good_message(schema: Struct, message_class: Any, good: Good) -> Message:
    structs = message_class.STRUCTS
    fields = {field.name: _good_value(field, structs.get(field.name), good) for field in schema.fields}
    message: Message = message_class(**fields)
    return message


def _good_value(field: StructField, message_class: Any, good: Good) -> Any:
    value = _good_message(field.type, message_class, good) if isinstance(field.type, Struct) else good(field)
    return [value] if field.is_array else value


def places(schema: Struct, path: tuple[str, ...] = ()) -> Iterator[Place]:
    for field in schema.fields:
        yield Place(path, field)
        if isinstance(field.type, Struct):
            yield from places(field.type, (*path, field.name))


def legal_values(place: Place, good: Any) -> Iterator[Any]:
    """What the schema allows in this place and a client that means well does not send."""
    field = place.field
    if field.is_nullable:
        yield None
    if field.is_array:
        yield []
        yield good * 2
        yield good * 300
    ones = [] if isinstance(field.type, Struct) else _primitives(field.type)
    for value in ones:
        yield [value, value] if field.is_array else value


def _primitives(kafka_type: str) -> list[Any]:
    if kafka_type in BITS:
        limit = 2 ** (BITS[kafka_type] - (not kafka_type.startswith("u")))
        least = 0 if kafka_type.startswith("u") else -limit
        return [value for value in (least, -2, -1, 0, 1, 3, 100, limit - 1) if value >= least]
    match kafka_type:
        case "bool":
            return [False, True]
        case "uuid":
            return UUIDS
        case "string":
            return STRINGS
        case "float64":
            return [float("nan"), float("inf"), -1.0]
    return BYTES


def has_length(field: StructField) -> bool:
    return field.is_array or field.type in ("string", "bytes", "records")


def body(api_key: int, version: int, message: Message) -> bytes:
    out = bytearray()
    struct_writer(request_schema(api_key, version))(out, message)
    return bytes(out)


def null_bodies(api_key: int, version: int, good: Good) -> Iterator[tuple[Place, bytes]]:
    """Bodies with null in one place that may not have it, and with a length of -2 in one place."""
    schema = request_schema(api_key, version)
    message = good_message(api_key, version, good)
    for place in places(schema):
        if not has_length(place.field) or place.field.tag is not None:
            continue
        null = body(api_key, version, place.put(message, None))
        if not place.field.is_nullable:
            yield place, null
        if not schema.is_flexible:
            empty = body(api_key, version, place.put(message, () if place.field.is_array else b""))
            start = next(index for index, pair in enumerate(zip(null, empty, strict=True)) if pair[0] != pair[1])
            size = 2 if place.field.type == "string" and not place.field.is_array else 4
            yield place, null[:start] + b"\xff" * (size - 1) + b"\xfe" + null[start + size :]
        elif place.field.is_array and place.field.type == "string":
            inside = body(api_key, version, place.put(message, [None]))
            yield place, inside


def doubled_tags(api_key: int, version: int, good: Good) -> bytes | None:
    """A body whose last tagged fields, those of the whole message, have a number twice."""
    schema = request_schema(api_key, version)
    if not schema.is_flexible:
        return None
    plain = Struct(tuple(field for field in schema.fields if field.tag is None), True)
    out = bytearray()
    struct_writer(plain)(out, good_message(api_key, version, good))
    assert out[-1] == 0, "it has no tagged fields"
    return bytes(out[:-1]) + UNKNOWN_TWICE
