"""Compaction against a naive model, and the rules for tombstones, producers and what cannot be read."""

from collections.abc import Sequence
from dataclasses import dataclass

import kafka.record.default_records as kafka_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.replica import Buffer
from headwater.records import batch
from headwater.records.batch import CONTROL, HEADER_BYTES, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, Codec
from headwater.records.build import assemble, build_batch
from headwater.records.compaction import OffsetMap, compact_batch, scan_batch
from headwater.records.control import EndMarker, build_marker, read_marker
from headwater.records.record import Record, records

T0 = 1_700_000_000_000
RETENTION_MS = 1_000
LONG_KEY = b"a key that is longer than its digest"

Log = Sequence[Buffer]


@dataclass(frozen=True)
class Producer:
    producer_id: int = 5
    producer_epoch: int = 1
    base_sequence: int = 40


def compacted(
    log: Log,
    *,
    now_ms: int = T0,
    max_entries: int = 1_000,
    last_of_producer: frozenset[int] = frozenset(),
    aborted: frozenset[int] = frozenset(),
    is_marker_needed: bool = True,
    max_output_bytes: int = 1 << 20,
) -> Log:
    """`last_of_producer` and `aborted` are last offsets of batches."""
    offsets = OffsetMap(max_entries)
    for raw in log:
        header = batch.parse_header(raw)
        if not scan_batch(raw, header, offsets, max_output_bytes, is_aborted=header.last_offset in aborted):
            break
    kept = [
        compact_batch(
            raw,
            header,
            offsets,
            is_last_batch_of_producer=header.last_offset in last_of_producer,
            now_ms=now_ms,
            delete_retention_ms=RETENTION_MS,
            is_aborted=header.last_offset in aborted,
            is_marker_needed=is_marker_needed,
            max_output_bytes=max_output_bytes,
        )
        for raw in log
        if (header := batch.parse_header(raw))
    ]
    result = [raw for raw in kept if raw is not None]
    for raw in result:
        batch.check_crc(raw, batch.parse_header(raw))
    return result


def contents(log: Log) -> list[Record]:
    return [record for raw in log for record in records(raw, batch.parse_header(raw))]


def naive(log: Log) -> list[Record]:
    """Of each key the last record, where it was."""
    last = {record.key: record.offset for record in contents(log)}
    return [record for record in contents(log) if record.key is not None and last[record.key] == record.offset]


keys = st.none() | st.sampled_from([b"", b"a", b"b", b"c", LONG_KEY, LONG_KEY + b"!"])
some_records = st.lists(
    st.builds(
        Record,
        key=keys,
        value=st.none() | st.binary(max_size=100),
        headers=st.sampled_from([(), (("h", b"x" * 70), ("i", None))]),
        timestamp=st.integers(T0 - 10_000, T0 + 10_000),
        offset=st.just(-1),
    ),
    min_size=1,
    max_size=12,
)


@st.composite
def a_log(draw: st.DrawFn) -> Log:
    log: list[Buffer] = []
    offset = draw(st.integers(0, 1 << 40))
    for made in draw(st.lists(some_records, max_size=8)):
        raw = build_batch(made, base_offset=offset, compression=draw(st.sampled_from(Codec)))
        if draw(st.booleans()):
            batch.stamp_log_append_time(raw, 0, T0 + 77)
        log.append(bytes(raw))
        offset += len(made) + draw(st.integers(0, 3))
    return log


@settings(max_examples=60, deadline=None)
@given(a_log())
def test_of_each_key_the_last_record_stays_in_its_place(log: Log) -> None:
    assert contents(compacted(log)) == naive(log)


@settings(max_examples=50, deadline=None)
@given(a_log())
def test_compacting_again_changes_nothing(log: Log) -> None:
    once = compacted(log)
    again = compacted(once)
    assert len(again) == len(once)
    assert all(new is old for new, old in zip(again, once, strict=True))


@settings(max_examples=50, deadline=None)
@given(a_log())
def test_tombstones_go_when_their_time_has_come(log: Log) -> None:
    once = compacted(log)
    later = compacted(once, now_ms=T0 + RETENTION_MS)
    assert contents(later) == [record for record in naive(log) if record.value is not None]


