"""Everything that one partition knows of producers and their transactions, and how it comes back after a restart.

Appends are reported here in the order of the log: batches by `append`, markers by `end`; at recovery `replay` tells
which is which. `commit` follows the high watermark, `truncate` takes back what could not be stored.

Every segment begins with a snapshot: the producers at its base, and the aborted transactions whose markers lie in
the segment before. A new leader restores the open segment's snapshot and replays that segment alone; the aborted
transactions of all others it finds in the snapshots behind them. See `partition_snapshot` for the bytes.

All of it costs the same for each batch, however many transactions there are.
"""

from typing import Final

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_OFFSET, Offset
from headwater.model.replica import Buffer
from headwater.records.batch import NO_TIMESTAMP, BatchHeader
from headwater.records.control import EndMarker, read_marker
from headwater.transactions import partition_snapshot
from headwater.transactions.aborted_transactions import Aborted, AbortedTransactions
from headwater.transactions.producer_state import ProducerStates
from headwater.transactions.unstable_transactions import UnstableTransactions

ABORTED_PER_SEGMENT: Final = 16_384
"""So many markers of aborted transactions, and the segment has had enough: the next one's snapshot names them all."""
MAX_ABORTED_PER_SEGMENT: Final = 262_144
"""If no new segment can be had, this many are the end: another snapshot would not fit."""
_NONE_ABORTED: Final = AbortedTransactions()
"""Of all partitions that have none: most of them, and there may be many."""


class PartitionTransactions:
    __slots__ = ("_unstable", "aborted", "producers")

    def __init__(self, producers: ProducerStates | None = None, aborted: AbortedTransactions | None = None) -> None:
        """Producers and aborted transactions as they were committed."""
        self.producers = producers if producers is not None else ProducerStates()
        self.aborted = aborted or _NONE_ABORTED
        self._unstable = UnstableTransactions(self.producers.open_starts())

    # What is there

    @property
    def first_unstable(self) -> Offset:
        """Nothing from here on is stable; NOTHING_UNSTABLE if that holds of nothing."""
        return self._unstable.first_offset

    def stable_bytes(self, high_watermark: Offset, committed_bytes: int) -> int:
        """How many of the bytes ever appended are stable. Differences count; the origin is arbitrary."""
        return self._unstable.stable_bytes(high_watermark, committed_bytes)

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        producer = self.producers.get(producer_id)
        return producer is not None and producer.is_open and producer.epoch == producer_epoch

    def check_room(self, segment_base: Offset) -> None:
        """Whether the open segment may take one more marker of an abort, or RequestError."""
        if self.aborted.count_from(segment_base) >= MAX_ABORTED_PER_SEGMENT:
            raise RequestError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{MAX_ABORTED_PER_SEGMENT} transactions were aborted in one segment, and no new segment could be "
                "opened. Markers wait until there is one.",
            )

    # What happens

    def append(self, header: BatchHeader, position_bytes: int, now_ms: int = NO_TIMESTAMP) -> None:
        """A batch of records. `position_bytes` counts what was appended before it."""
        if self.producers.append(header, now_ms):
            self._unstable.begin(header.base_offset, position_bytes)

    def end(self, header: BatchHeader, marker: EndMarker, now_ms: int = NO_TIMESTAMP) -> None:
        """A marker."""
        first = self.producers.end(header, marker, now_ms)
        if first == NO_OFFSET:
            return
        if not marker.is_commit:
            beside = self._unstable.oldest_beside(first)
            stable = beside if beside is not None else header.last_offset + 1
            if not self.aborted:
                self.aborted = AbortedTransactions()
            self.aborted.add(Aborted(header.producer_id, first, header.last_offset, stable))
        self._unstable.end(first, header.last_offset)

    def replay(self, batch: Buffer, header: BatchHeader) -> None:
        """A batch that was found in the log. Raises CorruptBatch if it claims to be a marker and is none."""
        if header.is_control:
            self.end(header, read_marker(batch, header))
        else:
            self.append(header, 0)

    def commit(self, high_watermark: Offset) -> None:
        """Everything below is committed."""
        self.producers.commit(high_watermark)
        self._unstable.commit(high_watermark)

    def truncate(self, offset: Offset) -> None:
        """Nothing at or past `offset`, where a batch begins, was stored. What ended there is open again."""
        self.producers.truncate(offset)
        self.aborted.truncate(offset)
        self._unstable.truncate(offset)

    def lead(self, older: AbortedTransactions) -> None:
        """Replay has ended. `older` are the aborted transactions of segments that were not replayed; how many bytes lie
        between open transactions is not known."""
        older.extend(self.aborted)
        self.aborted = older or _NONE_ABORTED
        self._unstable = UnstableTransactions(self.producers.open_starts())

    def forget_below(self, offset: Offset) -> None:
        """Whatever aborted transactions wrote is gone from the log below `offset`, or the log begins there."""
        self.aborted = self.aborted.from_offset(offset)

    # Snapshots

    def snapshot(self, at: Offset, aborted_from: Offset) -> bytes:
        """For a segment that begins at `at`: the producers there, and the aborted transactions whose markers lie
        in [aborted_from, at)."""
        return partition_snapshot.write(self.producers.at(at), self.aborted.from_offset(aborted_from).below(at))

    @classmethod
    def restore(cls, data: Buffer) -> "PartitionTransactions":
        """What a snapshot says, or CorruptSnapshot."""
        producers, aborted = partition_snapshot.read(data)
        return cls(ProducerStates(producers=producers), aborted)
