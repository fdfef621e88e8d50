"""How a record says which schema it was written with.

0       a zero byte
1..4    the schema's id, big-endian
5..     Avro or JSON as it is; Protobuf: first which message of the file it is, as a count and that many indexes from
        the outermost message inwards, zigzag varints. A single zero stands for the first message.
"""

import struct
from typing import Final

MAGIC: Final = 0
PREFIX: Final = struct.Struct(">bI")
PREFIX_BYTES: Final = PREFIX.size
_MAX_INDEXES: Final = 100


class NotFramed(Exception):
    """The bytes do not begin as this format does. The message says why."""


def schema_id(value: "bytes | memoryview") -> int:
    """Raises NotFramed."""
    if len(value) < PREFIX_BYTES:
        raise NotFramed(f"it has {len(value)} bytes, too few for a schema id")
    magic, found = PREFIX.unpack_from(value)
    if magic != MAGIC:
        raise NotFramed(f"its first byte is {magic}, not 0: it has no schema id")
    return int(found)


def message_indexes(value: "bytes | memoryview", position: int = PREFIX_BYTES) -> tuple[tuple[int, ...], int]:
    """Which message of a Protobuf file it is, and where it begins. Raises NotFramed."""
    count, position = _varint(value, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= _MAX_INDEXES:
        raise NotFramed(f"it names a message by {count} indexes")
    found = []
    for _ in range(count):
        index, position = _varint(value, position)
        found.append(index)
    return tuple(found), position


def _varint(value: "bytes | memoryview", position: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 35, 7):
        if position >= len(value):
            break
        byte = value[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
    raise NotFramed("the indexes of its message are cut off")