@settings(max_examples=50, deadline=None)
@given(a_log(), st.integers(1, 4))
def test_a_full_map_leaves_the_state_of_every_key_as_it_was(log: Log, max_entries: int) -> None:
    def state(some: Log) -> dict[bytes, Record]:
        return {record.key: record for record in contents(some) if record.key is not None}

    round_of = log
    for _ in range(3):
        round_of = compacted(round_of, max_entries=max_entries)
        assert state(round_of) == state(log)
        offsets = [record.offset for record in contents(round_of)]
        assert offsets == sorted(offsets)


@settings(max_examples=50, deadline=None)
@given(a_log())
def test_headers_keep_what_others_rely_on(log: Log) -> None:
    before = {header.base_offset: header for raw in log if (header := batch.parse_header(raw))}
    for raw in compacted(log):
        after = batch.parse_header(raw)
        original = before[after.base_offset]
        assert after.last_offset == original.last_offset
        assert after.partition_leader_epoch == original.partition_leader_epoch
        assert after.compression == original.compression
        assert after.uses_log_append_time == original.uses_log_append_time
        made = [record.timestamp for record in records(raw, after)]
        assert after.max_timestamp == max(made)


def test_a_batch_that_loses_nothing_is_the_same_object() -> None:
    raw = bytes(build_batch([Record(b"a", b"1"), Record(b"b", b"2")]))
    assert compacted([raw])[0] is raw


def test_a_batch_that_loses_all_records_goes() -> None:
    log = [build_batch([Record(b"a", b"1")]), build_batch([Record(b"a", b"2")], base_offset=1)]
    assert [batch.parse_header(raw).base_offset for raw in compacted(log)] == [1]


@pytest.mark.parametrize("codec", list(Codec))
def test_the_last_batch_of_a_producer_stays_as_a_bare_header(codec: Codec) -> None:
    producer = Producer()
    first = build_batch([Record(b"a", None), Record(b"b", b"1")], timestamp=T0, compression=codec, **vars(producer))
    log = [first, build_batch([Record(b"a", b"2"), Record(b"b", b"2")], base_offset=2)]
    once = compacted(log, last_of_producer=frozenset({1}))
    header = batch.parse_header(once[0])
    assert header.size_bytes == HEADER_BYTES
    assert header.record_count == 0
    assert header.last_offset == 1
    assert header.max_timestamp == T0
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 40)
    assert header.attributes == 0
    assert compacted(once, last_of_producer=frozenset({1})) == once
    assert compacted(once) == once[1:]


def test_the_first_pass_sets_the_delete_horizon_and_later_ones_leave_it() -> None:
    log = [build_batch([Record(b"a", None, timestamp=T0 - 5), Record(b"b", b"1", timestamp=T0 + 5)])]
    once = compacted(log, now_ms=T0)
    header = batch.parse_header(once[0])
    assert header.has_delete_horizon
    assert header.base_timestamp == T0 + RETENTION_MS
    assert [record.timestamp for record in contents(once)] == [T0 - 5, T0 + 5]
    assert compacted(once, now_ms=T0 + RETENTION_MS - 1) == once
    after = compacted(once, now_ms=T0 + RETENTION_MS)
    assert [(record.key, record.offset, record.timestamp) for record in contents(after)] == [(b"b", 1, T0 + 5)]


def test_another_library_reads_what_is_left() -> None:
    made = [Record(b"k%d" % (n % 3), None if n == 8 else b"v", (("h", b"x"),), T0 + n) for n in range(9)]
    (raw,) = compacted([build_batch(made, base_offset=50, compression=Codec.GZIP)])
    theirs = kafka_records.DefaultRecordBatch(bytes(raw))
    assert theirs.validate_crc()
    assert theirs.last_offset == 58
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in theirs] == [
        (56, T0 + 6, b"k0", b"v", [("h", b"x")]),
        (57, T0 + 7, b"k1", b"v", [("h", b"x")]),
        (58, T0 + 8, b"k2", None, [("h", b"x")]),
    ]


