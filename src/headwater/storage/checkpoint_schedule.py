"""When a checkpoint is due and what goes into it: the side of the event loop.

Every change of a replica is reported here. The writer asks for a checkpoint when a file of the journal is full; since
it reported the outcome of all earlier groups before, what is collected on hearing that includes them."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from headwater.logs.events import log_event
from headwater.model.ids import SegmentId
from headwater.model.replica import Durability, NoSpace, StoreFailed
from headwater.storage.checkpoint_writer import CheckpointJob, CheckpointWriter
from headwater.storage.entry import JournalEntry
from headwater.storage.files import is_no_space
from headwater.storage.journal import Journal
from headwater.storage.replica import Replica
from headwater.storage.segment_file import ReplicaPaths
from headwater.storage.state_log import Checkpoint, StateLog, deleted


class CheckpointSchedule:
    def __init__(
        self,
        checkpointer: CheckpointWriter,
        replicas: dict[SegmentId, Replica],
        paths: ReplicaPaths,
        state_log: StateLog,
        *,
        boot_id: str,
        next_instance: int,
        executor: Executor | None,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Without an executor, checkpoints run where they are asked for."""
        self._checkpointer = checkpointer
        self._replicas = replicas
        self._paths = paths
        self._state_log = state_log
        self._boot_id = boot_id
        self._next_instance = next_instance
        self._executor = executor
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._journal: Journal | None = None
        self._changed: dict[SegmentId, Replica] = {}
        self._forgotten: dict[SegmentId, int] = {}
        self._unsynced: set[Replica] = set()
        self._has_new_names = False
        self._is_running = False
        self._requested: tuple[int, int] | None = None
        self.idle = asyncio.Event()
        """Set while no checkpoint runs."""
        self.idle.set()

    def attach(self, journal: Journal) -> None:
        self._journal = journal

    def next_instance(self) -> int:
        instance = self._next_instance
        self._next_instance += 1
        return instance

    def changed(self, replica: Replica) -> None:
        if self._replicas.get(replica.segment) is replica:  # not deleted before this came to pass
            self._changed[replica.segment] = replica

    def written(self, replica: Replica) -> None:
        """Its segment file has bytes that were not flushed."""
        if self._replicas.get(replica.segment) is not replica:
            return
        if replica not in self._unsynced:
            self._unsynced.add(replica)
            self._has_new_names = True
        if replica.durability is Durability.SYNC:
            self._changed[replica.segment] = replica

    def synced(self, replica: Replica) -> None:
        self._unsynced.discard(replica)

    def forgotten(self, replica: Replica) -> None:
        """It was deleted, or another instance took its place."""
        self._unsynced.discard(replica)
        if self._changed.get(replica.segment) is replica:
            del self._changed[replica.segment]
        if replica.segment not in self._replicas:
            self._forgotten[replica.segment] = replica.instance

    def request(self, first_generation: int, first_group: int) -> None:
        """In the writer's thread: earlier generations of the journal are full."""
        if self._executor is None:
            self._start(first_generation, first_group)
            return
        try:
            self._loop.call_soon_threadsafe(self._start, first_generation, first_group)
        except RuntimeError as error:
            raise StoreFailed("the event loop is closed") from error

    def collect_last(self) -> CheckpointJob:
        """For closing: flush everything, so that the next start has nothing to look for."""
        assert self._journal is not None, "a journal is attached before the store is used"
        return self._collect(self._journal.generation + 1, self._journal.next_group, boot_id="")

    def run_last(self, job: CheckpointJob) -> None:
        """Any thread."""
        if (error := _outcome(self._checkpointer.run, job)) is not None:
            log_event("store_not_closed_cleanly", logging.ERROR, error=error)

    def _start(self, first_generation: int, first_group: int) -> None:
        if self._is_running:
            self._requested = (first_generation, first_group)
            return
        self._is_running = True
        self.idle.clear()
        job = self._collect(first_generation, first_group, self._boot_id)
        if self._executor is None:
            self._finish(job, _outcome(self._run, job))
            return
        future = self._loop.run_in_executor(self._executor, _outcome, self._run, job)
        future.add_done_callback(lambda done: self._finish(job, done.result()))

    def _collect(self, first_generation: int, first_group: int, boot_id: str) -> CheckpointJob:
        unsynced: list[str] = []
        for replica in list(self._unsynced):
            is_os = replica.durability is Durability.OS
            if is_os and boot_id:
                continue  # flushed only when it is sealed, or the store closes
            unsynced.append(self._paths.segment(replica.name))
            self._unsynced.discard(replica)
            if is_os:
                replica.synced_end, replica.synced_bytes = replica.end, replica.size_bytes
                self._changed[replica.segment] = replica
            if replica.is_index_unsynced:
                unsynced.append(self._paths.index(replica.name))
                replica.is_index_unsynced = False
        rewrites = self._state_log.must_rewrite
        changes: list[JournalEntry] = []
        if rewrites:
            changes += [replica.to_entry() for replica in self._replicas.values() if replica.created is None]
        else:
            changes += [deleted(segment, instance) for segment, instance in self._forgotten.items()]
            changes += [replica.to_entry() for replica in self._changed.values()]
        has_new_names, self._has_new_names = self._has_new_names, False
        self._changed.clear()
        self._forgotten.clear()
        checkpoint = Checkpoint(first_generation, first_group, self._next_instance, boot_id)
        return CheckpointJob(unsynced, has_new_names, changes, rewrites, checkpoint)

    def _run(self, job: CheckpointJob) -> None:
        assert self._journal is not None, "a journal is attached before the store is used"
        self._checkpointer.run(job)
        self._journal.recycle(job.checkpoint.first_generation)

    def _finish(self, job: CheckpointJob, error: Exception | None) -> None:
        self._is_running = False
        if error is None:
            requested, self._requested = self._requested, None
            if requested is not None:
                self._start(*requested)
                return
        elif isinstance(error, OSError) and is_no_space(error):
            self._postpone(job, error)
        else:
            failure = StoreFailed(f"checkpoint failed: {error}")
            failure.__cause__ = error
            self._on_failure(failure)
        self.idle.set()

    def _postpone(self, job: CheckpointJob, error: OSError) -> None:
        """The next checkpoint, which starts when the journal needs a file again, names everything."""
        assert self._journal is not None, "a journal is attached before the store is used"
        log_event("checkpoint_found_no_room", logging.ERROR, error=error)
        self._requested = None
        self._has_new_names = True
        for segment, replica in self._replicas.items():
            if replica.created is None:
                self._changed[segment] = replica
        for entry in job.changes:
            if entry.segment not in self._replicas:
                self._forgotten[entry.segment] = entry.instance
        self._journal.refuse(NoSpace(f"no room for a checkpoint: {error}"))


def _outcome(function: Callable[[CheckpointJob], None], job: CheckpointJob) -> Exception | None:
    try:
        function(job)
    except Exception as error:
        return error
    return None
