"""The aborted transactions of one partition: what a reader that wants committed records only must leave out.

They are in the order of their markers, which is the order in which they come. With each is noted where the log was
stable when it ended: no transaction that ends later begins below that. A question for a range thus starts at the first
marker in it, by binary search, and ends at the first entry that was stable up to the end of the range. One long
transaction keeps that from happening for as long as it is open; so of every 64 entries it is known where the earliest
began, and 64 entries that all began behind the range are passed over at once.

Four columns of integers, 32 bytes for each transaction. Entries come and go at the end only; dropping old ones makes a
new object, so that a reader that is under way with the old object still has it whole.

    bytes of an entry, big-endian:  producer id i64 | first offset i64 | last offset i64 | stable offset i64
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from headwater.model.ids import Offset
from headwater.model.replica import Buffer
from headwater.records.batch import BatchHeader

ENTRY_BYTES: Final = 32
_COLUMNS: Final = 4
_BLOCK: Final = 64

_Offsets: TypeAlias = "array[Any]"
"""An array holds numbers, whatever they mean."""


class Aborted(NamedTuple):
    producer_id: int
    first_offset: Offset
    last_offset: Offset
    """Of the marker."""
    stable_offset: Offset
    """No transaction that ends later begins below."""


class MalformedEntries(ValueError):
    """The bytes are not what `to_bytes` wrote."""


class AbortedTransactions:
    __slots__ = ("_earliest", "_firsts", "_lasts", "_producer_ids", "_stables")

    def __init__(self, entries: Iterable[Aborted] = ()) -> None:
        self._producer_ids = array("q")
        self._firsts: _Offsets = array("q")
        self._lasts: _Offsets = array("q")
        self._stables: _Offsets = array("q")
        self._earliest: _Offsets = array("q")
        """The smallest of the first offsets in each block of entries."""
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._lasts)

    def add(self, entry: Aborted) -> None:
        assert not self._lasts or entry.last_offset > self._lasts[-1], "markers come in the order of the log"
        self._producer_ids.append(entry.producer_id)
        self._firsts.append(entry.first_offset)
        self._lasts.append(entry.last_offset)
        self._stables.append(entry.stable_offset)
        if len(self) % _BLOCK == 1:
            self._earliest.append(entry.first_offset)
        elif entry.first_offset < self._earliest[-1]:
            self._earliest[-1] = entry.first_offset

    def extend(self, later: "AbortedTransactions") -> None:
        """Add those of `later` whose markers come after the last one here."""
        start = bisect_right(later._lasts, self._lasts[-1]) if self._lasts else 0
        count = len(self)
        for column, added in zip(self._columns(), later._columns(), strict=True):
            column.extend(added[start:])
        self._summarise(count)

    def truncate(self, offset: Offset) -> None:
        """Take back those whose marker is at or past `offset`."""
        start = bisect_left(self._lasts, offset)
        for column in self._columns():
            del column[start:]
        self._summarise(start)

    def from_offset(self, offset: Offset) -> "AbortedTransactions":
        """Those whose marker is at or past `offset`; the same object if that is all of them."""
        start = bisect_left(self._lasts, offset)
        return self._slice(start, len(self)) if start else self

    def below(self, offset: Offset) -> "AbortedTransactions":
        """Those whose marker is below `offset`."""
        return self._slice(0, bisect_left(self._lasts, offset))

    def overlapping(self, first: Offset, end: Offset) -> list[Aborted]:
        """Those of which something may lie in [first, end), by their markers."""
        lasts, firsts, stables = self._lasts, self._firsts, self._stables
        found: list[Aborted] = []
        if not lasts or lasts[-1] < first:
            return found
        index = bisect_left(lasts, first)
        while index < len(lasts):
            block = index // _BLOCK
            block_end = min((block + 1) * _BLOCK, len(lasts))
            if self._earliest[block] < end:
                for each in range(index, block_end):
                    if firsts[each] < end:
                        found.append(Aborted(self._producer_ids[each], firsts[each], lasts[each], stables[each]))
                    if stables[each] >= end:
                        return found
            elif stables[block_end - 1] >= end:
                return found
            index = block_end
        return found

    def count_from(self, offset: Offset) -> int:
        """How many markers are at or past `offset`."""
        return len(self) - bisect_left(self._lasts, offset)

    def to_bytes(self) -> bytes:
        rows = array("q", bytes(ENTRY_BYTES * len(self)))
        for number, column in enumerate(self._columns()):
            rows[number::_COLUMNS] = column
        return _swapped(rows).tobytes()

    @classmethod
    def from_bytes(cls, data: Buffer) -> "AbortedTransactions":
        """What `to_bytes` saw, or MalformedEntries."""
        if len(data) % ENTRY_BYTES:
            raise MalformedEntries(f"{len(data)} bytes are no whole number of aborted transactions")
        rows = array("q")
        rows.frombytes(data)
        rows = _swapped(rows)
        found = cls()
        found._producer_ids, found._firsts, found._lasts, found._stables = (
            rows[number::_COLUMNS] for number in range(_COLUMNS)
        )
        previous = -1
        for entry in zip(*found._columns(), strict=True):
            producer_id, first, last, _ = entry
            if producer_id < 0 or not 0 <= first <= last or last <= previous:
                raise MalformedEntries(f"aborted transaction {entry} after the one that ends at {previous}")
            previous = last
        found._summarise(0)
        return found

    def _columns(self) -> "tuple[array[int], array[int], array[int], array[int]]":
        return self._producer_ids, self._firsts, self._lasts, self._stables

    def _slice(self, start: int, stop: int) -> "AbortedTransactions":
        part = AbortedTransactions()
        part._producer_ids, part._firsts, part._lasts, part._stables = (
            column[start:stop] for column in self._columns()
        )
        part._summarise(0)
        return part

    def _summarise(self, changed_from: int) -> None:
        """Look again at the blocks from that of this entry on."""
        block = changed_from // _BLOCK
        del self._earliest[block:]
        for start in range(block * _BLOCK, len(self), _BLOCK):
            self._earliest.append(min(self._firsts[start : start + _BLOCK]))


def aborted_batches(aborted: Iterable[Aborted]) -> Callable[[BatchHeader], bool]:
    """A function that tells whether a batch of records belongs to one of these transactions, given by their markers."""
    spans: dict[int, tuple[list[Offset], list[Offset]]] = {}
    for producer_id, first, last, _ in aborted:
        firsts, lasts = spans.setdefault(producer_id, ([], []))
        firsts.append(first)
        lasts.append(last)

    def is_aborted(header: BatchHeader) -> bool:
        if not header.is_transactional or header.producer_id not in spans:
            return False
        firsts, lasts = spans[header.producer_id]  # one after the other: a producer has one transaction at a time
        index = bisect_left(lasts, header.base_offset)
        return index < len(lasts) and firsts[index] <= header.base_offset

    return is_aborted


def _swapped(rows: "array[int]") -> "array[int]":
    """Between the machine's order of bytes and big-endian."""
    if sys.byteorder == "little":
        rows.byteswap()
    return rows
