"""Codecs: round trips, what other libraries wrote and read, hostile bytes, bombs."""

import contextlib
import gzip
import struct
import subprocess
import sys

import aiokafka.codec
import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.records.batch import Codec, UnknownCodec
from headwater.records.compression import (
    LZ4_LEVEL,
    RATIO_FREE_BYTES,
    CorruptCompression,
    DecompressedTooLarge,
    compress,
    decompress,
)

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MEBIBYTE = 1024 * 1024

few = settings(max_examples=40, deadline=None)

ENCODERS = {
    Codec.GZIP: aiokafka.codec.gzip_encode,
    Codec.SNAPPY: aiokafka.codec.snappy_encode,
    Codec.LZ4: aiokafka.codec.lz4_encode,
    Codec.ZSTD: aiokafka.codec.zstd_encode,
}
DECODERS = {
    Codec.GZIP: gzip.decompress,
    Codec.SNAPPY: aiokafka.codec.snappy_decode,
    Codec.LZ4: aiokafka.codec.lz4_decode,
    Codec.ZSTD: aiokafka.codec.zstd_decode,
}


def bomb(codec: Codec, size_bytes: int) -> bytes:
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(bytes(size_bytes)))
    module = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec]
    return bytes(module.compress(bytes(size_bytes), level=1))


@pytest.mark.parametrize("codec", list(Codec))
@few
@given(data=st.one_of(st.binary(max_size=2_000), st.builds(lambda part: part * 5_000, st.binary(max_size=50))))
def test_what_is_packed_unpacks(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(bytearray(data))))) == data


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("data", [b"a", b"some text " * 20_000, bytes(range(256)) * 700])
def test_other_libraries_read_ours_and_we_read_theirs(codec: Codec, data: bytes) -> None:
    assert bytes(DECODERS[codec](compress(codec, data))) == data
    assert decompress(codec, bytes(ENCODERS[codec](data))) == data


def test_snappy_without_framing_is_read_as_librdkafka_writes_it() -> None:
    data = b"raw snappy " * 10_000
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_snappy_is_framed_as_the_java_client_expects() -> None:
    packed = compress(Codec.SNAPPY, b"x" * 40_000)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (first,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == b"x" * 32 * 1024


def test_lz4_is_a_frame_of_independent_blocks_as_the_java_client_demands() -> None:
    packed = compress(Codec.LZ4, b"some text " * 50_000)
    assert packed[:4] == bytes.fromhex("04224d18")
    version, is_independent, has_content_size = packed[4] >> 6, packed[4] >> 5 & 1, packed[4] >> 3 & 1
    assert (version, is_independent, has_content_size) == (1, 1, 0)


def test_several_frames_in_a_row_are_one_stream() -> None:
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        assert decompress(codec, compress(codec, b"one") + compress(codec, b"two")) == b"onetwo"


@pytest.mark.parametrize("codec", PACKED)
def test_the_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, b"0123456789" * 1_000)
    assert len(decompress(codec, packed, max_output_bytes=10_000)) == 10_000
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, max_output_bytes=9_999)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_the_ratio_counts_for_large_outputs_only(codec: Codec) -> None:
    small = compress(codec, bytes(RATIO_FREE_BYTES))
    assert decompress(codec, small, max_ratio=2) == bytes(RATIO_FREE_BYTES)
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, compress(codec, bytes(4 * RATIO_FREE_BYTES)), max_ratio=2)


@pytest.mark.parametrize("codec", PACKED)
@few
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_unpacked(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(CorruptCompression, DecompressedTooLarge):
        decompress(codec, data, max_output_bytes=MEBIBYTE)


@pytest.mark.parametrize("codec", PACKED)
@few
@given(position=st.integers(0, 10_000), flip=st.integers(1, 255), cut=st.integers(0, 100))
def test_damage_is_refused_or_unpacked(codec: Codec, position: int, flip: int, cut: int) -> None:
    packed = bytearray(compress(codec, b"the quick brown fox " * 30))
    packed[position % len(packed)] ^= flip
    with contextlib.suppress(CorruptCompression, DecompressedTooLarge):
        decompress(codec, packed[: len(packed) - cut], max_output_bytes=MEBIBYTE)


@pytest.mark.parametrize("codec", PACKED)
def test_a_stream_that_is_cut_off_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, b"the quick brown fox " * 30)
    for cut in range(1, len(packed) - 17):
        with pytest.raises(CorruptCompression):
            decompress(codec, packed[:-cut])


@pytest.mark.parametrize(
    "data",
    [
        b"\x82SNAPPY\x00\x00",
        compress(Codec.SNAPPY, b"") + b"\x00\x00",
        compress(Codec.SNAPPY, b"") + struct.pack(">i", -1),
        compress(Codec.SNAPPY, b"") + struct.pack(">i", 0),
        compress(Codec.SNAPPY, b"") + struct.pack(">i", 100) + b"short",
        b"\xff\xff\xff\xff\x0f",
    ],
)
def test_lies_in_snappy_lengths_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCompression):
        decompress(Codec.SNAPPY, data)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(UnknownCodec):
        decompress(5, b"")
    with pytest.raises(UnknownCodec):
        compress(7, b"")


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: Codec) -> None:
    script = """
import resource, sys
from headwater.records.compression import DecompressedTooLarge, decompress
data = sys.stdin.buffer.read()
decompress(4, bytes.fromhex("28b52ffd2000010000"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(int(sys.argv[1]), data, max_output_bytes=4 << 20, max_ratio=1 << 30)
except DecompressedTooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(int(codec))],
        input=bomb(codec, 96 * MEBIBYTE),
        capture_output=True,
        check=True,
    )
    grown_kib = int(ran.stdout)
    assert grown_kib < 16 * 1024, f"{grown_kib} KiB more for a limit of 4 MiB"


@pytest.mark.parametrize(
    ("codec", "quick", "thorough"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, -50, 19)]
)
def test_a_level_is_the_codec_s_own(codec: Codec, quick: int, thorough: int) -> None:
    data = b"".join(b'{"order": %d, "customer": "c%d"}' % (number, number % 97) for number in range(5_000))
    small, large = (compress(codec, data, level) for level in (thorough, quick))
    assert len(small) < len(large)
    assert decompress(codec, small) == decompress(codec, large) == data


def test_the_default_level_of_lz4_is_the_fast_compressor() -> None:
    data = bytes(range(256)) * 200
    assert compress(Codec.LZ4, data, LZ4_LEVEL) == compress(Codec.LZ4, data)
