"""The parts of an open store and what connects them: threads, checkpoints, failure, opening and closing.

Owned by the event loop, except where a method says otherwise."""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from headwater.logs.events import log_event
from headwater.model.ids import SegmentId
from headwater.model.replica import Buffer, Fenced, StoreFailed, UnknownSegment
from headwater.storage.block_index import BlockIndex
from headwater.storage.block_index_cache import BlockIndexCache, Loaded, write_index
from headwater.storage.checkpoint_schedule import CheckpointSchedule
from headwater.storage.checkpoint_writer import CheckpointWriter
from headwater.storage.commit_queue import CommitQueue
from headwater.storage.descriptors import Descriptors
from headwater.storage.files import Files, is_no_space
from headwater.storage.flush import FlushFailed, flush, flush_directory
from headwater.storage.identity import Identity, load_or_format
from headwater.storage.journal import Journal
from headwater.storage.options import StoreOptions
from headwater.storage.recovery import RecoveredReplicas, Recovery
from headwater.storage.replica import Replica
from headwater.storage.segment_file import ReplicaPaths
from headwater.storage.space import LowWater, Reserve
from headwater.storage.state_log import StateLog
from headwater.storage.writer import CommitWriter, GroupCommit, InlineWriter, WriterThread

P = ParamSpec("P")
T = TypeVar("T")


