"""Bytes to messages and back, for any schema, with every count bounded by the bytes that remain.

A message is one `Message` whatever its version: a request decoded from an old version has the
fields of the newest with their defaults, and a response is written with the fields that its version has.

A count is refused when the rest of the request could not hold that many elements, and the elements of one request are
counted against a budget. Null is refused where the field is not nullable in the version of the message: its handler
finds None only where that version allows it. Unknown tagged fields are skipped; one that comes twice is refused.
See docs/decisions/0004-own-codec-over-kio-schemas.md.
"""

import struct
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headwater.wire.schema import NULL_UUID, Struct, StructField

MAX_ELEMENTS = 500_000
"""Array elements in one request: bounds the memory that small elements can cost."""


class MalformedRequest(Exception):
    """The bytes are not a message of that kind and version."""


class Message:
    """A struct of the protocol: a bag of named fields."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


class Cursor:
    """A read position in the bytes of one request."""

    __slots__ = ("buffer", "elements_left", "end", "position")

    def __init__(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> None:
        self.buffer = memoryview(buffer)
        self.position = position
        self.end = len(buffer)
        self.elements_left = MAX_ELEMENTS

    def take(self, size: int) -> memoryview:
        start = self.position
        stop = start + size
        if size < 0 or stop > self.end:
            raise MalformedRequest(f"a field of {size} bytes at {start} does not fit in {self.end} bytes")
        self.position = stop
        return self.buffer[start:stop]

    def uvarint(self) -> int:
        position = self.position
        if position < self.end and (byte := self.buffer[position]) < 0x80:  # short, as nearly always
            self.position = position + 1
            return byte
        result = shift = 0
        while True:
            if self.position >= self.end or shift > 28:
                raise MalformedRequest("a variable-length number does not end")
            byte = self.buffer[self.position]
            self.position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def count(self, announced: int, min_element_bytes: int) -> int:
        """Check an announced number of elements against what the rest could hold."""
        if announced * min_element_bytes > self.end - self.position:
            raise MalformedRequest(f"{announced} elements are announced, {self.end - self.position} bytes remain")
        self.elements_left -= announced
        if self.elements_left < 0:
            raise MalformedRequest(f"more than {MAX_ELEMENTS} elements in one request")
        return announced

    def skip_tags(self) -> None:
        position = self.position
        if position < self.end and not self.buffer[position]:  # none, as nearly always
            self.position = position + 1
            return
        for _, size in self.tags():
            self.take(size)

    def tags(self) -> Iterator[tuple[int, int]]:
        """Number and size of each tagged field. The caller reads or skips its bytes before it takes the next."""
        seen: set[int] = set()
        for _ in range(self.count(self.uvarint(), 2)):
            tag = self.uvarint()
            if tag in seen:
                raise MalformedRequest(f"tagged field {tag} comes twice")
            seen.add(tag)
            yield tag, self.uvarint()


Read: TypeAlias = Callable[[Cursor], Any]
Write: TypeAlias = Callable[[bytearray, Any], None]

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
def struct_reader(schema: Struct, newest: Struct) -> Callable[[Cursor], Message]:
    """A reader for `schema` whose messages also have the fields that only `newest` knows."""
    newest_fields = {field.name: field for field in newest.fields}
    plain = [
        (field.name, _field_reader(field, newest_fields.get(field.name, field), schema.is_flexible))
        for field in schema.fields
        if field.tag is None
    ]
    tagged: dict[int | None, tuple[str, Read]] = {
        field.tag: (field.name, _field_reader(field, newest_fields.get(field.name, field), True))
        for field in schema.fields
        if field.tag is not None
    }
    defaults = newest.defaults() | schema.defaults()
    is_flexible = schema.is_flexible

    def read(cursor: Cursor) -> Message:
        values = defaults.copy()
        for name, read_field in plain:
            values[name] = read_field(cursor)
        if is_flexible:
            if tagged:
                _read_tags(cursor, tagged, values)
            else:
                cursor.skip_tags()
        message = Message()
        message.__dict__ = values
        return message

    return read


def _read_tags(cursor: Cursor, tagged: dict[int | None, tuple[str, Read]], values: dict[str, Any]) -> None:
    for tag, size in cursor.tags():
        known = tagged.get(tag)
        if known is None:
            cursor.take(size)
            continue
        stop = cursor.position + size
        values[known[0]] = known[1](cursor)
        if cursor.position != stop:
            raise MalformedRequest(f"tagged field {tag} is not {size} bytes long")


def _field_reader(field: StructField, newest: StructField, is_flexible: bool) -> Read:
    if isinstance(field.type, Struct):
        newest_struct = newest.type if isinstance(newest.type, Struct) else field.type
        read_struct = struct_reader(field.type, newest_struct)
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


def check_null(length: int, may_be_null: bool, name: str) -> None:
    """A negative length says null, if it is -1 and the field may be null; otherwise it is refused."""
    if length != -1:
        raise MalformedRequest(f"{name} has the length {length}")
    if not may_be_null:
        raise MalformedRequest(f"{name} is null, which it may not be in this version")


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

    def read_bytes(cursor: Cursor) -> bytes | None:
        size = read_size(cursor)
        if size < 0:
            check_null(size, may_be_null, name)
            return None
        return bytes(cursor.take(size))

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
    """A writer for `schema` that takes any message having its fields; those left out get their defaults."""
    steps = _write_steps(schema)
    tagged = [
        (field, _field_writer(field, True))
        for field in sorted(schema.fields, key=lambda field: field.tag if field.tag is not None else -1)
        if field.tag is not None
    ]
    defaults = schema.defaults()
    is_flexible = schema.is_flexible

    def write(out: bytearray, message: Message) -> None:
        try:
            for step in steps:
                step(out, message)
        except AttributeError:
            missing = defaults.keys() - message.__dict__.keys()
            if not missing:
                raise
            raise _MissingFields from None
        if is_flexible:
            _write_tags(out, message, tagged)

    def write_with_defaults(out: bytearray, message: Message) -> None:
        start = len(out)
        try:
            write(out, message)
        except _MissingFields:
            del out[start:]
            message.__dict__ = defaults | message.__dict__
            write(out, message)

    return write_with_defaults


class _MissingFields(Exception):
    """A message left fields out; they are filled in and the struct is written again."""


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


def _write_tags(out: bytearray, message: Message, tagged: list[tuple[StructField, Write]]) -> None:
    if not tagged:
        out.append(0)
        return
    body = bytearray()
    count = 0
    for field, write_value in tagged:
        value = message.__dict__.get(field.name, field.default)
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
