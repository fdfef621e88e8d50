"""Finding a record by its timestamp: segments by their largest timestamp, blocks by the store's index, and only
within the last step record by record."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from headwater.broker.log.partition import Partition
from headwater.model.ids import LeaderEpoch, Offset
from headwater.model.segments import OpenSegment, SealedSegment
from headwater.records.batch import BatchHeader, batches
from headwater.records.record import records

READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


async def find_timestamp(partition: Partition, timestamp: int, end: Offset | None = None) -> Found | None:
    """The first committed record whose timestamp is not before `timestamp`, unless it is at or past `end`."""
    for segment, max_timestamp in _segments(partition):
        if max_timestamp < timestamp:
            continue
        start = await partition.segments.find_timestamp(segment, timestamp)
        if start is None:
            continue
        async for header, batch in _batches(partition, segment, start):
            if header.max_timestamp < timestamp:
                continue
            found = _first_in_batch(header, batch, timestamp, partition.log_start)
            if found is not None:
                return found if end is None or found.offset < end else None
    return None


async def find_max_timestamp(partition: Partition, end: Offset | None = None) -> Found | None:
    """The first record among those with the largest timestamp, unless it is at or past `end`."""
    newest = max((max_timestamp for _, max_timestamp in _segments(partition)), default=-1)
    return await find_timestamp(partition, newest, end) if newest >= 0 else None


def _segments(partition: Partition) -> list[tuple[SealedSegment | OpenSegment, int]]:
    chain = partition.register.chain
    sealed: list[tuple[SealedSegment | OpenSegment, int]] = [
        (segment, segment.max_timestamp) for segment in chain.sealed if segment.end > partition.log_start
    ]
    return [*sealed, (chain.open, partition.open_max_timestamp)]


async def _batches(
    partition: Partition, segment: SealedSegment | OpenSegment, start: Offset
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    limit = segment.end if isinstance(segment, SealedSegment) else partition.high_watermark
    offset = start
    while offset < limit:
        start = offset
        # One after the other: the record is mostly in the first, and a read may have hundreds.
        for header, batch in batches(await partition.segments.read(segment, offset, limit, READ_BYTES)):
            yield header, batch
            offset = header.last_offset + 1
        if offset == start:
            return


def _first_in_batch(header: BatchHeader, batch: memoryview, timestamp: int, log_start: Offset) -> Found | None:
    if header.uses_log_append_time:
        offset = max(header.base_offset, log_start)
        return Found(offset, header.max_timestamp, header.partition_leader_epoch)
    for record in records(batch, header):
        if record.timestamp >= timestamp and record.offset >= log_start:
            return Found(record.offset, record.timestamp, header.partition_leader_epoch)
    return None
