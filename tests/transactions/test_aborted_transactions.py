"""The index of aborted transactions, against a list of them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.transactions.aborted_transactions import (
    ENTRY_BYTES,
    Aborted,
    AbortedTransactions,
    MalformedEntries,
    aborted_batches,
)
from tests.transactions.written_batches import a_header, a_marker, in_transaction


def everything(index: AbortedTransactions) -> list[Aborted]:
    return index.overlapping(0, 1 << 62)


def entries_of(seed: int, length: int) -> list[Aborted]:
    """As a partition would write them: transactions overlap, some are committed, one may stay open for long."""
    chance = random.Random(seed)
    patience = chance.choice([2, 20, 500])
    open_since: dict[int, int] = {}
    entries = []
    for offset in range(length):
        pid = chance.randrange(5)
        if pid not in open_since:
            open_since[pid] = offset
        elif chance.randrange(patience if pid == 0 else 2) == 0:
            first = open_since.pop(pid)
            if chance.randrange(4):
                entries.append(Aborted(pid, first, offset, min(open_since.values(), default=offset + 1)))
    return entries


indexes = st.builds(entries_of, st.integers(0, 2**32), st.integers(0, 60) | st.integers(500, 1_000))
offsets = st.integers(0, 65) | st.integers(0, 1_005)


@given(indexes, offsets, offsets)
def test_a_range_finds_whatever_overlaps_it(entries: list[Aborted], first: int, end: int) -> None:
    expected = [entry for entry in entries if entry.first_offset < end and entry.last_offset >= first]
    assert AbortedTransactions(entries).overlapping(first, end) == expected


@given(indexes, offsets)
def test_the_index_is_cut_at_either_end(entries: list[Aborted], offset: int) -> None:
    index = AbortedTransactions(entries)
    later = [entry for entry in entries if entry.last_offset >= offset]
    earlier = [entry for entry in entries if entry.last_offset < offset]
    assert everything(index.from_offset(offset)) == later
    assert everything(index.below(offset)) == earlier
    assert index.count_from(offset) == len(later)
    assert everything(index) == entries
    index.truncate(offset)
    assert everything(index) == earlier


@given(indexes, offsets, offsets)
def test_parts_that_overlap_make_the_whole(entries: list[Aborted], one: int, other: int) -> None:
    index = AbortedTransactions(entries)
    start, end = min(one, other), max(one, other)
    whole = index.below(end)
    whole.extend(index.from_offset(start))
    assert everything(whole) == entries


@given(indexes)
def test_bytes_are_read_as_they_were_written(entries: list[Aborted]) -> None:
    data = AbortedTransactions(entries).to_bytes()
    assert len(data) == ENTRY_BYTES * len(entries)
    assert everything(AbortedTransactions.from_bytes(data)) == entries


@given(st.binary(max_size=100))
def test_hostile_bytes_raise_nothing_else(data: bytes) -> None:
    try:
        index = AbortedTransactions.from_bytes(data)
    except MalformedEntries:
        return
    assert len(index) * ENTRY_BYTES == len(data)


def test_dropping_old_ones_leaves_a_reader_what_he_holds() -> None:
    index = AbortedTransactions([Aborted(1, 0, 2, 3), Aborted(2, 4, 5, 6)])
    rest = index.from_offset(3)
    assert len(rest) == 1 and len(index) == 2
    rest.add(Aborted(3, 7, 8, 9))
    assert len(index) == 2


def test_markers_come_in_order() -> None:
    with pytest.raises(AssertionError):
        AbortedTransactions([Aborted(1, 0, 2, 3), Aborted(2, 1, 2, 3)])


def test_a_question_ends_where_nothing_that_comes_later_can_matter() -> None:
    """A hundred thousand later ones are not looked at: one of them is not even right."""
    index = AbortedTransactions(Aborted(1, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(100_000))
    index.add(Aborted(2, 0, 1 << 40, 1 << 41))
    assert index.overlapping(10, 13) == [Aborted(1, 10, 11, 12), Aborted(1, 12, 13, 14)]


def test_a_long_transaction_hides_the_end_of_the_question_and_not_its_answer() -> None:
    """Until it ends nothing is stable behind its beginning: entries are passed over by the block."""
    index = AbortedTransactions(Aborted(1, 2 * n + 1, 2 * n + 2, 0) for n in range(10_000))
    index.add(Aborted(2, 0, 30_000, 30_001))
    index.add(Aborted(3, 30_002, 30_003, 30_004))
    assert index.overlapping(10, 13) == [Aborted(1, 9, 10, 0), Aborted(1, 11, 12, 0), Aborted(2, 0, 30_000, 30_001)]
    index.truncate(30_000)
    assert index.overlapping(10, 13) == [Aborted(1, 9, 10, 0), Aborted(1, 11, 12, 0)]


def test_a_batch_is_aborted_if_its_producer_was_in_that_transaction_then() -> None:
    is_aborted = aborted_batches([Aborted(7, 10, 20, 21), Aborted(7, 30, 33, 34), Aborted(8, 12, 14, 21)])
    assert [offset for offset in range(40) if is_aborted(in_transaction(0, offset))] == [*range(10, 21), *range(30, 34)]
    assert not is_aborted(in_transaction(0, 15, pid=8))
    assert not is_aborted(in_transaction(0, 15, pid=9))
    assert not is_aborted(a_header(0, 15))
    assert is_aborted(a_marker(20))
