"""The four codecs of a batch, each with a hard limit on what it may unpack to.

A few kilobytes can claim gigabytes. Output goes into a buffer of ours that grows by steps up to the limit, so a
bomb costs at most the limit, however it is built; a claimed length is checked before anything is allocated for it.

What is written here is what Java clients can read: snappy in the framing of the xerial library, LZ4 as a frame of
independent blocks. Both framings of snappy are read, as Java writes xerial's and librdkafka writes none.

    xerial: 82 "SNAPPY" 00 | version i32 | compatible version i32 | { length i32 | raw snappy block } ...
"""

import struct
from collections.abc import Callable
from typing import Final

import cramjam

from headwater.model.replica import Buffer
from headwater.records.batch import Codec, UnknownCodec

MAX_OUTPUT_BYTES: Final = 32 * 1024 * 1024
MAX_RATIO: Final = 256
"""Compressed logs and JSON stay below 50; only runs of one byte get past this."""
RATIO_FREE_BYTES: Final = 1024 * 1024
"""The ratio is not looked at below this size: a small batch of zeros is no bomb."""

_FIRST_GUESS_RATIO = 4
_GROWTH = 4
_SMALLEST_OUTPUT_BYTES = 4096

GZIP_LEVEL: Final = 6
LZ4_LEVEL: Final = 9
"""As in Kafka, the default stands for the fast compressor; every other level is one of the thorough one."""
ZSTD_LEVEL: Final = 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_MAX_RATIO = 22
"""The densest element of snappy turns 3 bytes into 64, so a larger claim is a lie."""
_INT32 = struct.Struct(">i")


class CorruptCompression(Exception):
    """The bytes are not what the codec writes."""


class DecompressedTooLarge(Exception):
    """The data unpacks to more than the limit."""


def decompress(codec: int, data: Buffer, max_output_bytes: int = MAX_OUTPUT_BYTES, max_ratio: int = MAX_RATIO) -> bytes:
    """The original bytes, or CorruptCompression, or DecompressedTooLarge when they would be more than the limits."""
    limit = min(max_output_bytes, max(len(data) * max_ratio, RATIO_FREE_BYTES))
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _unpack(cramjam.gzip.decompress_into, data, limit)
        case Codec.SNAPPY:
            return _unpack_snappy(data, limit)
        case Codec.LZ4:
            return _unpack(cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            return _unpack(cramjam.zstd.decompress_into, data, limit)
    raise UnknownCodec(f"compression codec {codec} does not exist")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`level` is one of the codec; None: its default. Snappy has none."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL if level is None else level))
        case Codec.SNAPPY:
            return _pack_xerial(data)
        case Codec.LZ4:
            # One-shot compression links the blocks, which Java refuses to read. The streaming one takes bytes only.
            thorough = None if level == LZ4_LEVEL else level
            frame = cramjam.lz4.Compressor(level=thorough, block_linked=False, content_checksum=False)
            frame.compress(bytes(data))
            return bytes(frame.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))
    raise UnknownCodec(f"compression codec {codec} does not exist")


def _words_of_overflow() -> str:
    """The error text of this release of the library for output that does not fit into its buffer."""
    packed = bytes(cramjam.gzip.compress(b"two bytes or more"))
    try:
        cramjam.gzip.decompress_into(packed, bytearray(1))
    except cramjam.DecompressionError as error:
        return str(error)
    raise AssertionError("a decompressor that writes past its buffer must not be used")


_OVERFLOW = _words_of_overflow()


def _unpack(unpack_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int) -> bytes:
    room = min(limit, max(len(data) * _FIRST_GUESS_RATIO, _SMALLEST_OUTPUT_BYTES))
    while True:
        output = bytearray(room)
        try:
            written = unpack_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OVERFLOW:
                raise CorruptCompression(str(error)) from error
            if room == limit:
                raise DecompressedTooLarge(f"{len(data)} bytes unpack to more than {limit}") from error
            room = min(limit, room * _GROWTH)
        else:
            with memoryview(output) as view:
                return bytes(view[:written])


def _unpack_snappy(data: Buffer, limit: int) -> bytes:
    with memoryview(data) as view:
        if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
            return _unpack_snappy_block(view, limit)
        if len(view) < len(_XERIAL_HEADER):
            raise CorruptCompression("xerial header is cut off")
        blocks = []
        room = limit
        position = len(_XERIAL_HEADER)
        while position < len(view):
            if len(view) - position < _INT32.size:
                raise CorruptCompression("length of a xerial block is cut off")
            (block_bytes,) = _INT32.unpack_from(view, position)
            position += _INT32.size
            if not 0 < block_bytes <= len(view) - position:
                raise CorruptCompression(f"xerial block of {block_bytes} bytes, {len(view) - position} are left")
            block = _unpack_snappy_block(view[position : position + block_bytes], room)
            room -= len(block)
            blocks.append(block)
            position += block_bytes
        return b"".join(blocks)


def _unpack_snappy_block(block: memoryview, limit: int) -> bytes:
    try:
        claimed: int = cramjam.snappy.decompress_raw_len(block)
        if claimed > len(block) * _SNAPPY_MAX_RATIO:
            raise CorruptCompression(f"{len(block)} bytes of snappy cannot become {claimed}")
        if claimed > limit:
            raise DecompressedTooLarge(f"{len(block)} bytes unpack to {claimed}, {limit} are allowed")
        output = bytearray(claimed)
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise CorruptCompression(str(error)) from error
    if written != claimed:
        raise CorruptCompression(f"snappy block claimed {claimed} bytes and had {written}")
    return bytes(output)


def _pack_xerial(data: Buffer) -> bytes:
    parts = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
            parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)
