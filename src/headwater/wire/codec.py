"""Bytes to messages and back, for any schema, with every count bounded by the bytes that remain.

A message is of one class whatever its version (`typed/`): a request decoded from an old version has the fields of all
versions, with the defaults of the newest, and a response is written with the fields that its version has.

A count is refused when the rest of the request could not hold that many elements, and the elements of one request are
counted against a budget. Null is refused where the field is not nullable in the version of the message: its handler
finds None only where that version allows it. Unknown tagged fields are skipped; one that comes twice is refused.
See docs/decisions/0004-own-codec-over-kio-schemas.md.
"""

import struct
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias, cast

from headwater.wire.cursor import Cursor, MalformedRequest, check_null
from headwater.wire.message import Message
from headwater.wire.schema import NULL_UUID, Struct, StructField

Read: TypeAlias = Callable[[Cursor], Any]
Write: TypeAlias = Callable[[bytearray, Any], None]
TaggedWrite: TypeAlias = tuple[StructField, Callable[[Message], Any], Write]

_FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
}


# Reading


@cache
def struct_reader(schema: Struct, message_class: Any) -> Callable[[Cursor], Any]:
    """A reader for the struct of one version, which becomes a message of the class of all versions."""
    structs: Mapping[str, Any] = message_class.STRUCTS
    plain = [
        (field.name, _field_reader(field, structs.get(field.name), schema.is_flexible))
        for field in schema.fields
        if field.tag is None
    ]
    tagged: dict[int | None, tuple[str, Read]] = {
        field.tag: (field.name, _field_reader(field, structs.get(field.name), True))
        for field in schema.fields
        if field.tag is not None
    }
    defaults = _defaults_of_rest(schema, message_class)
    is_flexible = schema.is_flexible
    new = message_class.__new__

    def read(cursor: Cursor) -> Any:
        message = new(message_class)  # without its constructor, which would match names with names
        for name, default in defaults:
            setattr(message, name, default)
        for name, read_field in plain:
            setattr(message, name, read_field(cursor))
        if is_flexible:
            if tagged:
                _read_tags(cursor, tagged, message)
            else:
                cursor.skip_tags()
        return message

    return read


def _defaults_of_rest(schema: Struct, message_class: Any) -> list[tuple[str, Any]]:
    """Of the fields that need not be there: those that are tagged in this version, and those that it does not have."""
    fields = {field.name: field for field in schema.fields}
    rest = [name for name in message_class.__slots__ if name not in fields or fields[name].tag is not None]
    newest: dict[str, Any] = message_class.__init__.__kwdefaults__ if rest else {}
    return [(name, fields[name].default if name in fields else newest[name]) for name in rest]


def _read_tags(cursor: Cursor, tagged: dict[int | None, tuple[str, Read]], message: Any) -> None:
    for tag, size in cursor.tags():
        known = tagged.get(tag)
        if known is None:
            cursor.take(size)
            continue
        stop = cursor.position + size
        setattr(message, known[0], known[1](cursor))
        if cursor.position != stop:
            raise MalformedRequest(f"tagged field {tag} is not {size} bytes long")


def _field_reader(field: StructField, message_class: Any, is_flexible: bool) -> Read:
    if isinstance(field.type, Struct):
        assert message_class is not None, f"{field.name} has a class for its structs"
        read_struct = struct_reader(field.type, message_class)
        if field.is_array:
            return _array_reader(read_struct, _min_bytes(field.type), field, is_flexible)
        return _nullable_struct_reader(read_struct, field.name) if field.is_nullable else read_struct
    if field.is_array:
        element = _primitive_reader(field.type, field, is_flexible, may_be_null=False)
        return _array_reader(element, _min_primitive_bytes(field.type, is_flexible), field, is_flexible)
    return _primitive_reader(field.type, field, is_flexible, may_be_null=field.is_nullable)


