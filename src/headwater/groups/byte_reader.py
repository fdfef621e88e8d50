"""Reads Kafka's primitives from bytes that nobody vouches for.

Every read is checked against what is left; a count or length can therefore never make us allocate more than was sent.
"""

import struct
import uuid

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Malformed(ValueError):
    """The bytes are not what their version says they are."""


class ByteReader:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise Malformed("a string is null")
        return text

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise Malformed("a string is not UTF-8") from error

    def nullable_blob(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def blob(self) -> bytes:
        return self._take(self.int32())

    def count(self, min_element_bytes: int) -> int:
        """The length of an array, refused when what is left cannot hold that many elements."""
        return self._checked(self.int32(), min_element_bytes)

    # The compact forms of newer messages: lengths are variable and one too high, so that 0 is null

    def int8(self) -> int:
        return self._number(_INT8)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._take(16))

    def varint(self) -> int:
        """Unsigned, of at most 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed("a variable number does not end")

    def compact_string(self) -> str:
        text = self.compact_nullable_string()
        if text is None:
            raise Malformed("a string is null")
        return text

    def compact_nullable_string(self) -> str | None:
        length = self.varint() - 1
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise Malformed("a string is not UTF-8") from error

    def compact_blob(self) -> bytes:
        return self._take(self.varint() - 1)

    def compact_count(self, min_element_bytes: int) -> int:
        return self._checked(self.varint() - 1, min_element_bytes)

    def tags(self) -> dict[int, "ByteReader"]:
        """What a later version, or a field that is mostly absent, added: by number."""
        return {self.varint(): ByteReader(self._take(self.varint())) for _ in range(self._checked(self.varint(), 2))}

    def check_end(self) -> None:
        if self._position != len(self._data):
            raise Malformed(f"{len(self._data) - self._position} bytes are left over")

    def _checked(self, count: int, min_element_bytes: int) -> int:
        if not 0 <= count * min_element_bytes <= len(self._data) - self._position:
            raise Malformed(f"{count} elements do not fit into what is left")
        return count

    def _number(self, shape: struct.Struct) -> int:
        start = self._position
        self._position = start + shape.size
        if self._position > len(self._data):
            raise Malformed("the bytes end too early")
        number: int = shape.unpack_from(self._data, start)[0]
        return number

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise Malformed(f"{length} bytes do not fit into what is left")
        data = self._data[self._position : end]
        self._position = end
        return data