class OpenStore:
    def __init__(
        self,
        files: Files,
        directory: Path,
        options: StoreOptions,
        identity: Identity,
        lock_fd: int,
        state_log: StateLog,
        reserve: Reserve,
        recovered: RecoveredReplicas,
        on_failure: Callable[[Exception], None] | None,
    ) -> None:
        self.files = files
        self.options = options
        self.identity = identity
        self.replicas: dict[SegmentId, Replica] = recovered.replicas
        self.paths = ReplicaPaths(directory / "segments")
        self.descriptors = Descriptors(files, options.open_files)
        self.block_indexes = BlockIndexCache(
            files,
            self.paths,
            self.descriptors,
            block_bytes=options.block_bytes,
            max_bytes=options.index_cache_bytes,
        )
        self.low_water = LowWater(files, directory, options.low_water_fraction, options.low_water_bytes)
        self._loop = asyncio.get_running_loop()
        self._lock_fd = lock_fd
        self._on_failure = on_failure
        reserve.take(self.low_water.line_bytes())
        self._background = ThreadPoolExecutor(1, "headwater-checkpoint")
        self._readers = ThreadPoolExecutor(max(options.reader_threads, 1), "headwater-read")
        self.checkpoints = self._make_checkpoints(state_log, reserve, recovered.next_instance)
        self._journal = Journal(
            files,
            directory,
            file_bytes=options.journal_file_bytes,
            max_files=options.journal_files,
            salt=identity.salt,
            generation=recovered.next_generation,
            group=recovered.next_group,
            on_full=self.checkpoints.request,
        )
        self.checkpoints.attach(self._journal)
        self._commit = GroupCommit(files, self.paths, self.descriptors, self._journal)
        self.queue = CommitQueue(self._loop, options.max_queued_bytes, self._failed)
        writer_type = InlineWriter if options.runs_inline else WriterThread
        self._writer: CommitWriter = writer_type(
            self._loop,
            self._commit,
            self.queue.finished,
            max_group_bytes=min(options.max_group_bytes, self._journal.capacity_bytes),
            max_group_entries=options.max_group_entries,
        )
        self.queue.attach(self._writer)
        self._is_closed = False

    def _make_checkpoints(self, state_log: StateLog, reserve: Reserve, next_instance: int) -> CheckpointSchedule:
        runs_inline = self.options.runs_inline
        writer = CheckpointWriter(
            self.files,
            self.paths.directory,
            self.descriptors,
            state_log,
            reserve,
            self.low_water,
            1 if runs_inline else self.options.flush_threads,
        )
        return CheckpointSchedule(
            writer,
            self.replicas,
            self.paths,
            state_log,
            boot_id=self.files.boot_id(),
            next_instance=next_instance,
            executor=None if runs_inline else self._background,
            on_failure=self.fail,
        )

    @classmethod
    async def open(
        cls,
        directory: Path,
        files: Files,
        options: StoreOptions,
        on_failure: Callable[[Exception], None] | None,
    ) -> "OpenStore":
        files.make_directory(directory / "segments")
        lock_fd = files.lock(directory / "lock")
        try:
            identity = load_or_format(files, directory)
            state_log = StateLog(files, directory / "state", identity.salt)
            reserve = Reserve(files, directory / "reserve", options.reserve_bytes)

            def recover() -> RecoveredReplicas:
                return Recovery(
                    files,
                    directory,
                    ReplicaPaths(directory / "segments"),
                    state_log,
                    salt=identity.salt,
                    block_bytes=options.block_bytes,
                    boot_id=files.boot_id(),
                    flush_threads=1 if options.runs_inline else options.flush_threads,
                ).run()

            def recover_or_release() -> RecoveredReplicas:
                try:
                    return recover()
                except OSError as error:
                    if not is_no_space(error) or not reserve.release():
                        raise
                    return recover()

            recovered = recover_or_release() if options.runs_inline else await asyncio.to_thread(recover_or_release)
            return cls(files, directory, options, identity, lock_fd, state_log, reserve, recovered, on_failure)
        except BaseException:
            files.close(lock_fd)
            raise

    @property
    def max_append_bytes(self) -> int:
        return self._journal.capacity_bytes

    def known(self, segment: SegmentId) -> Replica:
        """The replica of a segment, while the store can be trusted."""
        self.queue.check()
        replica = self.replicas.get(segment)
        if replica is None or replica.is_deleted:
            raise UnknownSegment(f"this store has no replica of segment {segment}")
        return replica

    def writable(self, segment: SegmentId) -> Replica:
        replica = self.known(segment)
        if replica.is_fenced or replica.is_sealed or replica.is_sealing:
            raise Fenced(f"segment {segment} takes no more appends")
        return replica

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something slow beside the event loop."""
        if self.options.runs_inline:
            return function(*args, **kwargs)
        return await self._loop.run_in_executor(self._readers, functools.partial(function, *args, **kwargs))

    def in_background(self, function: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run something that no caller waits for, and that the next start makes up for if it does not run."""
        if self.options.runs_inline:
            function(*args, **kwargs)
            return
        try:
            self._background.submit(function, *args, **kwargs)
        except RuntimeError as error:
            log_event("skipped_after_close", function=function, error=error)

    async def read(self, replica: Replica, position: int, length: int) -> Buffer:
        """Bytes of a segment file: at once if they are in memory and not many, else in a thread."""
        if length <= self.options.inline_read_bytes:
            try:
                with self.descriptors.borrow(self.paths.segment(replica.name)) as fd:
                    data = self.files.pread_cached(fd, length, position)
            except FileNotFoundError:
                data = b""
            if data is not None:
                return data
        return await self.run(self.block_indexes.reader(replica), length, position)

    # Indexes

    async def load(self, replica: Replica) -> BlockIndex:
        if replica.index is None:
            loaded = await self.run(self.block_indexes.load, replica, replica.end, replica.size_bytes)
            self.install(replica, loaded)
        index = replica.index
        assert index is not None, "what was loaded is there"
        return index

    def install(self, replica: Replica, loaded: Loaded) -> None:
        """Take over what was loaded, unless another call was faster. A replica whose file proves less than what was
        acknowledged is cut there, fenced, and in doubt."""
        if replica.index is not None:
            return
        if loaded.size_bytes < replica.size_bytes:
            log_event(
                "replica_damaged",
                logging.ERROR,
                segment=replica.segment,
                end=replica.end,
                sound_end=loaded.end,
                sealed=replica.is_sealed,
            )
            replica.in_doubt = True
            if not replica.is_sealed:
                replica.is_fenced = True
                replica.shrink(loaded.end, loaded.size_bytes)
        self.block_indexes.hold(replica, loaded.index)

    # Writing

    def write_segment(self, replica: Replica, buffers: Sequence[Buffer], position: int) -> None:
        """Write without a flush, here and now. When the disk is full, the file is as it was."""
        with self.descriptors.borrow(self.paths.segment(replica.name), create=True) as fd:
            try:
                self.files.pwritev(fd, buffers, position)
            except OSError as error:
                if is_no_space(error):
                    self.files.truncate(fd, position)
                raise

    def written(self, replica: Replica) -> None:
        """Bytes of the replica were acknowledged."""
        self.checkpoints.written(replica)
        if replica.index is not None:
            self.block_indexes.touch(replica, replica.index)
        self.block_indexes.write_if_due(replica)

    def forget(self, replica: Replica) -> None:
        """The replica was deleted: its files may go."""
        self.block_indexes.drop(replica)
        self.checkpoints.forgotten(replica)
        self.in_background(self.remove_files, replica)

    async def flush_segment(self, replica: Replica, index: BlockIndex) -> None:
        """Flush the segment, and its index in complete blocks."""
        if replica.size_bytes:
            try:
                await self.run(self.flush_files, replica, index)
            except FlushFailed as error:
                failure = StoreFailed(str(error))
                self.fail(failure)
                raise failure from error
        self.checkpoints.synced(replica)

    def cut_segment(self, replica: Replica, size_bytes: int) -> None:
        """Give up the room behind what belongs to the segment. Any thread."""
        try:
            with self.descriptors.borrow(self.paths.segment(replica.name)) as fd:
                if self.files.size_bytes(fd) > size_bytes:
                    self.files.truncate(fd, size_bytes)
        except FileNotFoundError:
            return

    def flush_files(self, replica: Replica, index: BlockIndex) -> None:
        """Flush the segment, its index and their names. Any thread."""
        with self.descriptors.borrow(self.paths.segment(replica.name)) as fd:
            flush(self.files, fd)
        try:
            write_index(self.files, self.descriptors, self.paths, replica, index)
            with self.descriptors.borrow(self.paths.index(replica.name)) as fd:
                flush(self.files, fd)
        except OSError as error:
            if not is_no_space(error):
                raise
            log_event("index_not_written", logging.WARNING, segment=replica.segment, error=error)
        flush_directory(self.files, self.paths.directory)

    def remove_files(self, replica: Replica) -> None:
        """Any thread. What a crash leaves behind is removed when the store opens."""
        for path in (self.paths.segment(replica.name), self.paths.index(replica.name)):
            self.descriptors.forget(path)
            try:
                self.files.unlink(path)
            except OSError as error:
                log_event("file_not_removed", logging.WARNING, path=path, error=error)

    # Failing and closing

    def fail(self, error: Exception) -> None:
        """The store has failed: nothing is acknowledged any more."""
        self._commit.fail(error)
        self._journal.refuse(error)
        self.queue.fail(error)

    def _failed(self, error: Exception) -> None:
        log_event("store_failed", logging.CRITICAL, error=error)
        self._commit.fail(error)
        self._journal.refuse(error)
        if self._on_failure is not None:
            self._on_failure(error)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        failure = self.queue.failure
        self.queue.close()
        if self.options.runs_inline:
            self._writer.close()
        else:
            await self._loop.run_in_executor(None, self._writer.close)
        await self.checkpoints.idle.wait()
        if failure is None and not self._commit.has_failed:
            for replica in self.block_indexes.held():
                self.block_indexes.write(replica)
            await self.run(self.checkpoints.run_last, self.checkpoints.collect_last())
        self._background.shutdown()
        self._readers.shutdown()
        self._journal.close()
        self.descriptors.close()
        self.files.close(self._lock_fd)