def test_control_batches_are_neither_scanned_nor_changed() -> None:
    marker = build_batch([Record(b"\0\0\0\0", b"")], attributes=CONTROL, **vars(Producer(base_sequence=-1)))
    log = [marker, build_batch([Record(b"\0\0\0\0", b"x")], base_offset=1)]
    assert compacted(log)[0] is marker


def transactional(key: bytes, value: bytes, base_offset: int) -> bytearray:
    return build_batch(
        [Record(key, value, timestamp=T0)], base_offset=base_offset, attributes=TRANSACTIONAL, **vars(Producer())
    )


def a_marker(is_commit: bool = True, base_offset: int = 0) -> bytearray:
    raw = build_marker(5, 1, EndMarker(is_commit, 3), T0)
    batch.stamp(raw, 0, base_offset, 0)
    return raw


def test_records_of_aborted_transactions_go_and_replace_nothing() -> None:
    log = [
        transactional(b"a", b"old", 0),
        transactional(b"a", b"aborted", 1),
        transactional(b"b", b"aborted", 2),
        unreadable(3),
    ]
    found = compacted(log, aborted=frozenset({1, 2, 4}))
    assert [(record.key, record.value) for record in contents(found)] == [(b"a", b"old")]
    assert len(found) == 1


def test_an_aborted_batch_that_is_its_producers_last_stays_as_a_bare_header() -> None:
    (bare,) = compacted([transactional(b"a", b"x", 4)], last_of_producer=frozenset({4}), aborted=frozenset({4}))
    header = batch.parse_header(bare)
    assert (header.record_count, header.size_bytes, header.last_offset) == (0, HEADER_BYTES, 4)
    assert header.attributes == TRANSACTIONAL
    assert compacted([bare], last_of_producer=frozenset({4})) == [bare]
    assert compacted([bare]) == []


def test_aborted_batches_past_the_scanned_part_are_not_touched() -> None:
    log = [transactional(b"%d" % n, b"x", n) for n in range(5)]
    found = compacted(log, max_entries=2, aborted=frozenset({1, 4}))
    assert [record.offset for record in contents(found)] == [0, 2, 3, 4]


def test_a_marker_stays_while_it_is_wanted_and_goes_in_its_time_when_it_is_not() -> None:
    for is_commit in (True, False):
        log: Log = [a_marker(is_commit)]
        assert compacted(log, now_ms=T0 + 1_000 * RETENTION_MS)[0] is log[0]
        passing = compacted(log, is_marker_needed=False)
        header = batch.parse_header(passing[0])
        assert header.has_delete_horizon and header.base_timestamp == T0 + RETENTION_MS
        assert header.is_control and header.is_transactional and header.max_timestamp == T0
        assert read_marker(passing[0], header) == EndMarker(is_commit, 3)
        assert [record.timestamp for record in contents(passing)] == [T0]
        assert compacted(passing, is_marker_needed=False, now_ms=T0 + RETENTION_MS - 1)[0] is passing[0]
        assert compacted(passing, now_ms=T0 + RETENTION_MS)[0] is passing[0]
        assert compacted(passing, is_marker_needed=False, now_ms=T0 + RETENTION_MS) == []


def test_another_library_reads_a_marker_on_its_way_out() -> None:
    (raw,) = compacted([a_marker(False, base_offset=9)], is_marker_needed=False)
    theirs = kafka_records.DefaultRecordBatch(bytes(raw))
    assert theirs.validate_crc() and theirs.is_control_batch
    assert [(record.offset, record.abort) for record in theirs] == [(9, True)]


def test_a_control_batch_that_cannot_be_read_stays() -> None:
    header = batch.parse_header(a_marker())
    log: Log = [assemble(b"garbage", header)]
    assert compacted(log, is_marker_needed=False)[0] is log[0]


def test_records_past_the_scanned_part_are_not_touched() -> None:
    log = [build_batch([Record(key, b"1")], base_offset=n) for n, key in enumerate([b"a", b"b", b"a", b"c", b"a"])]
    log.append(build_batch([Record(None, b"no key")], base_offset=5))
    assert [record.offset for record in contents(compacted(log, max_entries=2))] == [1, 2, 3, 4, 5]