def _nullable_struct_reader(read_struct: Read, name: str) -> Read:
    def read(cursor: Cursor) -> Message | None:
        presence = cursor.take(1)[0]
        if presence == 1:
            return cast(Message, read_struct(cursor))
        if presence != 0xFF:
            raise MalformedRequest(f"{name} is neither there nor null")
        return None

    return read


def _array_reader(read_element: Read, min_element_bytes: int, field: StructField, is_flexible: bool) -> Read:
    name, may_be_null = field.name, field.is_nullable
    read_count = _length_reader(_INT32, is_flexible)

    def read(cursor: Cursor) -> list[Any] | None:
        announced = read_count(cursor)
        if announced < 0:
            check_null(announced, may_be_null, name)
            return None
        return [read_element(cursor) for _ in range(cursor.count(announced, min_element_bytes))]

    return read


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def _primitive_reader(kafka_type: str, field: StructField, is_flexible: bool, may_be_null: bool) -> Read:
    name = field.name
    if kafka_type in _FIXED:
        return _fixed_reader(struct.Struct(">" + _FIXED[kafka_type]))
    if kafka_type == "uuid":
        return lambda cursor: uuid.UUID(bytes=bytes(cursor.take(16)))
    if kafka_type == "string":
        read_length = _length_reader(_INT16, is_flexible)

        def read_string(cursor: Cursor) -> str | None:
            length = read_length(cursor)
            if length < 0:
                check_null(length, may_be_null, name)
                return None
            try:
                return str(cursor.take(length), "utf-8")
            except UnicodeDecodeError as error:
                raise MalformedRequest(f"{name} is not UTF-8: {error}") from None

        return read_string
    assert kafka_type in ("bytes", "records"), f"no reader for {kafka_type}"
    read_size = _length_reader(_INT32, is_flexible)
    copy = bytes if kafka_type == "bytes" else memoryview  # records are many bytes: they stay where they arrived

    def read_bytes(cursor: Cursor) -> bytes | memoryview | None:
        size = read_size(cursor)
        if size < 0:
            check_null(size, may_be_null, name)
            return None
        return copy(cursor.take(size))

    return read_bytes


def _fixed_reader(layout: struct.Struct) -> Read:
    """Past the end of the bytes it raises struct.error, which the callers of a reader turn into MalformedRequest."""
    size, unpack_from = layout.size, layout.unpack_from

    def read(cursor: Cursor) -> Any:
        position = cursor.position
        cursor.position = position + size
        return unpack_from(cursor.buffer, position)[0]

    return read


def _length_reader(layout: struct.Struct, is_flexible: bool) -> Callable[[Cursor], int]:
    """Reads the length of a string, of bytes or of an array."""
    return (lambda cursor: cursor.uvarint() - 1) if is_flexible else _fixed_reader(layout)


@cache
def _min_bytes(schema: Struct) -> int:
    """The fewest bytes that a struct of this shape can take."""
    total = 1 if schema.is_flexible else 0
    for field in schema.fields:
        if field.tag is not None:
            continue
        if field.is_array:
            total += 1 if schema.is_flexible else 4
        elif isinstance(field.type, Struct):
            total += 1 if field.is_nullable else _min_bytes(field.type)
        else:
            total += _min_primitive_bytes(field.type, schema.is_flexible)
    return max(total, 1)


def _min_primitive_bytes(kafka_type: str, is_flexible: bool) -> int:
    if kafka_type in _FIXED:
        return struct.calcsize(">" + _FIXED[kafka_type])
    if kafka_type == "uuid":
        return 16
    if is_flexible:
        return 1
    return 2 if kafka_type == "string" else 4


# Writing


@cache
def struct_writer(schema: Struct) -> Callable[[bytearray, Message], None]:
    """A writer for the struct of one version, from a message of its class."""
    steps = _write_steps(schema)
    tagged: list[TaggedWrite] = [
        (field, attrgetter(field.name), _field_writer(field, True))
        for field in sorted(schema.fields, key=lambda field: field.tag if field.tag is not None else -1)
        if field.tag is not None
    ]
    is_flexible = schema.is_flexible

    def write(out: bytearray, message: Message) -> None:
        for step in steps:
            step(out, message)
        if is_flexible:
            _write_tags(out, message, tagged)

    return write


