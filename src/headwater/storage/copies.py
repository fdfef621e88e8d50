"""Copies of sealed segments: written beside whatever is here, verified, made durable, then put in its place.

A copy is a draft until one journal entry names its instance. That entry is written after the files are flushed, so a
crash leaves the old replica or the complete new one; the files of a draft belong to no replica, and are removed when
the store opens. The bytes do not go through the journal: only the entry does.

Memory is bounded by what the source gives at once. Owned by the event loop, except where a method says otherwise."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from crc32c import crc32c

from headwater.logs.events import log_event
from headwater.model.ids import Offset, SegmentId
from headwater.model.replica import (
    AppendTooLarge,
    Buffer,
    CorruptReplica,
    NoSpace,
    OutOfSequence,
    SealedReplica,
    SegmentDescription,
    Source,
    StoreFailed,
    UnknownSegment,
    UnsoundBatch,
)
from headwater.storage.batches import check
from headwater.storage.files import is_no_space
from headwater.storage.flush import FlushFailed, flush
from headwater.storage.open_store import OpenStore
from headwater.storage.replica import Replica, check_id
from headwater.storage.writer import Work

LOCAL_READ_BYTES: Final = 4 * 1024 * 1024
FLUSH_EVERY_BYTES: Final = 32 * 1024 * 1024
"""Written and not flushed at most: the flush at the end, and those of the journal beside it, stay short."""

Read: TypeAlias = Callable[[SegmentId, Offset, Offset, int], Awaitable[Buffer]]
"""The store's own `read`."""


class Copies:
    def __init__(self, open_store: OpenStore, read: Read) -> None:
        self._open_store = open_store
        self._queue = open_store.queue
        self._replicas = open_store.replicas
        self._read = read
        self._running: dict[SegmentId, asyncio.Future[None]] = {}

    async def copy(self, description: SegmentDescription, source: Source) -> SealedReplica:
        self._queue.check()
        check_id(description.segment)
        if description.end < description.base or description.size_bytes < 0:
            raise OutOfSequence(
                f"there is no segment [{description.base}, {description.end}) of {description.size_bytes} bytes"
            )
        while (running := self._running.get(description.segment)) is not None:
            await asyncio.shield(running)
        finished = self._running[description.segment] = asyncio.get_running_loop().create_future()
        try:
            if self._may_be_complete(description):
                try:
                    return await self._copy(description, self._local_source(description))
                except (CorruptReplica, UnknownSegment) as error:
                    log_event("local_copy_failed", logging.WARNING, segment=description.segment, error=error)
            return await self._copy(description, source)
        finally:
            del self._running[description.segment]
            finished.set_result(None)

    def _may_be_complete(self, description: SegmentDescription) -> bool:
        """Whether what is here can have all of the segment. If it has is seen when it is read."""
        replica = self._replicas.get(description.segment)
        return (
            replica is not None
            and replica.is_same_create(
                description.partition, description.base, description.epoch, description.header, description.durability
            )
            and replica.end >= description.end
        )

    def _local_source(self, description: SegmentDescription) -> Source:
        def read(offset: Offset) -> Awaitable[Buffer]:
            return self._read(description.segment, offset, description.end, LOCAL_READ_BYTES)

        return read

    async def _copy(self, description: SegmentDescription, source: Source) -> SealedReplica:
        self._open_store.low_water.check(description.size_bytes)
        draft = _Draft(self._open_store, description)
        try:
            while draft.size_bytes < description.size_bytes:
                batches = await source(draft.end)
                if not batches:
                    break
                self._queue.check()
                await self._open_store.run(draft.write, batches)
            sealed = draft.finish()
            await self._open_store.run(draft.flush)
            installed = await self._install(draft, sealed)
        except BaseException as error:
            self._open_store.in_background(draft.remove)
            raise self._translated(error) from error
        await installed
        return sealed

    def _translated(self, error: BaseException) -> BaseException:
        if isinstance(error, UnsoundBatch):
            return CorruptReplica(f"the source gave no sound batches: {error}")
        if isinstance(error, FlushFailed) or (isinstance(error, OSError) and not is_no_space(error)):
            failure = StoreFailed(f"a copy could not be written: {error}")
            self._open_store.fail(failure)
            return failure
        return NoSpace(f"the disk is full: {error}") if isinstance(error, OSError) else error

    async def _install(self, draft: "_Draft", sealed: SealedReplica) -> "asyncio.Future[None]":
        """Hand the entry to the writer. From then on the outcome does not depend on the caller."""
        new = draft.replica
        old = await self._quiet(new.segment)
        self._queue.check()
        new.seal(sealed)
        if old is None:
            new.created = asyncio.get_running_loop().create_future()
            self._replicas[new.segment] = new  # a create that comes now meets this one
        else:
            new.is_fenced = new.is_fence_durable = old.is_fenced
            old.is_sealing = True  # appends are refused
        self._open_store.block_indexes.hold(new, draft.index)

        def done(work: Work) -> None:
            self._replicas[new.segment] = new
            if old is not None:
                self._open_store.forget(old)
            if new.created is not None:
                new.created.set_result(None)
                new.created = None
            self._open_store.checkpoints.changed(new)

        def finished(outcome: "asyncio.Future[None]") -> None:
            if old is not None:
                old.is_sealing = False
            if outcome.exception() is None:
                return
            self._open_store.block_indexes.drop(new)
            self._open_store.in_background(draft.remove)
            if new.created is not None:
                self._replicas.pop(new.segment, None)
                new.created.set_exception(outcome.exception() or asyncio.CancelledError())
                new.created.exception()  # retrieved, even if no caller waits for it

        future = self._queue.submit(new, done, entry=new.to_entry())
        future.add_done_callback(finished)
        return asyncio.shield(future)

    async def _quiet(self, segment: SegmentId) -> Replica | None:
        """What is here of the segment, when nothing is on its way to it."""
        while (old := self._replicas.get(segment)) is not None and old.pending:
            await self._queue.idle(old)
        if old is not None and old.is_sealing:
            raise OutOfSequence(f"segment {segment} is being sealed")
        return old