def test_a_map_that_fills_in_the_middle_of_a_batch_covers_the_records_before() -> None:
    raw = build_batch([Record(key, b"1") for key in [b"a", b"a", b"b", b"b", b"c", b"c"]])
    offsets = OffsetMap(2)
    assert not scan_batch(raw, batch.parse_header(raw), offsets)
    assert offsets.latest_offset == 3
    assert [record.offset for record in contents(compacted([raw], max_entries=2))] == [1, 3, 4, 5]


def test_a_scan_goes_on_in_the_middle_of_a_batch_larger_than_the_map() -> None:
    raw = build_batch([Record(b"%d" % n, b"1") for n in range(5)], base_offset=10)
    reached = []
    start = 0
    while start < 15:
        offsets = OffsetMap(2)
        scan_batch(raw, batch.parse_header(raw), offsets, start=start)
        start = offsets.latest_offset + 1
        reached.append(start)
    assert reached == [12, 14, 15]


def test_the_map_knows_long_keys_apart_and_has_a_limit() -> None:
    offsets = OffsetMap(3)
    assert offsets.add(LONG_KEY, 1) and offsets.add(LONG_KEY + b"!", 2) and offsets.add(b"", 3)
    assert not offsets.add(b"x", 4)
    assert offsets.add(b"", 5)
    assert [offsets.get(key) for key in (LONG_KEY, LONG_KEY + b"!", b"", b"x")] == [1, 2, 5, -1]
    assert len(offsets) == 3


def unreadable(base_offset: int) -> bytearray:
    header = batch.parse_header(build_batch([Record(b"a", b"1"), Record(b"b", b"1")], base_offset=base_offset))
    return assemble(bytes([14, 0, 0, 0, 2, 97, 1, 0]) + b"garbage", header)


def test_what_cannot_be_read_stays_and_replaces_nothing() -> None:
    log = [build_batch([Record(b"a", b"0")]), unreadable(1)]
    assert compacted(log) == log
    huge = build_batch([Record(b"a", bytes(5_000))], base_offset=1, compression=Codec.ZSTD)
    assert compacted([log[0], huge], max_output_bytes=4_000) == [log[0], huge]


def test_a_tombstone_stays_while_a_value_before_it_cannot_be_read() -> None:
    tombstone = compacted([build_batch([Record(b"a", None)], base_offset=3)])[0]
    much_later = T0 + 100 * RETENTION_MS
    assert compacted([tombstone], now_ms=much_later) == []
    assert compacted([unreadable(0), tombstone], now_ms=much_later)[1] is tombstone


@settings(max_examples=50, deadline=None)
@given(
    st.binary(max_size=60),
    st.integers(0, (1 << 31) - 1),
    st.integers(0, 4),
    st.sampled_from([0, LOG_APPEND_TIME, 0x40]),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_hostile_batches_raise_nothing(data: bytes, count: int, codec: int, flags: int, time: int) -> None:
    header = BatchHeader(0, 0, 0, 2, 0, flags | codec, max(0, count - 1), time, time, -1, -1, -1, count)
    log: Log = [assemble(data, header), build_batch([Record(b"a", None)], base_offset=count)]
    for raw in (log, [_with_codec(log[0], 1 + codec % 4), log[1]]):
        assert contents(compacted(raw)[-1:]) == [Record(b"a", None, offset=count)]


def _with_codec(raw: Buffer, codec: int) -> bytearray:
    """The same payload, said to be compressed otherwise."""
    changed = bytearray(raw)
    changed[22] = changed[22] & ~7 | codec
    batch.seal_crc(changed, 0, len(changed))
    return changed


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_timestamps_far_out_survive_the_horizon(first: int, second: int) -> None:
    made = [Record(b"a", None, timestamp=first), Record(b"b", b"", timestamp=second)]
    if -1 not in (first, second) and -(1 << 63) <= second - first < 1 << 63:
        log = [build_batch(made)]
        assert [record.timestamp for record in contents(compacted(log))] == [first, second]