def _write_steps(schema: Struct) -> list[Write]:
    """One step for each run of fixed-size fields, one for each other field."""
    steps: list[Write] = []
    run: list[StructField] = []

    def end_run() -> None:
        if run:
            steps.append(_fixed_run_writer(run))
            run.clear()

    for field in schema.fields:
        if field.tag is not None:
            continue
        if isinstance(field.type, str) and field.type in _FIXED and not field.is_array:
            run.append(field)
            continue
        end_run()
        steps.append(_attribute_writer(field.name, _field_writer(field, schema.is_flexible)))
    end_run()
    return steps


def _fixed_run_writer(fields: list[StructField]) -> Write:
    pack = struct.Struct(">" + "".join(_FIXED[str(field.type)] for field in fields)).pack
    get = attrgetter(*(field.name for field in fields))
    if len(fields) == 1:

        def write_one(out: bytearray, message: Any) -> None:
            out += pack(get(message))

        return write_one

    def write_many(out: bytearray, message: Any) -> None:
        out += pack(*get(message))

    return write_many


def _attribute_writer(name: str, write_value: Write) -> Write:
    get = attrgetter(name)

    def write(out: bytearray, message: Any) -> None:
        write_value(out, get(message))

    return write


def _field_writer(field: StructField, is_flexible: bool) -> Write:
    if isinstance(field.type, Struct):
        write_struct = struct_writer(field.type)
        if field.is_array:
            return _array_writer(write_struct, is_flexible)
        return _nullable_struct_writer(write_struct) if field.is_nullable else write_struct
    if field.is_array:
        return _array_writer(_primitive_writer(field.type, is_flexible), is_flexible)
    return _primitive_writer(field.type, is_flexible)


def _nullable_struct_writer(write_struct: Write) -> Write:
    def write(out: bytearray, value: Message | None) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            write_struct(out, value)

    return write


def _array_writer(write_element: Write, is_flexible: bool) -> Write:
    def write(out: bytearray, values: Any) -> None:
        if is_flexible:
            write_uvarint(out, 0 if values is None else len(values) + 1)
        else:
            out += _INT32.pack(-1 if values is None else len(values))
        for value in values or ():
            write_element(out, value)

    return write


def _primitive_writer(kafka_type: str, is_flexible: bool) -> Write:
    if kafka_type in _FIXED:
        pack = struct.Struct(">" + _FIXED[kafka_type]).pack

        def write_fixed(out: bytearray, value: Any) -> None:
            out += pack(value)

        return write_fixed
    if kafka_type == "uuid":

        def write_uuid(out: bytearray, value: uuid.UUID | None) -> None:
            out += (value or NULL_UUID).bytes

        return write_uuid
    length_layout = _INT16 if kafka_type == "string" else _INT32

    def write_sized(out: bytearray, value: str | bytes | None) -> None:
        data = value.encode() if isinstance(value, str) else value
        if is_flexible:
            write_uvarint(out, 0 if data is None else len(data) + 1)
        else:
            out += length_layout.pack(-1 if data is None else len(data))
        if data is not None:
            out += data

    return write_sized


def _write_tags(
    out: bytearray, message: Message, tagged: list[tuple[StructField, Callable[[Message], Any], Write]]
) -> None:
    if not tagged:
        out.append(0)
        return
    body = bytearray()
    count = 0
    for field, get, write_value in tagged:
        value = get(message)
        if value == field.default or (value is None and not field.is_nullable):
            continue
        encoded = bytearray()
        write_value(encoded, value)
        write_uvarint(body, field.tag or 0)
        write_uvarint(body, len(encoded))
        body += encoded
        count += 1
    write_uvarint(out, count)
    out += body


def write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
