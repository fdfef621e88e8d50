"""A partition as its readers see it: three offsets that bound what is read, and the batches between them.

The log start, the high watermark up to which everything is committed, and between them the last stable offset, up to
which every transaction has ended. Readers of committed records stop there, and get the aborted transactions in what
they read. Batches come from the tail in memory, or from a replica of the segment that holds them.
"""

from headwater.broker.log.node_ports import NodePorts
from headwater.broker.log.partition_metadata import PartitionMetadata
from headwater.broker.log.segment_reader import SegmentReader
from headwater.broker.log.tail_cache import Tail
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import LeaderEpoch, NodeId, Offset
from headwater.model.replica import Buffer, UnknownSegment
from headwater.model.segments import OpenSegment, SealedSegment
from headwater.records.batch import headers, parse_header
from headwater.transactions.aborted_transactions import Aborted, AbortedTransactions
from headwater.transactions.partition_transactions import PartitionTransactions
from headwater.transactions.producer_state import ProducerStates


class CommittedLog:
    def __init__(self, ports: NodePorts, register: PartitionMetadata, transactions: PartitionTransactions) -> None:
        self.register = register
        self.transactions = transactions
        self.segments = SegmentReader(ports)
        self._tail = Tail()

    @property
    def high_watermark(self) -> Offset:
        raise NotImplementedError

    @property
    def log_end(self) -> Offset:
        raise NotImplementedError

    @property
    def last_stable_offset(self) -> Offset:
        """Every transaction that has written below has ended, and how is on disk. Records may have been deleted past
        the beginning of one that goes on: then it is the log start."""
        high_watermark = self.high_watermark
        first_unstable = self.transactions.first_unstable
        return high_watermark if first_unstable >= high_watermark else max(first_unstable, self.log_start)

    @property
    def log_start(self) -> Offset:
        return self.register.head.start

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.register.head.epoch

    @property
    def leader(self) -> NodeId:
        return self.register.head.leader

    @property
    def producers(self) -> ProducerStates:
        return self.transactions.producers

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.transactions.has_open(producer_id, producer_epoch)

    def check_offset(self, offset: Offset) -> None:
        if not self.log_start <= offset <= self.log_end:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in the log, which holds {self.log_start} to {self.log_end}.",
            )

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """A client that says which leader it believes in learns if it is wrong (KIP-320). -1: it does not say."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise RequestError(code, f"The leader epoch is {self.leader_epoch}, not {epoch}.")

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch in which the record at `offset` was written, or would be."""
        starts = self.register.chain.epochs()
        return max((start.epoch for start in starts if start.start <= offset), default=starts[0].epoch)

    def read_tail(self, offset: Offset, max_bytes: int) -> list[Buffer] | None:
        """Committed batches from memory, or None if `offset` is not there."""
        return self._tail.read(offset, self.high_watermark, max_bytes)

    async def read(self, offset: Offset, max_bytes: int) -> Buffer:
        """Committed batches from a store; empty if there are none at or after `offset`."""
        return (await self._read(offset, self.high_watermark, max_bytes))[0]

    def read_stable_tail(self, offset: Offset, max_bytes: int) -> tuple[list[Buffer], list[Aborted]] | None:
        """As `read_tail`, below the last stable offset; and the aborted transactions that may have a part in it."""
        found = self._tail.read(offset, self.last_stable_offset, max_bytes)
        if not found:
            return None if found is None else (found, [])
        return found, self.transactions.aborted.overlapping(offset, parse_header(found[-1]).last_offset + 1)

    async def read_stable(self, offset: Offset, max_bytes: int) -> tuple[Buffer, list[Aborted]]:
        """As `read`, below the last stable offset; and the aborted transactions that may have a part in it."""
        found, aborted = await self._read(offset, self.last_stable_offset, max_bytes)
        if not len(found) or not aborted.count_from(offset):
            return found, []
        *_, last = headers(found)
        return found, aborted.overlapping(offset, last.last_offset + 1)

    def aborted_transactions(self, first: Offset, end: Offset) -> list[tuple[int, Offset]]:
        """(producer id, first offset) of the aborted transactions of which something may lie in [first, end)."""
        return [(entry.producer_id, entry.first_offset) for entry in self.transactions.aborted.overlapping(first, end)]

    async def _read(self, offset: Offset, limit: Offset, max_bytes: int) -> tuple[Buffer, AbortedTransactions]:
        """Batches below `limit`, and the aborted transactions as they are known of the very segment that was read: one
        that compaction has cleaned holds nothing of those it has made us forget."""
        aborted = self.transactions.aborted
        while offset < limit:
            segment = self.register.chain.find(offset)
            aborted = self.transactions.aborted
            end = min(limit, segment.end) if isinstance(segment, SealedSegment) else limit
            try:
                found = await self.segments.read(segment, max(offset, segment.base), end, max_bytes)
            except UnknownSegment:
                if self.register.chain.find(offset).id == segment.id:
                    raise
                continue  # retention or compaction was faster
            if len(found) or isinstance(segment, OpenSegment):
                return found, aborted
            offset = segment.end  # compaction left nothing here
        return b"", aborted
