"""Records inside a batch: round trips with ourselves and with other libraries, hostile bytes."""

import contextlib
import tracemalloc

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.model.ids import NO_OFFSET
from headwater.records import batch
from headwater.records.batch import CONTROL, DELETE_HORIZON, HEADER_BYTES, Codec, CorruptBatch
from headwater.records.build import assemble, build_batch
from headwater.records.compression import DecompressedTooLarge
from headwater.records.record import (
    Record,
    keyless_records,
    payload,
    read_varint,
    records,
    wrap_int64,
    write_varint,
)

T0 = 1_700_000_000_000

some_bytes = st.none() | st.binary(max_size=200)
some_headers = st.lists(st.tuples(st.text(max_size=10), some_bytes), max_size=3).map(tuple)
a_record = st.builds(
    Record,
    key=some_bytes,
    value=some_bytes,
    headers=some_headers,
    timestamp=st.integers(0, 1 << 45),
    offset=st.just(NO_OFFSET),
)

few = settings(max_examples=30, deadline=None)


def decoded(raw: bytes | bytearray) -> list[Record]:
    return list(records(raw, batch.parse_header(raw)))


@few
@given(
    given_records=st.lists(a_record, min_size=1, max_size=20),
    codec=st.sampled_from(Codec),
    base_offset=st.integers(0, 1 << 60),
)
def test_records_come_back_with_offsets(given_records: list[Record], codec: Codec, base_offset: int) -> None:
    raw = build_batch(given_records, base_offset=base_offset, compression=codec)
    header = batch.validate(raw)
    assert header.max_timestamp == max(record.timestamp for record in given_records)
    assert list(records(raw, header)) == [
        record._replace(offset=base_offset + index) for index, record in enumerate(given_records)
    ]


def test_a_batch_says_what_it_was_built_with() -> None:
    raw = build_batch(
        [Record(b"k", b"v"), Record(None, None, timestamp=T0 + 5)],
        base_offset=9,
        timestamp=T0,
        producer_id=4,
        producer_epoch=3,
        base_sequence=2,
        partition_leader_epoch=1,
        attributes=CONTROL,
    )
    header = batch.parse_header(raw)
    batch.check_crc(raw, header)
    assert header == batch.BatchHeader(9, len(raw) - 12, 1, 2, header.crc, CONTROL, 1, T0, T0 + 5, 4, 3, 2, 2)
    assert [record.timestamp for record in decoded(raw)] == [T0, T0 + 5]


def test_log_append_time_is_the_time_of_every_record() -> None:
    raw = build_batch([Record(b"a", b"", timestamp=T0), Record(b"b", b"", timestamp=T0 + 1)])
    batch.stamp_log_append_time(raw, 0, 5_000)
    assert [record.timestamp for record in decoded(raw)] == [5_000, 5_000]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@few
@given(given_records=st.lists(a_record, min_size=1, max_size=8))
def test_kafka_python_reads_ours_and_we_read_its(codec: Codec, given_records: list[Record]) -> None:
    theirs = kafka_records.DefaultRecordBatch(bytes(build_batch(given_records, base_offset=70, compression=codec)))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == [
        (70 + index, r.timestamp, r.key, r.value, r.headers) for index, r in enumerate(given_records)
    ]
    builder = kafka_records.DefaultRecordBatchBuilder(2, codec, False, 8, 1, 5, 1 << 20)
    for index, r in enumerate(given_records):
        builder.append(index, r.timestamp, r.key, r.value, list(r.headers))
    raw = bytes(builder.build())
    assert batch.validate(raw).base_sequence == 5
    assert [r._replace(offset=NO_OFFSET) for r in decoded(raw)] == given_records


@pytest.mark.parametrize("codec", list(Codec))
@few
@given(given_records=st.lists(a_record, min_size=1, max_size=8))
def test_aiokafka_reads_ours_and_we_read_its(codec: Codec, given_records: list[Record]) -> None:
    theirs = aiokafka_records.DefaultRecordBatch(bytes(build_batch(given_records, base_offset=70, compression=codec)))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == [
        (70 + index, r.timestamp, r.key, r.value, r.headers) for index, r in enumerate(given_records)
    ]
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, codec, 0, 8, 1, 5, 1 << 20)
    for index, r in enumerate(given_records):
        builder.append(index, r.timestamp, r.key, r.value, list(r.headers))
    raw = bytes(builder.build())
    assert batch.validate(raw).producer_epoch == 1
    assert [r._replace(offset=NO_OFFSET) for r in decoded(raw)] == given_records


@pytest.mark.parametrize("codec", list(Codec))
def test_records_without_a_key_are_counted_out(codec: Codec) -> None:
    raw = build_batch(
        [Record(b"a", b"1"), Record(None, b"2"), Record(b"", b"3"), Record(None, None)], compression=codec
    )
    assert keyless_records(raw, batch.validate(raw)) == [1, 3]


