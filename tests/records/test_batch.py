"""The header of a batch: read, checked, stamped."""

import struct
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.records import batch
from headwater.records.batch import (
    CONTROL,
    HEADER,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    OldMessageFormat,
    UnknownCodec,
)

ONE_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])


def a_batch(payload: bytes = ONE_RECORD, **fields: int) -> bytearray:
    """A batch with the right length and CRC, whatever else its header says."""
    header = {
        "base_offset": 0,
        "batch_length": HEADER_BYTES - 12 + len(payload),
        "partition_leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": 0,
        "base_timestamp": 1_000,
        "max_timestamp": 1_000,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": 1,
        **fields,
    }
    raw = bytearray(HEADER.pack(*header.values())) + payload
    struct.pack_into(">I", raw, 17, fields.get("crc", crc32c.crc32c(bytes(raw[21:]))))
    return raw


def test_every_field_is_read_from_where_it_is_drawn() -> None:
    fields: dict[str, Any] = {
        "base_offset": 1 << 40,
        "partition_leader_epoch": 7,
        "attributes": 0x7B,
        "last_offset_delta": 4,
        "base_timestamp": 11,
        "max_timestamp": 12,
        "producer_id": 13,
        "producer_epoch": 14,
        "base_sequence": 15,
        "record_count": 5,
    }
    header = batch.parse_header(b"xyz" + a_batch(**fields), 3)
    assert {name: getattr(header, name) for name in fields} == fields
    assert header.last_offset == (1 << 40) + 4
    assert header.size_bytes == HEADER_BYTES + len(ONE_RECORD)
    assert header.compression == 3
    assert header.is_control and header.is_transactional
    assert header.uses_log_append_time and header.has_delete_horizon
    assert header.is_idempotent


def test_stamping_keeps_the_checksum() -> None:
    raw = bytearray(b"..") + a_batch()
    batch.stamp(raw, 2, base_offset=77, leader_epoch=5)
    header = batch.parse_header(raw, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (77, 5)
    batch.check_crc(raw, header, 2)


def test_log_append_time_changes_the_checksum_and_the_max_timestamp_only() -> None:
    raw = a_batch(attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0)
    before = batch.parse_header(raw)
    batch.stamp_log_append_time(memoryview(raw), 0, 99_999)
    header = batch.validate(raw)
    assert header.uses_log_append_time
    assert header == before._replace(attributes=before.attributes | 8, max_timestamp=99_999, crc=header.crc)


def test_batches_back_to_back_are_split_without_copying() -> None:
    raw = a_batch(base_offset=0) + a_batch(base_offset=1) + a_batch(b"longer" * 3, base_offset=2)
    batches = batch.split(raw)
    assert [header.base_offset for header, _ in batches] == [0, 1, 2]
    assert b"".join(view for _, view in batches) == raw
    assert all(view.obj is raw for _, view in batches)
    assert [header for header, _ in batches] == list(batch.headers(raw))
    assert batch.split(b"") == []


@pytest.mark.parametrize("cut", range(1, HEADER_BYTES + len(ONE_RECORD)))
def test_a_batch_that_is_cut_off_is_corrupt(cut: int) -> None:
    whole = a_batch()
    with pytest.raises(CorruptBatch):
        list(batch.headers(whole + whole[:cut]))
    with pytest.raises(CorruptBatch):
        batch.validate(whole[:cut])


@pytest.mark.parametrize("magic", [0, 1])
def test_the_old_message_formats_are_told_apart_from_damage(magic: int) -> None:
    old = struct.pack(">qiIb", 0, 20, 0, magic) + bytes(15)
    with pytest.raises(OldMessageFormat):
        batch.validate(old)
    with pytest.raises(OldMessageFormat):
        batch.validate(old + bytes(100))


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 3},
        {"magic": -1},
        {"batch_length": 48},
        {"batch_length": -1},
        {"batch_length": -(1 << 31)},
        {"batch_length": (1 << 31) - 1},
        {"last_offset_delta": -1},
        {"record_count": -1},
        {"crc": 12345},
    ],
)
def test_impossible_headers_are_corrupt(fields: dict[str, Any]) -> None:
    with pytest.raises(CorruptBatch) as caught:
        batch.validate(a_batch(**fields))
    assert not isinstance(caught.value, OldMessageFormat)


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 0},
        {"record_count": 2},
        {"last_offset_delta": 1},
        {"record_count": 2, "last_offset_delta": 1},
        {"attributes": CONTROL},
        {"attributes": TRANSACTIONAL},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
        {"producer_id": 5, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
    ],
)
def test_a_producer_may_not_say_this(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidBatch):
        batch.validate(a_batch(**fields))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_has_a_refusal_of_its_own(codec: int) -> None:
    with pytest.raises(UnknownCodec):
        batch.validate(a_batch(attributes=codec))


def test_none_or_two_batches_are_not_one() -> None:
    with pytest.raises(InvalidBatch):
        batch.validate(b"")
    with pytest.raises(InvalidBatch):
        batch.validate(a_batch() + a_batch())


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((CorruptBatch, InvalidBatch)):
        batch.validate(data)


@given(st.integers(0, (HEADER_BYTES + len(ONE_RECORD)) * 8 - 1))
def test_a_flipped_bit_never_goes_unnoticed_below_the_checksum(bit: int) -> None:
    raw = a_batch()
    raw[bit // 8] ^= 1 << bit % 8
    if 8 <= bit // 8 < 12 or bit // 8 >= 16:
        with pytest.raises((CorruptBatch, InvalidBatch)):
            batch.validate(raw)
    else:
        assert isinstance(batch.validate(raw), BatchHeader)
