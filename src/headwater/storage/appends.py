"""Appends: checked, put in order, and handed to the writer, or written on the spot in `os` mode.

Calls for one replica take effect in the order in which they are made. An append that repeats something is compared with
what is here, which takes a while; the appends after it wait."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwater.logs.events import log_event
from headwater.model.ids import Offset, SegmentId
from headwater.model.replica import AppendTooLarge, Buffer, Durability, NoSpace, OutOfSequence, StoreFailed
from headwater.storage.batches import Run, check
from headwater.storage.entry import EntryKind, JournalEntry
from headwater.storage.files import is_no_space
from headwater.storage.open_store import OpenStore
from headwater.storage.replica import Replica
from headwater.storage.segment_file import locate
from headwater.storage.writer import Work


class WriterAppend(NamedTuple):
    """An append that the writer has."""

    replica: Replica
    written: "asyncio.Future[None]"

    async def finish(self) -> Offset:
        await self.written
        return self.replica.end

    def when_done(self, callback: Callable[[object], None]) -> None:
        self.written.add_done_callback(callback)

    def outcome(self) -> Offset:
        self.written.result()
        return self.replica.end


class Appends:
    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store
        self._options = open_store.options
        self._queue = open_store.queue
        self._block_indexes = open_store.block_indexes

    async def append(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset:
        await self._queue.room()
        started = self._start(segment, first, end, lac, batches)
        if started is None:
            return await self._append_in_order(self._open_store.writable(segment), first, end, lac, batches)
        return started if isinstance(started, int) else await started.finish()

    def append_soon(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> "Offset | WriterAppend | None":
        """As `append`, up to where it waits for the writer. None, and nothing has happened, where it would have to wait
        for something else before."""
        return self._start(segment, first, end, lac, batches) if self._queue.has_room else None

    def append_now(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset | None:
        """A small append in `os` mode is a copy into the page cache, which takes less than handing it over. None if it
        is not that, or if something is before it."""
        replica = self._open_store.writable(segment)
        if (
            replica.durability is not Durability.OS
            or replica.pending
            or replica.append_lock is not None
            or not batches
            or not first == replica.queued_end <= end
            or sum(map(len, batches)) >= self._options.inline_write_bytes
            or not self._queue.has_room
        ):
            return None
        runs = check(batches, first, end, self._options.block_bytes)
        self._load_now(replica)
        self._write_now(replica, [run.data for run in runs], replica.queued_bytes)
        self._appended(replica, end, lac, runs)
        return replica.end

    def _start(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> "Offset | WriterAppend | None":
        acked = self.append_now(segment, first, end, lac, batches)
        if acked is not None:
            return acked
        replica = self._open_store.writable(segment)
        if replica.append_lock is not None or first < replica.queued_end:
            return None
        return self._hand_over(replica, first, end, lac, batches)

    def _hand_over(
        self, replica: Replica, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> "Offset | WriterAppend":
        """Append behind everything that is here or on its way. Nothing is awaited, so calls keep their order."""
        if first != replica.queued_end or end < first:
            raise OutOfSequence(f"append of [{first}, {end}) to a replica of [{replica.base}, {replica.queued_end})")
        assert replica.end <= first, "what was handed over before is written before"
        if not batches and end == first:
            replica.lac = max(replica.lac, min(lac, replica.end))
            return replica.end
        runs = check(batches, first, end, self._options.block_bytes)
        size = sum(len(run.data) for run in runs)
        is_os = replica.durability is Durability.OS
        if not is_os and size > self._open_store.max_append_bytes:
            raise AppendTooLarge(
                f"{size} bytes in one append, at most {self._open_store.max_append_bytes} are possible"
            )
        self._load_now(replica)
        buffers = [run.data for run in runs]
        position = replica.queued_bytes

        def done(work: Work) -> None:
            self._appended(replica, end, lac, runs)

        entry = None
        if not is_os:
            max_timestamp = max((run.max_timestamp for run in runs), default=-1)
            entry = JournalEntry(  # by position, as everything that is made for each append
                EntryKind.APPEND, replica.segment, replica.instance, first, end, lac, position, max_timestamp, buffers
            )
        future = self._queue.submit(replica, done, entry=entry, buffers=buffers, position=position, is_append=True)
        replica.queued_end = end
        replica.queued_bytes = position + size
        return WriterAppend(replica, future)

    def _write_now(self, replica: Replica, buffers: Sequence[Buffer], position: int) -> None:
        try:
            self._open_store.write_segment(replica, buffers, position)
        except OSError as error:
            if not is_no_space(error):
                failure = StoreFailed(f"a write failed: {error}")
                self._open_store.fail(failure)
                raise failure from error
            raise NoSpace(f"the disk is full: {error}") from error

    def _appended(self, replica: Replica, end: Offset, lac: Offset, runs: list[Run]) -> None:
        index = replica.index
        assert index is not None, "an index stays in memory while something is written"
        assert end >= replica.end, "appends take effect in the order of the calls"
        size = replica.size_bytes
        max_timestamp = -1
        for run in runs:
            index.extend(run, lac)
            size += len(run.data)
            if run.max_timestamp > max_timestamp:
                max_timestamp = run.max_timestamp
        replica.grow(end, size, max_timestamp, lac)
        self._open_store.written(replica)

    async def _append_in_order(
        self, replica: Replica, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset:
        """Part of it is here already or on its way, or such an append is being looked at before this one."""
        lock = replica.append_lock = replica.append_lock or asyncio.Lock()
        replica.append_waiters += 1
        try:
            async with lock:
                self._open_store.writable(replica.segment)
                if first < replica.queued_end:
                    await self._queue.idle(replica)
                    batches = await self._new_part(replica, first, end, batches)
                    self._open_store.writable(replica.segment)
                    first = replica.end
                started = self._hand_over(replica, first, max(first, end), lac, batches)
                return started if isinstance(started, int) else await started.finish()
        finally:
            replica.append_waiters -= 1
            if not replica.append_waiters:
                replica.append_lock = None

    async def _new_part(
        self, replica: Replica, first: Offset, end: Offset, batches: Sequence[Buffer]
    ) -> Sequence[Buffer]:
        """Compare with what is here; return what is not."""
        if first < replica.base or end < first:
            raise OutOfSequence(f"append of [{first}, {end}) to a replica of [{replica.base}, {replica.end})")
        runs = check(batches, first, end, self._options.block_bytes)
        content = memoryview(b"".join(run.data for run in runs))
        index = await self._open_store.load(replica)
        read = self._block_indexes.reader(replica)
        start = locate(index, read, first)
        held = min(len(content), replica.size_bytes - start)
        if read(held, start) != content[:held]:
            log_event("append_differs", logging.ERROR, segment=replica.segment, first=first, end=replica.end)
            raise OutOfSequence(f"the bytes at offset {first} are not those that were appended before")
        return [content[held:]] if held < len(content) else []

    def _load_now(self, replica: Replica) -> None:
        """Without waiting: another call must not come in between."""
        if replica.index is None:
            self._open_store.install(replica, self._block_indexes.load(replica, replica.end, replica.size_bytes))
            self._open_store.writable(replica.segment)