def test_a_header_key_that_is_no_text_survives() -> None:
    odd = Record(b"k", b"v", ((b"\xff\xfe".decode("utf-8", "surrogateescape"), b"x"),), T0)
    assert decoded(build_batch([odd])) == [odd._replace(offset=0)]


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@example(0)
@example(-1)
@example((1 << 63) - 1)
@example(-(1 << 63))
def test_varints_come_back(value: int) -> None:
    output = bytearray()
    write_varint(output, value)
    assert read_varint(bytes(output), 0, 10) == (value, len(output))


def test_a_varint_that_does_not_end_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        read_varint(b"\xff" * 11, 0, 10)


def test_timestamps_far_out_wrap_as_in_the_clients() -> None:
    assert wrap_int64((1 << 63) + 1) == -(1 << 63) + 1
    assert wrap_int64(-(1 << 63) - 1) == (1 << 63) - 1


def a_payload(data: bytes, count: int = 1, last_offset_delta: int = 0) -> bytearray:
    header = batch.parse_header(build_batch([Record(None, None)]))
    return assemble(data, header._replace(record_count=count, last_offset_delta=last_offset_delta))


@pytest.mark.parametrize(
    "data",
    [
        bytes([14, 0, 0, 0, 1, 1, 0]),  # longer than what is left
        bytes([10, 0, 0, 0, 1, 1, 0]),  # no room for the header count
        bytes([1, 0, 0, 0, 1, 1, 0]),  # negative length
        bytes([12, 0, 0, 0, 3, 1, 0]),  # key length -2
        bytes([12, 0, 0, 0, 1, 3, 0]),  # value length -2
        bytes([12, 0, 0, 2, 1, 1, 0]),  # offset past the header's last
        bytes([12, 0, 0, 1, 1, 1, 0]),  # negative offset
        bytes([12, 0, 0, 0, 40, 1, 0]),  # key past the end
        bytes([12, 0, 0, 0, 1, 40, 0]),  # value past the end
        bytes([12, 0, 0, 0, 1, 1, 2]),  # one header, no bytes
        bytes([12, 0, 0, 0, 1, 1, 1]),  # -1 headers
        bytes([14, 0, 0, 0, 1, 1, 0, 0]),  # bytes after the headers
        bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]),  # header without a key
        bytes([16, 0, 0, 0, 1, 1, 2, 0, 2]),  # header value past the end
        bytes([12, 0, 0, 0, 1, 1, 0, 0]),  # bytes after the record
        b"\xff\xff\xff\xff\x0f\x00\x00\x00\x01\x01\x00",  # length of two gibibytes
        bytes([20, 0, 0, 0, 1, 1]) + b"\xfe\xff\xff\xff\x0f",  # 2^31 headers
        b"",
    ],
)
def test_lies_inside_a_record_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decoded(a_payload(data))


def test_offsets_must_rise() -> None:
    twice = bytes([12, 0, 0, 0, 1, 1, 0]) * 2
    with pytest.raises(CorruptBatch):
        decoded(a_payload(twice, count=2, last_offset_delta=1))


def test_a_made_up_count_takes_neither_time_nor_memory() -> None:
    raw = a_payload(bytes([12, 0, 0, 0, 1, 1, 0]), count=(1 << 31) - 1, last_offset_delta=(1 << 31) - 2)
    header = batch.parse_header(raw)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            keyless_records(raw, header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("codec", list(Codec))
@few
@given(position=st.integers(0, 1 << 16), flip=st.integers(1, 255))
def test_flipped_bytes_raise_nothing_but_our_exceptions(codec: Codec, position: int, flip: int) -> None:
    raw = build_batch(
        [Record(b"key", b"value" * 9, (("h", b"1"), ("i", None)), T0 + index) for index in range(4)], compression=codec
    )
    raw[HEADER_BYTES + position % (len(raw) - HEADER_BYTES)] ^= flip
    with contextlib.suppress(CorruptBatch, DecompressedTooLarge):
        decoded(raw)


@given(data=st.binary(max_size=100), count=st.integers(0, (1 << 31) - 1))
def test_arbitrary_payloads_raise_nothing_but_our_exceptions(data: bytes, count: int) -> None:
    with contextlib.suppress(CorruptBatch):
        decoded(a_payload(data, count, last_offset_delta=max(0, count - 1)))


def test_every_cut_is_noticed() -> None:
    raw = build_batch([Record(b"key", b"value", (("h", b"1"),), T0 + index) for index in range(3)])
    header = batch.parse_header(raw)
    for cut in range(HEADER_BYTES, len(raw)):
        with pytest.raises(CorruptBatch):
            list(records(raw[:cut], header))
        with pytest.raises(CorruptBatch):
            list(records(raw[:cut], header._replace(batch_length=cut - 12)))


def test_an_empty_batch_has_no_records() -> None:
    header = batch.parse_header(build_batch([Record(b"k", b"v")]))
    empty = assemble(b"", header._replace(record_count=0, attributes=DELETE_HORIZON))
    assert decoded(empty) == []
    assert payload(empty, batch.parse_header(empty)) == b""


def test_a_batch_that_unpacks_too_far_is_left_to_the_caller() -> None:
    raw = build_batch([Record(b"k", bytes(10_000))], compression=Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge):
        keyless_records(raw, batch.validate(raw), max_output_bytes=5_000)
