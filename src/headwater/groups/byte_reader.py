"""Reads Kafka's fixed-width primitives from bytes that nobody vouches for.

Every read is checked against what is left; a count or length can therefore never make us allocate more than was sent.
"""

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Malformed(Exception):
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

    def blob(self) -> bytes:
        return self._take(self.int32())

    def count(self, min_element_bytes: int) -> int:
        """The length of an array, refused when what is left cannot hold that many elements."""
        count = self.int32()
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
