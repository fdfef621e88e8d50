"""Reads numbers, strings and arrays from untrusted bytes: records of internal topics, messages of nodes.

Every read is checked against what is left; a count or length can therefore never make us allocate more than was sent.
Integers are big-endian. Requests of clients are read by `wire/codec.Cursor`.
"""

import struct
import uuid
from typing import Any

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class MalformedBytes(ValueError):
    """The bytes are not what their version says they are."""


class ByteReader:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._position = 0

    def take(self, length: int) -> bytes | memoryview:
        """The next bytes: a slice of what the reader was made of."""
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise MalformedBytes(f"{length} bytes do not fit into what is left")
        data = self._data[self._position : end]
        self._position = end
        return data

    def rest(self) -> memoryview:
        """Everything that is left."""
        return memoryview(self.take(len(self._data) - self._position))

    def unpack(self, shape: struct.Struct) -> tuple[Any, ...]:
        """Several fields of fixed size at once."""
        start = self._position
        self._position = start + shape.size
        if self._position > len(self._data):
            raise MalformedBytes("the bytes end too early")
        return shape.unpack_from(self._data, start)

    def byte(self) -> int:
        if self._position >= len(self._data):
            raise MalformedBytes("the bytes end too early")
        self._position += 1
        return self._data[self._position - 1]

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=bytes(self.take(16)))

    def utf8(self, length: int) -> str:
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedBytes("a string is not UTF-8") from error

    def string(self) -> str:
        return _present(self.nullable_string())

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self.utf8(length)

    def blob(self) -> bytes:
        return bytes(self.take(self.int32()))

    def nullable_blob(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else bytes(self.take(length))

    def count(self, min_element_bytes: int) -> int:
        """The length of an array, refused when what is left cannot hold that many elements."""
        return self.checked(self.int32(), min_element_bytes)

    def checked(self, count: int, min_element_bytes: int) -> int:
        """A count that was read by other means, refused when what is left cannot hold that many elements."""
        if not 0 <= count * min_element_bytes <= len(self._data) - self._position:
            raise MalformedBytes(f"{count} elements do not fit into what is left")
        return count

    def check_end(self) -> None:
        if self._position != len(self._data):
            raise MalformedBytes(f"{len(self._data) - self._position} bytes are left over")

    # Variable numbers: seven bits a byte, least significant first

    def varint(self) -> int:
        """Unsigned, of at most 32 bits."""
        return self._variable(5)

    def varlong(self) -> int:
        """Unsigned, of at most ten bytes: 64 bits, and a few more that the caller must refuse."""
        return self._variable(10)

    # The compact forms of Kafka's newer messages: lengths are variable and one too high, so that 0 is null

    def compact_string(self) -> str:
        return _present(self.compact_nullable_string())

    def compact_nullable_string(self) -> str | None:
        length = self.varint() - 1
        return None if length == -1 else self.utf8(length)

    def compact_blob(self) -> bytes:
        return bytes(self.take(self.varint() - 1))

    def compact_count(self, min_element_bytes: int) -> int:
        return self.checked(self.varint() - 1, min_element_bytes)

    def tags(self) -> dict[int, "ByteReader"]:
        """What a later version, or a field that is mostly absent, added: by number."""
        return {self.varint(): ByteReader(self.take(self.varint())) for _ in range(self.checked(self.varint(), 2))}

    def _number(self, shape: struct.Struct) -> int:
        start = self._position
        self._position = start + shape.size
        if self._position > len(self._data):
            raise MalformedBytes("the bytes end too early")
        number: int = shape.unpack_from(self._data, start)[0]
        return number

    def _variable(self, max_bytes: int) -> int:
        value = 0
        for shift in range(0, 7 * max_bytes, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedBytes("a variable number does not end")


def _present(text: str | None) -> str:
    if text is None:
        raise MalformedBytes("a string is null")
    return text
