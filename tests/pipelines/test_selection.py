"""Which of the fetched batches are read: by range, by kind, and by how their transactions ended."""

import pytest

from headwater.pipelines.source.decoding.selection import select_batches
from headwater.records.batch import TRANSACTIONAL, CorruptBatch, OldMessageFormat, stamp
from headwater.records.build import build_batch
from headwater.records.control import EndMarker, build_marker
from headwater.records.record import Record

T0 = 1_700_000_000_000
EVERYTHING = 2**62


def batch(offset: int, count: int = 1, producer_id: int = -1) -> bytes:
    """A batch, of a transaction if it has a producer."""
    records = [Record(None, b"v", timestamp=T0)] * count
    if producer_id < 0:
        return bytes(build_batch(records, base_offset=offset))
    transaction = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    return bytes(build_batch(records, base_offset=offset, **transaction))


def marker(offset: int, producer_id: int, is_commit: bool) -> bytes:
    raw = build_marker(producer_id, 0, EndMarker(is_commit, 0), T0)
    stamp(raw, 0, offset, 0)
    return bytes(raw)


def selected(
    fetched: bytes, start: int = 0, end: int = EVERYTHING, aborted: list[tuple[int, int]] | None = None
) -> tuple[list[int], int]:
    """The base offsets of the selected batches, and what to fetch next."""
    selection = select_batches(fetched, start, end, aborted)
    return [one.header.base_offset for one in selection.batches], selection.next_offset


def test_batches_before_the_start_are_passed_over() -> None:
    fetched = batch(0, 10) + batch(10, 10) + batch(20, 10)
    assert selected(fetched, start=15) == ([10, 20], 30)


def test_nothing_is_read_beyond_the_end() -> None:
    fetched = batch(0, 10) + batch(10, 10) + batch(20, 10)
    assert selected(fetched, end=20) == ([0, 10], 20)


def test_a_gap_that_reaches_over_the_end_ends_the_range() -> None:
    assert selected(batch(0, 10) + batch(50, 10), end=20) == ([0], 20)


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    fetched = batch(0, 10) + batch(10, 10)
    assert selected(fetched[:-1]) == ([0], 10)
    assert selected(fetched[:-1][: len(batch(0, 10)) + 20]) == ([0], 10)
    assert selected(batch(0, 10)[:-1]) == ([], 0)


def test_markers_take_offsets_but_are_not_read() -> None:
    fetched = batch(0, 2, producer_id=7) + marker(2, 7, is_commit=True)
    assert selected(fetched, aborted=[]) == ([0], 3)


def test_a_reader_of_uncommitted_data_reads_what_was_aborted() -> None:
    fetched = batch(0, 2, producer_id=7) + marker(2, 7, is_commit=False) + batch(3)
    assert selected(fetched, aborted=None) == ([0, 3], 4)


def test_an_aborted_transaction_is_left_out_up_to_its_marker() -> None:
    fetched = (
        batch(0, producer_id=7)
        + batch(1, producer_id=8)
        + batch(2)
        + batch(3, producer_id=7)
        + marker(4, 7, is_commit=False)
        + batch(5, producer_id=7)
        + marker(6, 8, is_commit=True)
    )
    assert selected(fetched, aborted=[(7, 0)]) == ([1, 2, 5], 7)


def test_the_same_producer_can_abort_twice() -> None:
    fetched = (
        batch(0, producer_id=7)
        + marker(1, 7, is_commit=False)
        + batch(2, producer_id=7)
        + marker(3, 7, is_commit=True)
        + batch(4, producer_id=7)
        + marker(5, 7, is_commit=False)
    )
    assert selected(fetched, aborted=[(7, 4), (7, 0)]) == ([2], 6)


def test_a_transaction_that_began_before_the_fetch_is_left_out_from_the_first_batch_on() -> None:
    fetched = batch(10, producer_id=7) + marker(11, 7, is_commit=False) + batch(12)
    assert selected(fetched, start=10, aborted=[(7, 3)]) == ([12], 13)


def test_batches_without_a_transaction_are_read_though_their_producer_aborts() -> None:
    raw = build_batch([Record(None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    assert selected(bytes(raw), aborted=[(7, 0)]) == ([0], 1)


def test_offsets_that_go_back_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="follows offset 9"):
        selected(batch(0, 10) + batch(9))


def test_offsets_beyond_the_last_possible_one_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="follows offset"):
        selected(batch(2**63 - 1, 2))


def test_message_sets_of_old_are_refused_by_name() -> None:
    raw = bytearray(batch(0))
    raw[16] = 1
    with pytest.raises(OldMessageFormat, match="message format 1"):
        selected(bytes(raw))
