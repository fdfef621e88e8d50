"""A file descriptor as the text of a .proto file, in one way: what two clients send in different forms is the same
schema. Comments are not part of a descriptor and are not kept."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
    UninterpretedOption,
)
from google.protobuf.message import Message

from headwater.schemas.protobuf.options import quoted

_SCALARS: Final = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_MAX_NUMBER, _MAX_ENUM_NUMBER = 2**29, 2**31 - 1


def print_proto(file: FileDescriptorProto, *, in_order: bool = False) -> str:
    """With `in_order`, fields stand in the order of their numbers."""
    return "\n".join(_Printer(file, in_order).lines()) + "\n"


class _Printer:
    def __init__(self, file: FileDescriptorProto, in_order: bool) -> None:
        self._file = file
        self._in_order = in_order
        self._is_proto3 = file.syntax == "proto3"
        self._has_labels = file.syntax in ("", "proto2")

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        imports = list(enumerate(file.dependency))
        if imports:
            yield ""
        for index, name in sorted(imports, key=lambda each: each[1]) if self._in_order else imports:
            kind = "public " if index in file.public_dependency else "weak " if index in file.weak_dependency else ""
            yield f"import {kind}{quoted(name)};"
        options = [f"option {each};" for each in _options(file.options)]
        if options:
            yield from ("", *options)
        for message in file.message_type:
            yield ""
            yield from self._message(message, "")
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum, "")
        for extended in self._extensions(file.extension, file.message_type, ""):
            yield from ("", *extended)
        for service in file.service:
            yield ""
            yield from _service(service)

    def _message(self, message: DescriptorProto, indent: str, head: str | None = None) -> Iterator[str]:
        inner = indent + "  "
        yield f"{indent}{head or f'message {message.name}'} {{"
        for option in _options(message.options):
            yield f"{inner}option {option};"
        yield from _reserved(message, inner, _MAX_NUMBER, 1)
        for extended in message.extension_range:
            yield f"{inner}extensions {_range(extended.start, extended.end - 1, _MAX_NUMBER - 1)};"
        nested = {each.name: each for each in message.nested_type}
        entries = {name for name, each in nested.items() if each.options.map_entry}
        groups = {
            each.type_name.rpartition(".")[2] for each in message.field if each.type == FieldDescriptorProto.TYPE_GROUP
        }
        fields = sorted(message.field, key=lambda each: each.number) if self._in_order else message.field
        printed: set[int] = set()
        for field in fields:
            if field.HasField("oneof_index") and not field.proto3_optional:
                if field.oneof_index not in printed:
                    printed.add(field.oneof_index)
                    yield from self._oneof(message, field.oneof_index, fields, nested, inner)
            else:
                yield from self._field(field, nested, inner)
        for name, each in nested.items():
            if name not in entries and name not in groups:
                yield from self._message(each, inner)
        for enum in message.enum_type:
            yield from self._enum(enum, inner)
        for lines in self._extensions(message.extension, message.nested_type, inner):
            yield from lines
        yield indent + "}"

    def _oneof(
        self,
        message: DescriptorProto,
        index: int,
        fields: Iterable[FieldDescriptorProto],
        nested: dict[str, DescriptorProto],
        indent: str,
    ) -> Iterator[str]:
        yield f"{indent}oneof {message.oneof_decl[index].name} {{"
        for option in _options(message.oneof_decl[index].options):
            yield f"{indent}  option {option};"
        for field in fields:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield from self._field(field, nested, indent + "  ", in_oneof=True)
        yield indent + "}"

    def _field(
        self, field: FieldDescriptorProto, nested: dict[str, DescriptorProto], indent: str, *, in_oneof: bool = False
    ) -> Iterator[str]:
        entry = nested.get(field.type_name.rpartition(".")[2])
        options = [*_field_options(field), *_options(field.options)]
        shown = f" [{', '.join(options)}]" if options else ""
        if entry is not None and entry.options.map_entry and field.label == FieldDescriptorProto.LABEL_REPEATED:
            key, value = entry.field
            yield f"{indent}map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{shown};"
            return
        label = "" if in_oneof else self._label(field)
        if field.type == FieldDescriptorProto.TYPE_GROUP and entry is not None:
            yield from self._message(entry, indent, f"{label}group {entry.name} = {field.number}")
        else:
            yield f"{indent}{label}{_type(field)} {field.name} = {field.number}{shown};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return "repeated "
        if field.label == FieldDescriptorProto.LABEL_REQUIRED:
            return "required "
        return "optional " if self._has_labels or field.proto3_optional else ""

    def _extensions(
        self, fields: Iterable[FieldDescriptorProto], messages: Iterable[DescriptorProto], indent: str
    ) -> Iterator[list[str]]:
        nested = {each.name: each for each in messages}
        by_extendee: dict[str, list[FieldDescriptorProto]] = {}
        for field in fields:
            by_extendee.setdefault(field.extendee, []).append(field)
        for extendee, extended in by_extendee.items():
            lines = [line for field in extended for line in self._field(field, nested, indent + "  ")]
            yield [f"{indent}extend {extendee} {{", *lines, indent + "}"]

    def _enum(self, enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        for option in _options(enum.options):
            yield f"{indent}  option {option};"
        yield from _reserved(enum, indent + "  ", _MAX_ENUM_NUMBER, 0)
        for value in enum.value:
            options = list(_options(value.options))
            shown = f" [{', '.join(options)}]" if options else ""
            yield f"{indent}  {value.name} = {value.number}{shown};"
        yield indent + "}"


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for option in _options(service.options):
        yield f"  option {option};"
    for method in service.method:
        asked = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        answered = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        options = [f"option {option};" for option in _options(method.options)]
        end = " { " + " ".join(options) + " }" if options else ";"
        yield f"  rpc {method.name} ({asked}) returns ({answered}){end}"
    yield "}"


def _type(field: FieldDescriptorProto) -> str:
    return _SCALARS.get(field.type, field.type_name) if not field.type_name else field.type_name


def _reserved(each: Any, indent: str, most: int, beyond: int) -> Iterator[str]:
    """`beyond` is how far the end of a range lies after its last number: one in a message, none in an enum."""
    if each.reserved_range:
        ranges = [_range(found.start, found.end - beyond, most - beyond) for found in each.reserved_range]
        yield f"{indent}reserved {', '.join(ranges)};"
    if each.reserved_name:
        yield f"{indent}reserved {', '.join(quoted(name) for name in each.reserved_name)};"


def _range(start: int, end: int, most: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end >= most else end}"


def _field_options(field: FieldDescriptorProto) -> Iterator[str]:
    if field.HasField("default_value"):
        if field.type == FieldDescriptorProto.TYPE_BYTES:  # escaped already
            yield f'default = "{field.default_value}"'
        else:
            is_text = field.type == FieldDescriptorProto.TYPE_STRING
            yield f"default = {quoted(field.default_value) if is_text else field.default_value}"
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        yield f"json_name = {quoted(field.json_name)}"


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _options(options: Message) -> Iterator[str]:
    for known, value in options.ListFields():
        if known.name == "uninterpreted_option":
            for kept in value:
                yield f"{''.join(part.name_part for part in kept.name)} = {_kept(kept)}"
        elif known.name == "map_entry" or known.message_type is not None or known.is_extension:
            continue
        elif known.enum_type is not None and not isinstance(value, Iterable):
            yield f"{known.name} = {known.enum_type.values_by_number[value].name}"
        elif isinstance(value, bool):
            yield f"{known.name} = {'true' if value else 'false'}"
        elif isinstance(value, str):
            yield f"{known.name} = {quoted(value)}"
        elif isinstance(value, int | float):
            yield f"{known.name} = {value}"


def _kept(option: UninterpretedOption) -> str:
    (known, value), *_ = [each for each in option.ListFields() if each[0].name != "name"]
    if known.name == "string_value":
        return quoted(value.decode("utf-8", "replace"))
    return str(value)
