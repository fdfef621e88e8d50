"""Whether Protobuf messages that one schema wrote can be read with another.

Fields are known by their numbers. They may come and go, and change between types that have one form on the wire; what
may not happen is that bytes mean something else, or that a choice (oneof) loses what it may have held.
"""

from collections.abc import Mapping
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from headwater.schemas.incompatibility import Findings, Incompatibility
from headwater.schemas.protobuf.schema import ProtoFile

_F = FieldDescriptorProto
_INTERCHANGEABLE: Final = (
    {_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_BOOL},
    {_F.TYPE_SINT32, _F.TYPE_SINT64},
    {_F.TYPE_STRING, _F.TYPE_BYTES},
    {_F.TYPE_FIXED32, _F.TYPE_SFIXED32},
    {_F.TYPE_FIXED64, _F.TYPE_SFIXED64},
)
_NAMED: Final = {_F.TYPE_MESSAGE, _F.TYPE_ENUM, _F.TYPE_GROUP}
_LENGTH_DELIMITED: Final = {_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE}


def unreadable(reader: ProtoFile, writer: ProtoFile) -> list[Incompatibility]:
    """Empty if every message of the writer can be read."""
    findings = Findings()
    if reader.file.package != writer.file.package:
        findings.add("PACKAGE_CHANGED", "/", f"{writer.file.package!r} became {reader.file.package!r}")
        return findings.found
    reader_messages, writer_messages = _messages(reader, all_files=True), _messages(writer, all_files=False)
    comparison = _Comparison(findings, reader_messages, _messages(writer, all_files=True))
    for name in writer_messages:
        if name in reader_messages:
            comparison.compare(name, name, "/" + name)
        else:
            findings.add("MESSAGE_REMOVED", "/" + name, "the reader does not have the message")
    return findings.found


class _Comparison:
    def __init__(
        self,
        findings: Findings,
        reader_messages: Mapping[str, DescriptorProto],
        writer_messages: Mapping[str, DescriptorProto],
    ) -> None:
        self._findings = findings
        self._reader_messages = reader_messages
        self._writer_messages = writer_messages
        self._compared: set[tuple[str, str]] = set()

    def compare(self, reader_message: str, writer_message: str, path: str) -> None:
        """Messages, and those of other files that they hold."""
        waiting = [(reader_message, writer_message, path)]
        while waiting:
            reader_name, writer_name, path = waiting.pop()
            if (reader_name, writer_name) in self._compared or not self._findings.may_compare(path):
                continue
            self._compared.add((reader_name, writer_name))
            reader, writer = self._reader_messages.get(reader_name), self._writer_messages.get(writer_name)
            if reader is None or writer is None:
                continue
            self._choices(reader, writer, path)
            waiting += self._fields(reader, writer, path)

    def _fields(self, reader: DescriptorProto, writer: DescriptorProto, path: str) -> list[tuple[str, str, str]]:
        reader_fields = {field.number: field for field in reader.field}
        writer_fields = {field.number: field for field in writer.field}
        held = []
        for number, field in writer_fields.items():
            here = f"{path}/{field.name}"
            other = reader_fields.get(number)
            if other is None:
                if field.label == _F.LABEL_REQUIRED:
                    self._findings.add("REQUIRED_FIELD_REMOVED", here, "a required field is gone")
                continue
            self._field(other, field, here)
            if other.type in _NAMED and other.type == field.type and field.type != _F.TYPE_ENUM:
                held.append((other.type_name.lstrip("."), field.type_name.lstrip("."), here))
        for number, field in reader_fields.items():
            if number not in writer_fields and field.label == _F.LABEL_REQUIRED:
                self._findings.add("REQUIRED_FIELD_ADDED", f"{path}/{field.name}", "the writer does not have it")
        return held

    def _field(self, reader_field: FieldDescriptorProto, writer_field: FieldDescriptorProto, path: str) -> None:
        if (reader_field.type in _NAMED) != (writer_field.type in _NAMED) or (
            reader_field.type in _NAMED and reader_field.type != writer_field.type
        ):
            self._findings.add("FIELD_KIND_CHANGED", path, f"{_word(writer_field)} became {_word(reader_field)}")
            return
        if reader_field.type in _NAMED:
            if reader_field.type_name != writer_field.type_name and not self._are_entries(reader_field, writer_field):
                self._findings.add(
                    "FIELD_NAMED_TYPE_CHANGED", path, f"{_word(writer_field)} became {_word(reader_field)}"
                )
        elif reader_field.type != writer_field.type and not any(
            {reader_field.type, writer_field.type} <= group for group in _INTERCHANGEABLE
        ):
            self._findings.add("FIELD_SCALAR_KIND_CHANGED", path, f"{_word(writer_field)} became {_word(reader_field)}")
            return
        is_list, was_list = (each.label == _F.LABEL_REPEATED for each in (reader_field, writer_field))
        if is_list != was_list and not {reader_field.type, writer_field.type} <= _LENGTH_DELIMITED:
            reason = "one value and many have different forms on the wire"
            self._findings.add("FIELD_NUMERIC_LABEL_CHANGED", path, reason)

    def _are_entries(self, reader_field: FieldDescriptorProto, writer_field: FieldDescriptorProto) -> bool:
        """The message of a map's entries is named after its field, which may have another name now."""
        reader, writer = (
            self._reader_messages.get(reader_field.type_name[1:]),
            self._writer_messages.get(writer_field.type_name[1:]),
        )
        return bool(reader and writer and reader.options.map_entry and writer.options.map_entry)

    def _choices(self, reader: DescriptorProto, writer: DescriptorProto, path: str) -> None:
        reader_choices, writer_choices = _choices(reader), _choices(writer)
        reader_numbers = {number: name for name, numbers in reader_choices.items() for number in numbers}
        plain = {field.number for field in writer.field} - {
            number for each in writer_choices.values() for number in each
        }
        for name, numbers in writer_choices.items():
            if not numbers & set(reader_numbers):
                self._findings.add("ONEOF_REMOVED", f"{path}/{name}", "the reader does not have the choice")
            elif gone := numbers - set(reader_numbers):
                shown = ", ".join(str(number) for number in sorted(gone))
                self._findings.add("ONEOF_FIELD_REMOVED", f"{path}/{name}", f"field {shown} left the choice")
        for name, numbers in reader_choices.items():
            moved = numbers & plain
            if len(moved) > 1:
                reason = "fields that could be there together are now a choice"
                self._findings.add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}", reason)
            elif moved and numbers & {number for each in writer_choices.values() for number in each}:
                reason = "a field that could be there beside the choice is now part of it"
                self._findings.add("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}", reason)


def _messages(proto: ProtoFile, *, all_files: bool) -> dict[str, DescriptorProto]:
    """By their full names; entries of maps are compared with the field that they belong to."""
    found: dict[str, DescriptorProto] = {}
    for file in (proto.file, *(proto.imported.values() if all_files else ())):
        prefix = file.package + "." if file.package else ""
        waiting = [(prefix + message.name, message) for message in file.message_type]
        while waiting:
            name, message = waiting.pop()
            if all_files or not message.options.map_entry:
                found[name] = message
            waiting += [(f"{name}.{inner.name}", inner) for inner in message.nested_type]
    return found


def _choices(message: DescriptorProto) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(message.oneof_decl[field.oneof_index].name, set()).add(field.number)
    return found


def _word(field: FieldDescriptorProto) -> str:
    return field.type_name or _F.Type.Name(field.type).removeprefix("TYPE_").lower()
