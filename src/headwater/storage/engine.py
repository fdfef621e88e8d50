"""The parts of an open store and what connects them: threads, checkpoints, failure, opening and closing.

Owned by the event loop, except where a method says otherwise."""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from headwater.model.ids import SegmentId
from headwater.model.replica import Buffer, Durability, NoSpace, StoreFailed
from headwater.storage.block_index import BlockIndex
from headwater.storage.checkpoint import Checkpointer, CheckpointJob
from headwater.storage.commit_queue import CommitQueue
from headwater.storage.descriptors import Descriptors
from headwater.storage.entry import Entry
from headwater.storage.files import Files, is_no_space
from headwater.storage.flush import FlushFailed, flush, flush_directory
from headwater.storage.identity import Identity, load_or_format
from headwater.storage.journal import Journal
from headwater.storage.options import StoreOptions
from headwater.storage.recovery import Recovered, Recovery
from headwater.storage.replica import Replica
from headwater.storage.segment_file import Paths
from headwater.storage.shelf import Loaded, Shelf, write_index
from headwater.storage.space import LowWater, Reserve
from headwater.storage.state_log import Checkpoint, StateLog, deleted
from headwater.storage.writer import GroupCommit, InlineLane, Lane, WriterThread

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Engine:
    def __init__(
        self,
        files: Files,
        directory: Path,
        options: StoreOptions,
        identity: Identity,
        lock_fd: int,
        state_log: StateLog,
        recovered: Recovered,
        on_failure: Callable[[Exception], None] | None,
    ) -> None:
        self.files = files
        self.options = options
        self.identity = identity
        self.replicas: dict[SegmentId, Replica] = recovered.replicas
        self.paths = Paths(directory / "segments")
        self.descriptors = Descriptors(files, options.open_files)
        self.shelf = Shelf(
            files,
            self.paths,
            self.descriptors,
            block_bytes=options.block_bytes,
            max_bytes=options.index_cache_bytes,
        )
        self.low_water = LowWater(files, directory, options.low_water_fraction, options.low_water_bytes)
        self._loop = asyncio.get_running_loop()
        self._lock_fd = lock_fd
        self._state_log = state_log
        self._boot_id = files.boot_id()
        self._next_instance = recovered.next_instance
        self._on_failure = on_failure
        self._reserve = Reserve(files, directory / "reserve", options.reserve_bytes)
        self._reserve.take(self.low_water.line_bytes())
        self._checkpointer = Checkpointer(
            files, self.paths.directory, self.descriptors, state_log, self._reserve, self.low_water
        )
        self._journal = Journal(
            files,
            directory,
            file_bytes=options.journal_file_bytes,
            max_files=options.journal_files,
            salt=identity.salt,
            generation=recovered.next_generation,
            group=recovered.next_group,
            on_full=self._on_journal_full,
        )
        self._commit = GroupCommit(files, self.paths, self.descriptors, self._journal)
        self.queue = CommitQueue(self._loop, options.max_queued_bytes, self._failed)
        lane_type = InlineLane if options.runs_inline else WriterThread
        self._lane: Lane = lane_type(
            self._loop,
            self._commit,
            self.queue.finished,
            max_group_bytes=min(options.max_group_bytes, self._journal.capacity_bytes),
            max_group_entries=options.max_group_entries,
        )
        self.queue.attach(self._lane)
        self._background = ThreadPoolExecutor(1, "headwater-checkpoint")
        self._readers = ThreadPoolExecutor(max(options.reader_threads, 1), "headwater-read")
        self._changed: dict[SegmentId, Replica] = {}
        self._forgotten: dict[SegmentId, int] = {}
        self._unsynced: set[Replica] = set()
        self._has_new_names = False
        self._is_checkpointing = False
        self._wanted: tuple[int, int] | None = None
        self._settled: asyncio.Event = asyncio.Event()
        self._settled.set()
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        directory: Path,
        files: Files,
        options: StoreOptions,
        on_failure: Callable[[Exception], None] | None,
    ) -> "Engine":
        files.make_directory(directory / "segments")
        lock_fd = files.lock(directory / "lock")
        try:
            identity = load_or_format(files, directory)
            state_log = StateLog(files, directory / "state", identity.salt)
            recovery = Recovery(
                files,
                directory,
                Paths(directory / "segments"),
                state_log,
                identity.salt,
                options.block_bytes,
                files.boot_id(),
            )
            if options.runs_inline:
                recovered = recovery.run()
            else:
                recovered = await asyncio.to_thread(recovery.run)
            return cls(files, directory, options, identity, lock_fd, state_log, recovered, on_failure)
        except BaseException:
            files.close(lock_fd)
            raise

    @property
    def max_append_bytes(self) -> int:
        return self._journal.capacity_bytes

    def next_instance(self) -> int:
        instance = self._next_instance
        self._next_instance += 1
        return instance

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something slow beside the event loop."""
        if self.options.runs_inline:
            return function(*args, **kwargs)
        return await self._loop.run_in_executor(self._readers, functools.partial(function, *args, **kwargs))

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
        return await self.run(self.shelf.reader(replica), length, position)

    # Indexes

    async def load(self, replica: Replica) -> BlockIndex:
        if replica.index is None:
            loaded = await self.run(self.shelf.load, replica, replica.end, replica.size_bytes)
            self.install(replica, loaded)
        index = replica.index
        assert index is not None, "what was loaded is there"
        return index

    def install(self, replica: Replica, loaded: Loaded) -> None:
        """Take over what was loaded, unless somebody was faster. A replica whose file proves less than what
        was acknowledged is cut there, fenced, and in doubt."""
        if replica.index is not None:
            return
        if loaded.size_bytes < replica.size_bytes:
            log.error(
                "replica_damaged segment=%s end=%d sound_end=%d sealed=%s",
                replica.segment,
                replica.end,
                loaded.end,
                replica.is_sealed,
            )
            replica.in_doubt = True
            if not replica.is_sealed:
                replica.is_fenced = True
                replica.shrink(loaded.end, loaded.size_bytes)
        self.shelf.hold(replica, loaded.index)

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
        if replica not in self._unsynced:
            self._unsynced.add(replica)
            self._has_new_names = True
        if replica.durability is Durability.SYNC:
            self._changed[replica.segment] = replica
        if replica.index is not None:
            self.shelf.touch(replica, replica.index)
        self.shelf.write_if_due(replica)

    def changed(self, replica: Replica) -> None:
        self._changed[replica.segment] = replica

    def forgotten(self, replica: Replica) -> None:
        self._changed.pop(replica.segment, None)
        self._unsynced.discard(replica)
        self._forgotten[replica.segment] = replica.instance
        if self.options.runs_inline:
            self._remove_files(replica)
        else:
            self._background.submit(self._remove_files, replica)

    async def flush_segment(self, replica: Replica, index: BlockIndex) -> None:
        """Flush the segment, and its index in complete blocks."""
        if replica.size_bytes:
            try:
                await self.run(self._flush_segment, replica, index)
            except FlushFailed as error:
                failure = StoreFailed(str(error))
                self.fail(failure)
                raise failure from error
        self._unsynced.discard(replica)

    def cut_segment(self, replica: Replica, size_bytes: int) -> None:
        """Give up the room behind what belongs to the segment. Any thread."""
        try:
            with self.descriptors.borrow(self.paths.segment(replica.name)) as fd:
                if self.files.size_bytes(fd) > size_bytes:
                    self.files.truncate(fd, size_bytes)
        except FileNotFoundError:
            return

    def _flush_segment(self, replica: Replica, index: BlockIndex) -> None:
        with self.descriptors.borrow(self.paths.segment(replica.name)) as fd:
            flush(self.files, fd)
        try:
            write_index(self.files, self.descriptors, self.paths, replica, index)
            with self.descriptors.borrow(self.paths.index(replica.name)) as fd:
                flush(self.files, fd)
        except OSError as error:
            if not is_no_space(error):
                raise
            log.warning("index_not_written segment=%s error=%s", replica.segment, error)
        flush_directory(self.files, self.paths.directory)

    def _remove_files(self, replica: Replica) -> None:
        """Any thread. What a crash leaves behind is removed when the store opens."""
        for path in (self.paths.segment(replica.name), self.paths.index(replica.name)):
            self.descriptors.forget(path)
            try:
                self.files.unlink(path)
            except OSError as error:
                log.warning("file_not_removed path=%s error=%s", path, error)

    # Checkpoints

    def _on_journal_full(self, first_generation: int, first_group: int) -> None:
        """In the writer's thread, which posted the outcome of all groups before this: what the event loop
        collects on hearing this includes them."""
        if self.options.runs_inline:
            self._start_checkpoint(first_generation, first_group)
            return
        try:
            self._loop.call_soon_threadsafe(self._start_checkpoint, first_generation, first_group)
        except RuntimeError as error:
            raise StoreFailed("the event loop is closed") from error

    def _start_checkpoint(self, first_generation: int, first_group: int) -> None:
        if self._is_checkpointing:
            self._wanted = (first_generation, first_group)
            return
        self._is_checkpointing = True
        self._settled.clear()
        job = self._collect(first_generation, first_group, self._boot_id)
        if self.options.runs_inline:
            self._checkpointed(job, _outcome(self._run_checkpoint, job))
            return
        future = self._loop.run_in_executor(self._background, _outcome, self._run_checkpoint, job)
        future.add_done_callback(lambda done: self._checkpointed(job, done.result()))

    def _collect(self, first_generation: int, first_group: int, boot_id: str) -> CheckpointJob:
        unsynced: list[str] = []
        for replica in list(self._unsynced):
            if replica.durability is Durability.OS and boot_id:
                continue  # flushed only when the store closes
            unsynced.append(self.paths.segment(replica.name))
            self._unsynced.discard(replica)
            if replica.durability is Durability.OS:
                replica.synced_end, replica.synced_bytes = replica.end, replica.size_bytes
                self._changed[replica.segment] = replica
            if replica.is_index_unsynced:
                unsynced.append(self.paths.index(replica.name))
                replica.is_index_unsynced = False
        rewrites = self._state_log.must_rewrite
        changes: list[Entry] = []
        if rewrites:
            changes += [replica.to_entry() for replica in self.replicas.values() if replica.created is None]
        else:
            changes += [deleted(segment, instance) for segment, instance in self._forgotten.items()]
            changes += [replica.to_entry() for replica in self._changed.values()]
        has_new_names, self._has_new_names = self._has_new_names, False
        self._changed.clear()
        self._forgotten.clear()
        checkpoint = Checkpoint(first_generation, first_group, self._next_instance, boot_id)
        return CheckpointJob(unsynced, has_new_names, changes, rewrites, checkpoint)

    def _run_checkpoint(self, job: CheckpointJob) -> None:
        self._checkpointer.run(job)
        self._journal.recycle(job.checkpoint.first_generation)

    def _checkpointed(self, job: CheckpointJob, error: Exception | None) -> None:
        self._is_checkpointing = False
        if error is None:
            wanted, self._wanted = self._wanted, None
            if wanted is not None:
                self._start_checkpoint(*wanted)
                return
        elif isinstance(error, OSError) and is_no_space(error):
            # All replicas are collected again by the next one, which starts when an append needs it.
            log.error("checkpoint_found_no_room error=%s", error)
            self._wanted = None
            self._has_new_names = True
            self._changed = {segment: replica for segment, replica in self.replicas.items() if replica.created is None}
            self._forgotten |= {
                entry.segment: entry.instance for entry in job.changes if entry.segment not in self.replicas
            }
            self._journal.refuse(NoSpace(f"no room for a checkpoint: {error}"))
        else:
            failure = StoreFailed(f"checkpoint failed: {error}")
            failure.__cause__ = error
            self.fail(failure)
        self._settled.set()

    # Failing and closing

    def fail(self, error: Exception) -> None:
        """The store has failed: nothing is acknowledged any more."""
        self._commit.fail(error)
        self._journal.refuse(error)
        self.queue.fail(error)

    def _failed(self, error: Exception) -> None:
        log.critical("store_failed error=%s", error)
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
            self._lane.close()
        else:
            await self._loop.run_in_executor(None, self._lane.close)
        await self._settled.wait()
        if failure is None and not self._commit.has_failed:
            for replica in self.shelf.held():
                self.shelf.write(replica)
            job = self._collect(self._journal.generation + 1, self._journal.next_group, "")
            error = await self.run(_outcome, self._checkpointer.run, job)
            if error is not None:
                log.error("store_not_closed_cleanly error=%s", error)
        self._background.shutdown()
        self._readers.shutdown()
        self._journal.close()
        self.descriptors.close()
        self.files.close(self._lock_fd)


def _outcome(function: Callable[[CheckpointJob], None], job: CheckpointJob) -> Exception | None:
    try:
        function(job)
    except Exception as error:
        return error
    return None
