"""Fetched batches as Arrow: what the pure Python reader says of them, of any shape, whole or cut, sound or hostile."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.pipelines.source.decoding import decoder, record_starts
from headwater.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    Codec,
    CorruptBatch,
    UnknownCodec,
    seal_crc,
    split,
)
from headwater.records.build import assemble, build_batch
from headwater.records.compression import DecompressedTooLarge
from headwater.records.record import Record, records, write_record, write_varint
from tests.pipelines.arrow_rows import PARTITION, SCHEMA, TOPIC, as_records, tables

T0 = 1_700_000_000_000

some_bytes = st.none() | st.binary(max_size=300)
a_record = st.builds(
    Record,
    key=some_bytes,
    value=some_bytes,
    headers=st.lists(st.tuples(st.text(max_size=100), some_bytes), max_size=3).map(tuple),
    timestamp=st.integers(0, 1 << 45),
)
a_batch = st.tuples(st.lists(a_record, min_size=1, max_size=8), st.sampled_from(Codec), st.integers(0, 1 << 40))
together = st.sampled_from([1, record_starts.FEW_BATCHES])
"""From how many batches on they are walked over together: always, or as in earnest."""
few = settings(max_examples=60, deadline=None)


def laid_out(batches: list[tuple[list[Record], Codec, int]]) -> bytes:
    """Batches one after the other, with gaps between their offsets."""
    out = bytearray()
    offset = 0
    for given_records, codec, gap in batches:
        offset += gap
        out += build_batch(given_records, base_offset=offset, compression=codec)
        offset += len(given_records)
    return bytes(out)


@contextmanager
def walking(few_batches: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_starts, "FEW_BATCHES", few_batches)
        yield


def read_by_python(fetched: bytes) -> list[Record]:
    return [record for header, batch in split(fetched) for record in records(batch, header)]


@few
@given(st.lists(a_batch, min_size=1, max_size=6), together)
def test_rows_are_those_of_the_python_reader(batches: list[tuple[list[Record], Codec, int]], few_batches: int) -> None:
    fetched = laid_out(batches)
    with walking(few_batches):
        assert as_records(tables(fetched)) == read_by_python(fetched)


def test_records_of_any_length_are_found_in_many_batches() -> None:
    lengths = [1, 50, 63, 64, 5_000, 8_100, 8_200, 70_000, 3]
    batches = [
        ([Record(None, bytes(lengths[(start + i) % 9])) for i in range(start % 7 + 1)], Codec.NONE, start % 3)
        for start in range(3 * record_starts.FEW_BATCHES)
    ]
    fetched = laid_out(batches)
    assert as_records(tables(fetched)) == read_by_python(fetched)


@few
@given(st.lists(a_batch, min_size=1, max_size=4), st.data())
def test_a_range_cuts_the_first_and_the_last_batch(
    batches: list[tuple[list[Record], Codec, int]], data: st.DataObject
) -> None:
    fetched = laid_out(batches)
    expected = read_by_python(fetched)
    bound = st.integers(0, expected[-1].offset + 2)
    start, end = sorted((data.draw(bound), data.draw(bound)))
    assert as_records(tables(fetched, start, end)) == [record for record in expected if start <= record.offset < end]


@few
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=5), st.booleans())
@example([-1], False)
def test_times_that_microseconds_do_not_reach_become_the_last_ones(timestamps: list[int], is_append_time: bool) -> None:
    payload = bytearray()
    for index, timestamp in enumerate(timestamps):
        write_record(payload, Record(None, b"", ()), (timestamp + (1 << 63)) % (1 << 64) - (1 << 63), index)
    attributes = LOG_APPEND_TIME if is_append_time else 0
    fetched = bytes(assemble(payload, a_header(len(timestamps), attributes=attributes, max_timestamp=T0)))
    last_ms = (2**63 - 1) // 1000
    expected = [min(max(record.timestamp, -last_ms), last_ms) for record in read_by_python(fetched)]
    assert [record.timestamp for record in as_records(tables(fetched))] == expected


def a_header(count: int, last_delta: int | None = None, **fields: int) -> BatchHeader:
    known = {
        "base_offset": 0,
        "batch_length": 0,
        "partition_leader_epoch": 0,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": count - 1 if last_delta is None else last_delta,
        "base_timestamp": 0,
        "max_timestamp": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": count,
    }
    return BatchHeader(**(known | fields))


def test_every_column_has_its_value() -> None:
    fetched = build_batch([Record(b"k", b"v", (("trace", b"1"), ("trace", None)), T0)], base_offset=7)
    (batch,) = tables(bytes(fetched))
    assert batch.schema == SCHEMA
    (row,) = batch.to_pylist()
    assert row.pop("timestamp").timestamp() * 1000 == T0
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": TOPIC,
        "partition": PARTITION,
        "offset": 7,
        "timestampType": 0,
        "headers": [{"key": "trace", "value": b"1"}, {"key": "trace", "value": None}],
    }


def test_append_time_is_the_time_of_every_record() -> None:
    payload = bytearray()
    for index in range(3):
        write_record(payload, Record(None, b"v"), index, index)
    header = a_header(3, attributes=LOG_APPEND_TIME, base_timestamp=T0, max_timestamp=T0 + 500)
    (batch,) = tables(bytes(assemble(payload, header)))
    assert batch["timestampType"].to_pylist() == [1, 1, 1]
    assert [record.timestamp for record in as_records([batch])] == [T0 + 500] * 3


def test_records_without_headers_have_null() -> None:
    fetched = build_batch([Record(None, b"a"), Record(None, b"b", (("h", b""),))])
    (batch,) = tables(bytes(fetched))
    assert batch["headers"].to_pylist() == [None, [{"key": "h", "value": b""}]]


def test_a_header_key_that_is_not_utf8_is_shown_with_replacements() -> None:
    fetched = build_batch([Record(None, b"", (("\udcff", b"v"),))])
    (batch,) = tables(bytes(fetched))
    assert batch["headers"].to_pylist() == [[{"key": "\ufffd", "value": b"v"}]]


def test_only_the_columns_of_the_schema_are_made() -> None:
    wanted = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
    (batch,) = tables(bytes(build_batch([Record(b"k", b"v")])), schema=wanted)
    assert batch.to_pylist() == [{"offset": 0, "value": b"v"}]


def test_batches_that_compaction_left_keep_their_offsets() -> None:
    payload = bytearray()
    for offset_delta in (2, 5, 9):
        write_record(payload, Record(b"k", b"v"), 0, offset_delta)
    fetched = bytes(assemble(payload, a_header(3, last_delta=11, base_offset=100)))
    assert [record.offset for record in as_records(tables(fetched))] == [102, 105, 109]


def test_many_rows_come_in_batches_that_spark_takes_well() -> None:
    count = 3 * decoder.MAX_ROWS // 2
    fetched = b"".join(
        bytes(build_batch([Record(None, b"v")] * 100, base_offset=offset)) for offset in range(0, count, 100)
    )
    found = tables(fetched)
    assert [batch.num_rows for batch in found] == [decoder.MAX_ROWS, decoder.MAX_ROWS // 2]
    assert [record.offset for record in as_records(found)] == list(range(count))


def test_what_many_compressed_batches_unpack_to_is_not_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "UNPACKED_BYTES", 1000)
    one = [Record(None, b"v" * 400)]
    fetched = b"".join(bytes(build_batch(one, base_offset=offset, compression=Codec.ZSTD)) for offset in range(7))
    assert [batch.num_rows for batch in tables(fetched)] == [3, 3, 1]


# Hostile bytes


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(a_record, min_size=1, max_size=3), min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=3),
    together,
)
@example([[Record(b"k", b"v", (("h", b"x"),))]], [(11, 0x80)], 1)
def test_hostile_records_are_read_or_refused_as_by_the_python_reader(
    batches: list[list[Record]], changes: list[tuple[int, int]], few_batches: int
) -> None:
    fetched = bytearray(laid_out([(given_records, Codec.NONE, 0) for given_records in batches]))
    _, last = split(bytes(fetched))[-1]
    start = len(fetched) - len(last)
    for place, byte in changes:
        fetched[start + HEADER_BYTES + place % (len(last) - HEADER_BYTES)] = byte
    seal_crc(fetched, start, len(last))
    try:
        expected = read_by_python(bytes(fetched))
    except CorruptBatch:
        with walking(few_batches), pytest.raises(CorruptBatch):
            tables(bytes(fetched))
    else:
        with walking(few_batches):
            found = as_records(tables(bytes(fetched)))
        for got, wanted in zip(found, expected, strict=True):
            assert got._replace(headers=(), timestamp=0) == wanted._replace(headers=(), timestamp=0)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_does_not_unpack_is_refused(codec: Codec) -> None:
    fetched = build_batch([Record(None, b"value " * 50)], compression=codec)
    fetched[HEADER_BYTES : HEADER_BYTES + 12] = b"\x00" * 12
    seal_crc(fetched, 0, len(fetched))
    with pytest.raises(CorruptBatch):
        tables(bytes(fetched))


def test_a_codec_that_does_not_exist_is_refused() -> None:
    fetched = build_batch([Record(None, b"v")])
    fetched[22] |= 7
    seal_crc(fetched, 0, len(fetched))
    with pytest.raises(UnknownCodec):
        tables(bytes(fetched))


def test_a_bomb_is_refused_and_costs_no_more_than_the_limit() -> None:
    bomb = bytes(build_batch([Record(None, bytes(60_000_000))], compression=Codec.GZIP))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            tables(bomb)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_a_length_without_end_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="varint"):
        tables(bytes(assemble(b"\xff" * 40, a_header(1))))


def test_a_record_count_that_is_made_up_costs_nothing() -> None:
    payload = bytearray()
    write_record(payload, Record(None, b"v"), 0, 0)
    with pytest.raises(CorruptBatch, match="2147483647 records do not fit"):
        tables(bytes(assemble(payload, a_header(2**31 - 1))))


def test_more_headers_than_bytes_are_refused() -> None:
    body = bytearray(b"\x00\x00\x00\x01\x01")
    write_varint(body, 2**30)
    payload = bytearray()
    write_varint(payload, len(body))
    payload += body
    with pytest.raises(CorruptBatch, match="headers"):
        tables(bytes(assemble(payload, a_header(1))))


def test_a_flipped_bit_is_found() -> None:
    fetched = bytes(build_batch([Record(None, b"v")], base_offset=5))
    with pytest.raises(CorruptBatch, match="checksum"):
        tables(fetched[:-1] + bytes([fetched[-1] ^ 1]))
