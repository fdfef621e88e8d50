"""A store on a directory: keeps replicas of segments, knows no topics.

    store.json      identity and format        lock         held by the process that has the store open
    state           checkpoints                reserve      given up when the disk is full
    N.journal       the journal                segments/    <segment>-<instance>.log and .index

All state is owned by the event loop that opened the store. Appends in `sync` mode, and everything that changes
what a replica is, go through the writer's thread and the journal; appends in `os` mode are written to the
segment file and are not flushed. Appends to one replica keep the order of the calls.

After a failed flush nothing is promised any more: every call raises StoreFailed, and the process must stop.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from headwater.logs.events import log_event
from headwater.model.ids import FIRST_OFFSET, NO_LEADER_EPOCH, LeaderEpoch, Offset, SegmentId, StoreId
from headwater.model.replica import (
    AppendTooLarge,
    Buffer,
    CorruptReplica,
    Durability,
    Fenced,
    NoSpace,
    OutOfSequence,
    ReplicaState,
    SealedReplica,
    SegmentDescription,
    Source,
)
from headwater.storage.appends import Appends, WriterAppend
from headwater.storage.block_index import BlockIndex
from headwater.storage.copies import Copies
from headwater.storage.entry import EntryKind, JournalEntry
from headwater.storage.files import Files, SystemFiles
from headwater.storage.open_store import OpenStore
from headwater.storage.options import StoreOptions
from headwater.storage.replica import Replica, check_id
from headwater.storage.segment_file import execute, find_in_block, measure, plan
from headwater.storage.writer import Work


class SegmentStore:
    """The `LocalStore` of headwater.model.replica, on local files."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store
        self._options = open_store.options
        self._replicas = open_store.replicas
        self._queue = open_store.queue
        self._block_indexes = open_store.block_indexes
        self._appends = Appends(open_store)
        self._copies = Copies(open_store, self.read)

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        files: Files | None = None,
        options: StoreOptions | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> "SegmentStore":
        """Open the store in this directory, or format one. `on_failure` is called once, on the event loop, when the
        store has failed and the process must stop. Raises DirectoryInUse if another process has it open."""
        return cls(await OpenStore.open(directory, files or SystemFiles(), options or StoreOptions(), on_failure))

    async def close(self) -> None:
        """Finish what waits, and leave everything so that the next start has nothing to do."""
        await self._open_store.close()

    @property
    def store_id(self) -> StoreId:
        return self._open_store.identity.store_id

    def replicas(self) -> list[ReplicaState]:
        return [replica.state() for replica in self._replicas.values() if replica.created is None]

    def replica(self, segment: SegmentId) -> ReplicaState | None:
        """One replica, from memory."""
        replica = self._replicas.get(segment)
        return None if replica is None else replica.state()

    def free_bytes(self) -> int:
        return self._open_store.low_water.room().free_bytes

    def capacity_bytes(self) -> int:
        return self._open_store.low_water.room().total_bytes

    def used_bytes(self) -> int:
        return sum(replica.size_bytes for replica in self._replicas.values())

    def size_bytes(self, segment: SegmentId) -> int:
        return self._open_store.known(segment).size_bytes

    def max_timestamp(self, segment: SegmentId) -> int:
        """The largest of the segment, or -1 if it is empty."""
        return self._open_store.known(segment).max_timestamp

    async def create(
        self,
        segment: SegmentId,
        partition: str,
        base: Offset,
        epoch: LeaderEpoch,
        header: bytes,
        durability: Durability,
    ) -> None:
        self._queue.check()
        check_id(segment)
        existing = self._replicas.get(segment)
        if existing is not None and existing.is_deleted:
            await self._queue.idle(existing)
            existing = self._replicas.get(segment)
        if existing is not None:
            if existing.is_fenced:
                raise Fenced(f"segment {segment} was fenced before it was created here")
            if not existing.is_same_create(partition, base, epoch, header, durability):
                raise OutOfSequence(f"segment {segment} was created differently before")
            if existing.created is not None:
                await asyncio.shield(existing.created)
            return
        self._open_store.low_water.check()
        replica = Replica(
            segment=segment,
            instance=self._open_store.checkpoints.next_instance(),
            partition=partition,
            base=base,
            epoch=epoch,
            header=header,
            durability=durability,
        )
        await self._log_new(replica)

    async def append(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset:
        return await self._appends.append(segment, first, end, lac, batches)

    def append_now(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset | None:
        return self._appends.append_now(segment, first, end, lac, batches)

    def append_soon(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset | WriterAppend | None:
        """As `append`, without a coroutine; None, and nothing has happened, if the writer cannot have it now."""
        return self._appends.append_soon(segment, first, end, lac, batches)

    async def fence(self, segment: SegmentId) -> ReplicaState:
        self._queue.check()
        check_id(segment)
        replica = self._replicas.get(segment)
        if replica is None:
            replica = Replica(
                segment=segment,
                instance=self._open_store.checkpoints.next_instance(),
                partition="",
                base=FIRST_OFFSET,
                epoch=NO_LEADER_EPOCH,
                header=b"",
                durability=Durability.SYNC,
            )
            replica.is_fenced = replica.in_doubt = True
            log_event("unknown_segment_fenced", logging.WARNING, segment=segment)
            await self._log_new(replica)
            replica.is_fence_durable = True
            return replica.state()
        replica.is_fenced = True  # from here on appends are refused; those before it are answered first
        await self._open_store.load(replica)
        if not replica.is_fence_durable:
            await self._queue.submit(replica, self._fence_durable, entry=_entry(EntryKind.FENCE, replica))
        await self._queue.idle(replica)
        if self._replicas.get(segment) is not replica:
            return await self.fence(segment)  # its create failed, or it was being deleted: leave a tombstone
        return replica.state()

    async def read(self, segment: SegmentId, offset: Offset, limit: Offset, max_bytes: int) -> Buffer:
        replica = self._open_store.known(segment)
        if replica.in_doubt and limit > replica.end:
            # The rest may have been here once: the caller must not take it for empty.
            raise CorruptReplica(f"segment {segment} ends at {replica.end} here, and may have had more")
        try:
            batches = await self._read(replica, offset, limit, max_bytes)
        except CorruptReplica as error:
            if self._is_replaced(replica):
                return await self.read(segment, offset, limit, max_bytes)
            self._damaged(replica, error)
            raise
        return batches

    async def find_timestamp(self, segment: SegmentId, timestamp: int) -> Offset | None:
        replica = self._open_store.known(segment)
        if timestamp > replica.max_timestamp:
            return None
        index = await self._open_store.load(replica)
        block = index.first_since(timestamp)
        try:
            if block is None:
                _check_complete(replica, index)
                return None
            return find_in_block(block, await self._open_store.read(replica, block.position, block.length), timestamp)
        except CorruptReplica as error:
            if self._is_replaced(replica):
                return await self.find_timestamp(segment, timestamp)
            self._damaged(replica, error)
            raise

    async def seal(self, segment: SegmentId, end: Offset) -> SealedReplica:
        replica = self._open_store.known(segment)
        if not replica.is_sealed:
            await self._seal(replica, end)
        if replica.end != end:
            raise OutOfSequence(f"segment {segment} is sealed at {replica.end}, not at {end}")
        return replica.sealed()

    async def state(self, segment: SegmentId) -> ReplicaState:
        return self._open_store.known(segment).state()

    async def copy(self, description: SegmentDescription, source: Source) -> SealedReplica:
        return await self._copies.copy(description, source)

    async def delete(self, segment: SegmentId, instance: int) -> None:
        self._queue.check()
        replica = self._replicas.get(segment)
        if replica is None or replica.instance != instance:
            return
        if replica.is_deleted:
            await self._queue.idle(replica)  # another call deletes it: this one returns when that is done, too
            return
        replica.is_deleted = True
        try:
            await self._queue.submit(replica, self._deleted, entry=_entry(EntryKind.DELETE, replica))
        except NoSpace:
            replica.is_deleted = False
            raise

    async def _read(self, replica: Replica, offset: Offset, limit: Offset, max_bytes: int) -> Buffer:
        while True:
            index = await self._open_store.load(replica)
            end = replica.end
            limit = min(limit, end)
            if offset >= limit:
                return b""
            chosen = plan(index, offset, limit, end, max_bytes)
            if chosen is not None:
                data = await self._open_store.read(replica, chosen.position, chosen.length)
                try:
                    batches = execute(chosen, data)
                except CorruptReplica:
                    if replica.index is index:
                        raise
                    continue  # sealed meanwhile, and the end of the file was cut off: plan anew
                if batches.data:
                    self._block_indexes.touch(replica, index)
                    if batches.next_offset is not None:
                        index.remember(batches.next_offset, batches.next_position)
                    return batches.data
                number = index.number_of(offset) + 1
                if number < len(index):
                    offset = index[number].base  # compaction left a hole at the end of the block
                    continue
            _check_complete(replica, index)
            return b""

    # What else changes a replica

    async def _log_new(self, replica: Replica) -> None:
        loop = asyncio.get_running_loop()
        replica.created = loop.create_future()
        if replica.to_entry().payload_bytes > self._open_store.max_append_bytes:
            raise AppendTooLarge(f"the header of segment {replica.segment} is too large")
        self._replicas[replica.segment] = replica
        future = self._queue.submit(replica, self._created, entry=replica.to_entry())
        future.add_done_callback(lambda done: self._create_failed(replica, done.exception()))
        await asyncio.shield(future)

    def _create_failed(self, replica: Replica, error: BaseException | None) -> None:
        if error is None or replica.created is None:
            return
        self._replicas.pop(replica.segment, None)
        replica.created.set_exception(error)
        replica.created.exception()  # retrieved, even if no caller waits for it

    def _created(self, work: Work) -> None:
        replica = work.replica
        if replica.created is not None and not replica.created.done():
            replica.created.set_result(None)
        replica.created = None
        self._open_store.checkpoints.changed(replica)

    def _fence_durable(self, work: Work) -> None:
        work.replica.is_fence_durable = True
        self._open_store.checkpoints.changed(work.replica)

    def _deleted(self, work: Work) -> None:
        if not self._is_replaced(work.replica):
            self._replicas.pop(work.replica.segment, None)
        self._open_store.forget(work.replica)

    async def _seal(self, replica: Replica, end: Offset) -> None:
        if not replica.base <= end <= replica.queued_end:
            raise OutOfSequence(f"cannot seal [{replica.base}, {replica.queued_end}) at {end}")
        if replica.is_sealing:
            raise OutOfSequence(f"segment {replica.segment} is being sealed")
        replica.is_sealing = True
        try:
            await self._queue.idle(replica)
            index = await self._open_store.load(replica)
            if end > replica.end:
                raise OutOfSequence(f"cannot seal at {end}: only [{replica.base}, {replica.end}) is here")
            measured = await self._open_store.run(measure, index, self._block_indexes.reader(replica), end)
            await self._open_store.flush_segment(replica, measured.index)

            def done(work: Work) -> None:
                replica.seal(measured.sealed)
                self._block_indexes.hold(replica, measured.index)
                self._open_store.checkpoints.changed(replica)

            sealed = measured.sealed
            entry = JournalEntry(
                EntryKind.SEAL,
                replica.segment,
                replica.instance,
                end=sealed.end,
                position=sealed.size_bytes,
                max_timestamp=sealed.max_timestamp,
                payload=(sealed.crc32c.to_bytes(4, "big"),),
            )
            future = self._queue.submit(replica, done, entry=entry)
        except CorruptReplica as error:
            replica.is_sealing = False
            self._damaged(replica, error)
            raise
        except BaseException:
            replica.is_sealing = False
            raise
        # A caller that goes away now leaves the replica closed to appends until the outcome is known.
        future.add_done_callback(lambda outcome: self._seal_done(replica, outcome.exception()))
        await asyncio.shield(future)
        await self._open_store.run(self._open_store.cut_segment, replica, sealed.size_bytes)

    def _seal_done(self, replica: Replica, error: BaseException | None) -> None:
        replica.is_sealing = False
        if error is not None:
            # The file of the index has the blocks of the seal that failed: look again.
            self._block_indexes.drop(replica)

    def _is_replaced(self, replica: Replica) -> bool:
        """Whether a copy took its place. Its file is gone then, and what was not read of it is in the copy."""
        return self._replicas.get(replica.segment, replica) is not replica

    def _damaged(self, replica: Replica, error: CorruptReplica) -> None:
        """Acknowledged bytes cannot be read: the replica has no say any more in what was committed."""
        log_event("replica_corrupt", logging.ERROR, segment=replica.segment, error=error)
        if not replica.in_doubt and self._queue.failure is None and not replica.is_deleted:
            replica.in_doubt = True
            future = self._queue.submit(replica, self._doubt_durable, entry=_entry(EntryKind.DOUBT, replica))
            future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _doubt_durable(self, work: Work) -> None:
        self._open_store.checkpoints.changed(work.replica)


def _check_complete(replica: Replica, index: BlockIndex) -> None:
    """Nothing was found; is that because it could not be read?"""
    if index.stop < replica.size_bytes:
        raise CorruptReplica(f"segment {replica.segment} is sound up to position {index.stop} only")


def _entry(kind: EntryKind, replica: Replica) -> JournalEntry:
    return JournalEntry(kind, replica.segment, replica.instance)