class _Draft:
    """A copy on its way. Used by one thread at a time."""

    def __init__(self, open_store: OpenStore, description: SegmentDescription) -> None:
        self._open_store = open_store
        self._description = description
        self.replica = Replica(
            segment=description.segment,
            instance=open_store.checkpoints.next_instance(),
            partition=description.partition,
            base=description.base,
            epoch=description.epoch,
            header=description.header,
            durability=description.durability,
        )
        if self.replica.to_entry().payload_bytes > open_store.max_append_bytes:
            raise AppendTooLarge(f"the header of segment {description.segment} is too large")
        self.index = open_store.block_indexes.empty(self.replica)
        self.end = description.base
        self.size_bytes = 0
        self._crc = 0
        self._max_timestamp = -1
        self._unflushed_bytes = 0
        self._lock = threading.Lock()
        """Held while files are touched: a caller that goes away does not stop a thread, and what is removed must not
        come back."""
        self._is_removed = False

    def write(self, batches: Buffer) -> None:
        """Any thread."""
        with self._lock:
            if not self._is_removed:
                self._write(batches)

    def finish(self) -> SealedReplica:
        description = self._description
        if (self.size_bytes, self._crc) != (description.size_bytes, description.crc32c):
            raise CorruptReplica(
                f"the source gave {self.size_bytes} bytes with checksum {self._crc:#010x} "
                f"of segment {description.segment}, which has {description.size_bytes} and {description.crc32c:#010x}"
            )
        self.index.close_tail()
        self.replica.grow(description.end, self.size_bytes, self._max_timestamp, description.end)
        return SealedReplica(description.end, self.size_bytes, self._crc, self._max_timestamp)

    def flush(self) -> None:
        """Any thread."""
        with self._lock:
            if self.size_bytes and not self._is_removed:
                self._open_store.flush_files(self.replica, self.index)

    def remove(self) -> None:
        """Any thread."""
        with self._lock:
            self._is_removed = True
            self._open_store.remove_files(self.replica)

    def _write(self, batches: Buffer) -> None:
        description = self._description
        if self.size_bytes + len(batches) > description.size_bytes:
            raise CorruptReplica(
                f"the source has more than the {description.size_bytes} bytes of segment {description.segment}"
            )
        runs = check([batches], self.end, description.end, self._open_store.options.block_bytes)
        self._open_store.write_segment(self.replica, [batches], self.size_bytes)
        self._crc = crc32c(batches, self._crc)
        for run in runs:
            self.index.extend(run, description.end)
            self._max_timestamp = max(self._max_timestamp, run.max_timestamp)
        self.end = runs[-1].stop
        self.size_bytes += len(batches)
        self._unflushed_bytes += len(batches)
        if self._unflushed_bytes >= FLUSH_EVERY_BYTES:
            self._unflushed_bytes = 0
            with self._open_store.descriptors.borrow(self._open_store.paths.segment(self.replica.name)) as fd:
                flush(self._open_store.files, fd)
