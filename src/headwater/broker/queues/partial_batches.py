"""Parts of large batches: a member that is lent a few records of one gets those, and not all the others with them.

Usually batches are sent as they are stored. But a batch of thousands of delayed records, or one with a single record to
be delivered again, would travel whole for each of them. What is sent then is such a batch as compaction leaves behind:
the same header, fewer records, each with its offset.

Where the records lie is remembered for the batches that were cut last, within a budget for the whole broker: cutting
one again costs no more than the records that are taken from it.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.model.ids import Offset, PartitionId
from headwater.model.replica import Buffer
from headwater.queues.outcomes import AcquiredRange
from headwater.records.batch import CODEC_MASK, BatchHeader, CorruptBatch, InvalidBatch
from headwater.records.build import assemble
from headwater.records.compression import DecompressedTooLarge
from headwater.records.record import layouts, payload

MIN_BATCH_BYTES = 16 * 1024
"""Smaller batches are not worth the work."""
SHARE = 8
"""A batch is cut when at most one in so many of its records is wanted."""
BUDGET_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Laid:
    data: bytes
    """The records, without compression."""
    deltas: "array[int]"
    """Their offsets, counted from the base offset; rising."""
    starts: "array[int]"
    """Where they lie; one more, for the end."""

    @property
    def size_bytes(self) -> int:
        return len(self.data) + len(self.deltas) * (self.deltas.itemsize + self.starts.itemsize)


class PartialBatches:
    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._laid: OrderedDict[tuple[PartitionId, Offset], _Laid] = OrderedDict()
        self.size_bytes = 0

    def cut(
        self, partition: PartitionId, header: BatchHeader, batch: Buffer, ranges: Sequence[AcquiredRange]
    ) -> Buffer:
        """The batch, or what the ranges, which rise by offset, want of it."""
        if len(batch) < MIN_BATCH_BYTES:
            return batch
        wanted = _within(header, ranges)
        if sum(last - first + 1 for first, last in wanted) * SHARE > header.record_count:
            return batch
        try:
            laid = self._find(partition, header, batch)
        except (CorruptBatch, InvalidBatch, DecompressedTooLarge):
            return batch  # its reader finds out
        parts = bytearray()
        count = 0
        for first, last in wanted:
            low = bisect_left(laid.deltas, first - header.base_offset)
            high = bisect_right(laid.deltas, last - header.base_offset)
            parts += laid.data[laid.starts[low] : laid.starts[high]]
            count += high - low
        cut = assemble(parts, header._replace(attributes=header.attributes & ~CODEC_MASK, record_count=count))
        return cut if len(cut) < len(batch) else batch  # compressed well, all of it may be the smaller

    def _find(self, partition: PartitionId, header: BatchHeader, batch: Buffer) -> _Laid:
        key = (partition, header.base_offset)
        laid = self._laid.get(key)
        if laid is not None:
            self._laid.move_to_end(key)
            return laid
        laid = _lay_out(header, batch)
        self._laid[key] = laid
        self.size_bytes += laid.size_bytes
        while self.size_bytes > self._budget_bytes:
            _, oldest = self._laid.popitem(last=False)
            self.size_bytes -= oldest.size_bytes
        return laid


def _within(header: BatchHeader, ranges: Sequence[AcquiredRange]) -> list[tuple[Offset, Offset]]:
    first, last = header.base_offset, header.last_offset
    return [
        (max(each.first, first), min(each.last, last)) for each in ranges if each.first <= last and each.last >= first
    ]


def _lay_out(header: BatchHeader, batch: Buffer) -> _Laid:
    data = payload(batch, header)
    deltas, starts = array("I"), array("I")
    for layout in layouts(data, header):
        starts.append(layout[0])
        deltas.append(layout[4])
    starts.append(len(data))
    return _Laid(data, deltas, starts)
