"""Strings and array lengths in both encodings, for the codecs that are written by hand."""

import struct

from headwater.wire.codec import write_uvarint
from headwater.wire.cursor import Cursor, MalformedRequest, check_null

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def array_length(cursor: Cursor, is_flexible: bool, min_element_bytes: int) -> int:
    """The number of elements of an array that may not be null."""
    announced = cursor.uvarint() - 1 if is_flexible else _INT32.unpack(cursor.take(4))[0]
    if announced < 0:
        check_null(announced, False, "an array")
    return cursor.count(announced, min_element_bytes)


def string(cursor: Cursor, is_flexible: bool) -> str:
    text = nullable_string(cursor, is_flexible)
    if text is None:
        raise MalformedRequest("a string is null that may not be")
    return text


def nullable_string(cursor: Cursor, is_flexible: bool) -> str | None:
    length = cursor.uvarint() - 1 if is_flexible else _INT16.unpack(cursor.take(2))[0]
    if length < 0:
        check_null(length, True, "a string")
        return None
    try:
        return str(cursor.take(length), "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"a string is not UTF-8: {error}") from None


def write_array_length(out: bytearray, length: int, is_flexible: bool) -> None:
    if is_flexible:
        write_uvarint(out, length + 1)
    else:
        out += _INT32.pack(length)


def write_string(out: bytearray, text: str | None, is_flexible: bool) -> None:
    data = text.encode() if text is not None else None
    if is_flexible:
        write_uvarint(out, 0 if data is None else len(data) + 1)
    else:
        out += _INT16.pack(-1 if data is None else len(data))
    if data is not None:
        out += data
