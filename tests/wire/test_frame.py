"""Frames arrive whole, in pieces, and several at once, and cost no memory before their bytes do."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.frame import FIRST_FRAME_LIMIT_BYTES, FIRST_GROWTH_BYTES, GROWTH_BYTES, FrameReader, FrameTooLarge


def feed(reader: FrameReader, data: bytes, step: int) -> list[bytes]:
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        buffer = reader.buffer()
        piece = data[position : position + min(step, len(buffer))]
        buffer[: len(piece)] = piece
        position += len(piece)
        frames += map(bytes, reader.advance(len(piece)))
    return frames


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@given(st.lists(st.binary(max_size=700), max_size=8), st.integers(1, 900))
def test_frames_come_out_as_they_went_in_whatever_the_pieces(bodies: list[bytes], step: int) -> None:
    reader = FrameReader(bytearray(512))
    assert feed(reader, framed(*bodies), step) == bodies
    assert reader.is_between_frames
    assert reader.pending_bytes == 0


def test_a_frame_larger_than_the_growth_step_arrives_whole() -> None:
    body = bytes(range(256)) * (3 * GROWTH_BYTES // 256 + 5)
    reader = FrameReader(bytearray(1024), limit_bytes=len(body))
    assert feed(reader, framed(body, b"next"), 500_000) == [body, b"next"]


def test_an_announced_length_costs_little_until_its_bytes_arrive() -> None:
    reader = FrameReader(bytearray(1024), limit_bytes=2**30)
    feed(reader, struct.pack(">i", 2**30) + b"x", 5)
    assert reader.pending_bytes <= GROWTH_BYTES


def test_what_a_stranger_announces_costs_no_more_than_what_it_sends() -> None:
    reader = FrameReader(bytearray(1024))
    feed(reader, struct.pack(">i", FIRST_FRAME_LIMIT_BYTES) + b"x", 10)
    assert reader.pending_bytes <= FIRST_GROWTH_BYTES
    assert feed(reader, bytes(FIRST_FRAME_LIMIT_BYTES - 1), 700) == [b"x" + bytes(FIRST_FRAME_LIMIT_BYTES - 1)]


@pytest.mark.parametrize("length", [-1, -(2**31), FIRST_FRAME_LIMIT_BYTES + 1, 2**31 - 1])
def test_a_first_frame_of_an_impossible_length_is_refused(length: int) -> None:
    with pytest.raises(FrameTooLarge):
        feed(FrameReader(bytearray(64)), struct.pack(">i", length), 4)


def test_a_length_cut_in_two_is_put_together() -> None:
    reader = FrameReader(bytearray(64))
    assert feed(reader, framed(b"abc")[:2], 2) == []
    assert not reader.is_between_frames
    assert feed(reader, framed(b"abc")[2:], 9) == [b"abc"]
