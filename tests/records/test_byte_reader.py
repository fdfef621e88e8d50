"""The reader of stored bytes: numbers, strings and arrays come out as they went in; nothing is read past the end."""

import struct
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.records.byte_reader import ByteReader, MalformedBytes

TOPIC = uuid.UUID(int=7)
READS: list[tuple[bytes, Callable[[ByteReader], object], object]] = [
    (b"\xff", ByteReader.byte, 255),
    (b"\xff", ByteReader.int8, -1),
    (b"\x01\x00", ByteReader.int16, 256),
    (b"\xff\xff\xff\xfe", ByteReader.int32, -2),
    (struct.pack(">q", -(2**63)), ByteReader.int64, -(2**63)),
    (TOPIC.bytes, ByteReader.uuid, TOPIC),
    (b"\x00\x02\xc3\xbc", ByteReader.string, "ü"),
    (b"\xff\xff", ByteReader.nullable_string, None),
    (b"\x00\x00\x00\x01x", ByteReader.blob, b"x"),
    (b"\xff\xff\xff\xff", ByteReader.nullable_blob, None),
    (b"\xac\x02", ByteReader.varint, 300),
    (b"\xff" * 9 + b"\x01", ByteReader.varlong, 2**64 - 1),
    (b"\x02x", ByteReader.compact_string, "x"),
    (b"\x00", ByteReader.compact_nullable_string, None),
    (b"\x03xy", ByteReader.compact_blob, b"xy"),
    (b"\x01\x05\x01x", lambda reader: {tag: bytes(each.rest()) for tag, each in reader.tags().items()}, {5: b"x"}),
    (b"\x00\x01\x02", lambda reader: reader.unpack(struct.Struct(">BH")), (0, 258)),
]


@pytest.mark.parametrize("container", [bytes, memoryview])
@pytest.mark.parametrize(("data", "read", "value"), READS)
def test_what_is_there_is_read_and_what_is_cut_off_is_refused(
    data: bytes, read: Callable[[ByteReader], object], value: object, container: Callable[[bytes], bytes]
) -> None:
    reader = ByteReader(container(data))
    assert read(reader) == value
    reader.check_end()
    for size in range(len(data)):
        with pytest.raises(MalformedBytes):
            read(ByteReader(container(data[:size])))


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"\xff\xff", ByteReader.string),
        (b"\xff\xfe", ByteReader.nullable_string),
        (b"\x00\x01\xff", ByteReader.string),
        (b"\x00", ByteReader.compact_string),
        (b"\x00", ByteReader.compact_blob),
        (b"\xff\xff\xff\xff\xff\x01", ByteReader.varint),
        (b"\xff" * 10 + b"\x01", ByteReader.varlong),
        (b"x", ByteReader.check_end),
    ],
)
def test_null_bad_lengths_bad_text_and_leftovers_are_refused(data: bytes, read: Callable[[ByteReader], object]) -> None:
    with pytest.raises(MalformedBytes):
        read(ByteReader(data))


@given(count=st.integers(-(2**31), 2**31 - 1), left=st.integers(0, 20), size=st.integers(1, 4))
def test_a_count_never_exceeds_what_is_left(count: int, left: int, size: int) -> None:
    reader = ByteReader(struct.pack(">i", count) + bytes(left))
    if 0 <= count * size <= left:
        assert reader.count(size) == count
    else:
        with pytest.raises(MalformedBytes, match="do not fit"):
            reader.count(size)
