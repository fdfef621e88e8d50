"""Log compaction: of each key only the last record stays.

Two passes over sealed segments, both streaming. The first reads the dirty ones (not compacted yet) into a map from key
to last offset, as far as the map's memory reaches; what is left waits for another two. The second writes what survives,
from the start of the log to where the first pass came, into new segments, and swaps each for the ones it replaces. Old
segments are deleted after the swap; a crash before it leaves an orphan, a crash after it an old replica, and garbage
collection finds both.

Nothing past the last stable offset is touched: how every transaction below has ended is known. What aborted ones wrote
goes; so every run leaves nothing of them in the segments that it covers whole, and only there markers may go, too. That
is what lets the partition forget an aborted transaction as soon as its segment is compacted: a reader that gets it in a
fetch response and finds no marker would take what its producer wrote later for aborted, too.

Decoding records is work for a thread: the event loop only moves the pieces.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from headwater.broker.log.node_ports import NodePorts
from headwater.broker.log.partition import Partition
from headwater.broker.log.partition_metadata import MAX_SEGMENTS_PER_CHANGE, SegmentsChanged
from headwater.logs.events import log_event
from headwater.model.ids import FIRST_OFFSET, LeaderEpoch, Offset
from headwater.model.replica import Buffer, CorruptReplica, NoSpace, StoreError
from headwater.model.segments import SealedSegment
from headwater.records.batch import BatchHeader, headers, parse_header, split
from headwater.records.compaction import ENTRY_BYTES, OffsetMap, compact_batch, scan_batch
from headwater.transactions.aborted_transactions import aborted_batches

READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """What compaction could do in a partition now."""

    clean: tuple[SealedSegment, ...]
    dirty: tuple[SealedSegment, ...]

    @property
    def dirty_ratio(self) -> float:
        dirty_bytes = sum(segment.size_bytes for segment in self.dirty)
        total = dirty_bytes + sum(segment.size_bytes for segment in self.clean)
        return dirty_bytes / total if total else 0.0


def dirty_log(partition: Partition, now_ms: int) -> DirtyLog:
    """Segments whose newest record is younger than min.compaction.lag.ms are left alone; so are segments that are not
    stable to their end, and all behind them."""
    sealed = partition.register.chain.sealed
    stable_end = partition.last_stable_offset
    clean_count = next((index for index, segment in enumerate(sealed) if not segment.compacted), len(sealed))
    dirty = []
    for segment in sealed[clean_count:]:
        lag_ms = partition.config.min_compaction_lag_ms
        if segment.end > stable_end or (lag_ms and now_ms - segment.max_timestamp < lag_ms):
            break
        dirty.append(segment)
    return DirtyLog(tuple(sealed[:clean_count]), tuple(dirty))


def is_due(partition: Partition, log: DirtyLog, now_ms: int) -> bool:
    if not log.dirty:
        return False
    if log.dirty_ratio >= partition.config.min_cleanable_dirty_ratio:
        return True
    oldest = min(segment.max_timestamp for segment in log.dirty)
    return oldest >= 0 and now_ms - oldest > partition.config.max_compaction_lag_ms


class Compaction:
    """One run over one partition: as many passes as the keys need, each within the memory of one map."""

    def __init__(self, ports: NodePorts, partition: Partition, memory_bytes: int) -> None:
        self._ports = ports
        self._partition = partition
        self._now_ms = ports.clock.now_ms()
        self._max_keys = max(memory_bytes // ENTRY_BYTES, 1)
        self._map = OffsetMap(self._max_keys)
        self._last_of_producer = partition.producers.last_offsets()
        self._with_records: set[int] = set()
        """Producers of whose current transaction something was kept, where the rewriting has come."""

    async def run(self, log: DirtyLog) -> None:
        chain = self._partition.register.chain
        await self._partition.register.unstage_all()
        before = chain.sealed_bytes
        start, end = log.dirty[0].base, log.dirty[-1].end
        try:
            while start < end:
                reached = await self._scan(start, end)
                if reached <= start:
                    log_event(
                        "compaction_stuck",
                        logging.WARNING,
                        partition=self._partition.id,
                        reason="a batch has too many keys",
                    )
                    return
                self._with_records.clear()
                covered = [segment for segment in chain.sealed if segment.base < reached]
                for group in _groups(covered, self._partition.config.segment_bytes, reached):
                    await self._rewrite(group)
                start = reached
        except SegmentsChanged as error:
            log_event("compaction_stopped", partition=self._partition.id, reason=str(error))
            return
        log_event("compacted", partition=self._partition.id, before_bytes=before, after_bytes=chain.sealed_bytes)

    async def _scan(self, start: Offset, end: Offset) -> Offset:
        """Fill a new map from `start` on; return how far it reaches."""
        self._map = OffsetMap(self._max_keys)
        for segment in self._partition.register.chain.sealed:
            if segment.end <= start or segment.base >= end:
                continue
            async for chunk in self._chunks(segment, max(start, segment.base)):
                is_aborted = self._aborted_in(chunk)
                if not await asyncio.to_thread(_scan_chunk, chunk, self._map, start, is_aborted):
                    return self._map.latest_offset + 1
        self._map.latest_offset = end - 1
        return end

    async def _rewrite(self, group: Sequence[SealedSegment]) -> None:
        ports, partition = self._ports, self._partition
        first, last = group[0], group[-1]
        segment_id = ports.new_segment_id()
        replicas = partition.choose(segment_id)
        if len(replicas) < partition.rules.min_insync:
            raise NoSpace("too few stores can take the compacted segment")
        new = SealedSegment(
            id=segment_id,
            base=first.base,
            end=last.end,
            epoch=last.epoch,
            epoch_start=last.epoch_start,
            replicas=replicas,
            size_bytes=0,
            max_timestamp=-1,
            crc32c=None,
            compacted=self._map.latest_offset >= last.end - 1,
            earlier_epochs=_earlier_epochs(group),
        )
        await partition.register.stage(new)
        try:
            await partition.swap(group, await self._write(group, new))
        except (StoreError, SegmentsChanged):
            await partition.register.unstage(new.id)
            await partition.delete_replica(new.id)
            raise

    async def _write(self, group: Sequence[SealedSegment], new: SealedSegment) -> SealedSegment:
        """What survives, on all stores of the new segment; return it with its figures."""
        partition = self._partition
        stores = [self._ports.stores.find(store_id) for store_id in new.replicas]
        durability = partition.config.durability
        for store in stores:
            await store.create(new.id, str(partition.id), new.base, new.epoch, b"", durability)
        written = new.base
        for segment in group:
            async for chunk in self._chunks(segment, segment.base):
                aborted = self._aborted_in(chunk)
                kept, chunk_end = await asyncio.to_thread(self._compact_chunk, chunk, aborted, new.compacted)
                if kept:
                    for store in stores:
                        await store.append(new.id, written, chunk_end, chunk_end, kept)
                    written = chunk_end
        measured = [await store.seal(new.id, written) for store in stores]
        if any(each != measured[0] for each in measured):
            raise CorruptReplica(f"the replicas of segment {new.id} differ: {measured}")
        size_bytes, max_timestamp, crc = measured[0].size_bytes, measured[0].max_timestamp, measured[0].crc32c
        return replace(new, size_bytes=size_bytes, max_timestamp=max_timestamp, crc32c=crc)

    def _compact_chunk(
        self, chunk: Buffer, is_aborted: Callable[[BatchHeader], bool], is_whole: bool
    ) -> tuple[list[Buffer], Offset]:
        kept: list[Buffer] = []
        end = FIRST_OFFSET
        retention_ms = self._partition.config.delete_retention_ms
        with_records = self._with_records
        for header, batch in split(chunk):
            end = header.last_offset + 1
            producer_id = header.producer_id
            survivor = compact_batch(
                batch,
                header,
                self._map,
                is_last_batch_of_producer=self._last_of_producer.get(producer_id) == header.last_offset,
                now_ms=self._now_ms,
                delete_retention_ms=retention_ms,
                is_aborted=is_aborted(header),
                is_marker_needed=not is_whole or producer_id in with_records,
            )
            if header.is_control:
                with_records.discard(producer_id)
            elif header.is_transactional and survivor is not None and parse_header(survivor).record_count:
                with_records.add(producer_id)
            if survivor is not None:
                kept.append(survivor)
        return kept, end

    def _aborted_in(self, chunk: Buffer) -> Callable[[BatchHeader], bool]:
        aborted = self._partition.transactions.aborted
        if not aborted:
            return aborted_batches(())
        first = parse_header(chunk).base_offset
        *_, last = headers(chunk)
        return aborted_batches(aborted.overlapping(first, last.last_offset + 1))

    async def _chunks(self, segment: SealedSegment, offset: Offset) -> AsyncIterator[Buffer]:
        while offset < segment.end:
            chunk = await self._partition.segments.read(segment, offset, segment.end, READ_BYTES)
            if not len(chunk):
                return
            yield chunk
            *_, (last, _) = split(chunk)
            offset = last.last_offset + 1


def _scan_chunk(chunk: Buffer, offsets: OffsetMap, start: Offset, is_aborted: Callable[[BatchHeader], bool]) -> bool:
    return all(
        scan_batch(batch, header, offsets, start=start, is_aborted=is_aborted(header)) for header, batch in split(chunk)
    )


def _groups(segments: Sequence[SealedSegment], max_bytes: int, reached: Offset) -> list[list[SealedSegment]]:
    """Neighbours that together are not larger than one segment may be. A segment that the map covers in part stays
    by itself, because it stays dirty."""
    groups: list[list[SealedSegment]] = []
    size = 0
    for segment in segments:
        is_full = not groups or size + segment.size_bytes > max_bytes or len(groups[-1]) == MAX_SEGMENTS_PER_CHANGE
        if is_full or segment.end > reached:
            groups.append([])
            size = 0
        groups[-1].append(segment)
        size += segment.size_bytes
    return groups


def _earlier_epochs(group: Sequence[SealedSegment]) -> tuple[tuple[LeaderEpoch, Offset], ...]:
    starts: list[tuple[LeaderEpoch, Offset]] = []
    for segment in group:
        for start in (*segment.earlier_epochs, (segment.epoch, segment.epoch_start)):
            if not starts or start[0] > starts[-1][0]:
                starts.append(start)
    return tuple(starts[:-1])
