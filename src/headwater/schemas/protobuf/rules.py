"""Rules of the language that protoc enforces and protobuf's runtime does not.

A file that breaks one could be registered and read, but no code could be generated from it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FieldOptions,
    FileDescriptorProto,
)

from headwater.schemas.schema import InvalidSchema

_WIDE: Final = frozenset(
    (
        FieldDescriptorProto.TYPE_INT64,
        FieldDescriptorProto.TYPE_UINT64,
        FieldDescriptorProto.TYPE_SINT64,
        FieldDescriptorProto.TYPE_FIXED64,
        FieldDescriptorProto.TYPE_SFIXED64,
    )
)
_UNPACKED: Final = frozenset(
    (
        FieldDescriptorProto.TYPE_STRING,
        FieldDescriptorProto.TYPE_BYTES,
        FieldDescriptorProto.TYPE_MESSAGE,
        FieldDescriptorProto.TYPE_GROUP,
    )
)
Span = tuple[int, int]
"""First and last number."""


def check_rules(file: FileDescriptorProto) -> None:
    """Raises InvalidSchema. The file is one that protobuf's pool took."""
    if len(set(file.dependency)) < len(file.dependency):
        raise InvalidSchema("A file is imported twice.")
    for enum in file.enum_type:
        _check_enum(enum)
    for field in file.extension:
        _check_field(field)
    for message in messages_in(file):
        _check_message(message, is_proto3=file.syntax == "proto3")


def messages_in(file: FileDescriptorProto) -> Iterator[DescriptorProto]:
    """With those inside of others."""
    waiting = list(file.message_type)
    while waiting:
        message = waiting.pop()
        yield message
        waiting += message.nested_type


def _check_message(message: DescriptorProto, *, is_proto3: bool) -> None:
    if is_proto3 and message.extension_range:
        raise InvalidSchema(f"{message.name}: proto3 has no extension ranges.")
    if is_proto3 and message.options.message_set_wire_format:
        raise InvalidSchema(f"{message.name}: proto3 has no message sets.")
    if is_proto3 and any(field.type == field.TYPE_GROUP for field in (*message.field, *message.extension)):
        raise InvalidSchema(f"{message.name}: proto3 has no groups.")
    _check_names(message)
    reserved = [(each.start, each.end - 1) for each in message.reserved_range]
    extensible = [(each.start, each.end - 1) for each in message.extension_range]
    taken = _apart(message.name, reserved + extensible)
    names = set(message.reserved_name)
    for field in message.field:
        _check_field(field)
        _check_free(f"{message.name}.{field.name}", field.name, field.number, names, taken)
    for field in message.extension:
        _check_field(field)
    for enum in message.enum_type:
        _check_enum(enum)


def _check_names(message: DescriptorProto) -> None:
    """Everything in a message shares its names; values of an enum are named beside the enum."""
    seen: set[str] = set()
    for name in _names(message):
        if name in seen:
            raise InvalidSchema(f"{name} is defined twice in {message.name}.")
        seen.add(name)


def _names(message: DescriptorProto) -> Iterator[str]:
    parts: tuple[Iterable[FieldDescriptorProto | DescriptorProto | EnumDescriptorProto], ...]
    parts = (message.field, message.extension, message.nested_type, message.enum_type)
    for part in parts:
        yield from (each.name for each in part)
    yield from (each.name for each in message.oneof_decl)
    yield from (value.name for enum in message.enum_type for value in enum.value)


def _check_field(field: FieldDescriptorProto) -> None:
    is_repeated = field.label == field.LABEL_REPEATED
    if field.options.packed and (not is_repeated or field.type in _UNPACKED):
        raise InvalidSchema(f"{field.name}: only repeated numbers can be packed.")
    if field.options.jstype != FieldOptions.JS_NORMAL and field.type not in _WIDE:
        raise InvalidSchema(f"{field.name}: jstype is for integers of 64 bits.")


def _check_enum(enum: EnumDescriptorProto) -> None:
    reserved = _apart(enum.name, ((each.start, each.end) for each in enum.reserved_range))
    names = set(enum.reserved_name)
    numbers: dict[int, str] = {}
    for value in enum.value:
        _check_free(f"{enum.name}.{value.name}", value.name, value.number, names, reserved)
        first = numbers.setdefault(value.number, value.name)
        if first != value.name and not enum.options.allow_alias:
            raise InvalidSchema(f"{enum.name}: {first} and {value.name} are both {value.number}; see allow_alias.")


def _apart(owner: str, spans: Iterable[Span]) -> list[Span]:
    """In order."""
    ordered = sorted(spans)
    for (_, end), (first, _) in pairwise(ordered):
        if first <= end:
            raise InvalidSchema(f"{owner}: {first} is in two ranges that are reserved or for extensions.")
    return ordered


def _check_free(owner: str, name: str, number: int, names: set[str], spans: Sequence[Span]) -> None:
    if name in names:
        raise InvalidSchema(f"{owner}: the name is reserved.")
    after = bisect_right(spans, number, key=lambda span: span[0])
    if after > 0 and number <= spans[after - 1][1]:
        raise InvalidSchema(f"{owner}: {number} is reserved, or for extensions.")
