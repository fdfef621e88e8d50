"""Markers: bytes as other libraries know them, round trips, and bytes that are none."""

import struct

import kafka.record.default_records as kafka_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
    CorruptBatch,
    check_crc,
    parse_header,
    stamp,
    stamp_log_append_time,
)
from headwater.records.build import build_batch
from headwater.records.control import EndMarker, build_marker, read_marker
from headwater.records.record import Record, records

T0 = 1_700_000_000_000
COMMIT_KEY = struct.pack(">hh", 0, 1)
SOME_VALUE = struct.pack(">hi", 0, 3)


def control_batch(key: bytes | None, value: bytes | None, attributes: int = CONTROL | TRANSACTIONAL) -> bytearray:
    return build_batch([Record(key, value, timestamp=T0)], producer_id=7, producer_epoch=1, attributes=attributes)


def read(batch: bytearray) -> EndMarker:
    return read_marker(batch, parse_header(batch))


@given(st.booleans(), st.integers(-1, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_a_marker_is_read_as_it_was_built(is_commit: bool, coordinator_epoch: int, pid: int, epoch: int) -> None:
    marker = EndMarker(is_commit, coordinator_epoch)
    batch = build_marker(pid, epoch, marker, T0)
    header = parse_header(batch)
    check_crc(batch, header)
    assert read_marker(batch, header) == marker
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (pid, epoch, NO_SEQUENCE)
    assert (header.record_count, header.last_offset_delta, header.max_timestamp) == (1, 0, T0)


def test_the_bytes_are_those_of_kafka() -> None:
    (record,) = records(batch := build_marker(7, 1, EndMarker(True, 3), T0), parse_header(batch))
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\0\3")
    (record,) = records(batch := build_marker(7, 1, EndMarker(False, -1), T0), parse_header(batch))
    assert (record.key, record.value) == (b"\0\0\0\0", b"\0\0\xff\xff\xff\xff")


def test_another_library_knows_a_marker_from_records() -> None:
    for is_commit in (True, False):
        batch = build_marker(7, 1, EndMarker(is_commit, 3), T0)
        stamp(batch, 0, 40, 2)
        read_back = kafka_records.DefaultRecordBatch(bytes(batch))
        assert read_back.is_control_batch and read_back.is_transactional and read_back.validate_crc()
        (control,) = list(read_back)
        assert (control.offset, control.commit, control.abort) == (40, is_commit, not is_commit)


def test_offset_epoch_and_append_time_are_stamped_as_on_any_batch() -> None:
    batch = build_marker(7, 1, EndMarker(True, 3), T0)
    stamp_log_append_time(batch, 0, T0 + 5)
    stamp(batch, 0, 40, 2)
    header = parse_header(batch)
    check_crc(batch, header)
    assert header.attributes == CONTROL | TRANSACTIONAL | LOG_APPEND_TIME
    assert read_marker(batch, header) == EndMarker(True, 3)


def test_what_a_later_version_adds_is_passed_over() -> None:
    key, value = struct.pack(">hhq", 1, 1, 99), struct.pack(">hiq", 1, 3, 99)
    assert read(control_batch(key, value)) == EndMarker(True, 3)


@pytest.mark.parametrize(
    "batch",
    [
        control_batch(None, SOME_VALUE),
        control_batch(COMMIT_KEY, None),
        control_batch(COMMIT_KEY[:3], SOME_VALUE),
        control_batch(COMMIT_KEY, SOME_VALUE[:5]),
        control_batch(struct.pack(">hh", 0, 2), SOME_VALUE),
        control_batch(struct.pack(">hh", -1, 1), SOME_VALUE),
        control_batch(COMMIT_KEY, struct.pack(">hi", -1, 3)),
        control_batch(COMMIT_KEY, SOME_VALUE, TRANSACTIONAL),
        control_batch(COMMIT_KEY, SOME_VALUE, CONTROL | Codec.GZIP),
        build_batch([Record(COMMIT_KEY, SOME_VALUE)] * 2, attributes=CONTROL),
    ],
)
def test_what_is_no_marker_is_refused(batch: bytearray) -> None:
    with pytest.raises(CorruptBatch):
        read(batch)


@given(st.binary(max_size=60), st.integers(0, 3), st.integers(0, 127), st.integers(0, 2**31 - 1))
def test_hostile_bytes_raise_nothing_else(payload: bytes, count: int, attributes: int, delta: int) -> None:
    header = BatchHeader(0, 49 + len(payload), 0, 2, 0, attributes, delta, T0, T0, 7, 1, -1, count)
    try:
        marker = read_marker(bytes(61) + payload, header)
    except CorruptBatch:
        return
    assert isinstance(marker, EndMarker)
