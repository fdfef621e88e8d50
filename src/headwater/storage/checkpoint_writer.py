"""A checkpoint: flush the segment files, write down the replicas that changed, and free the journal.

Collected on the event loop, run in the background. The order is what makes it safe: segments are flushed before the
state that speaks of them is written, and the state is flushed before the journal loses its copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.storage.descriptors import Descriptors
from headwater.storage.entry import JournalEntry
from headwater.storage.files import Files, is_no_space
from headwater.storage.flush import flush, flush_directory, for_each
from headwater.storage.space import LowWater, Reserve
from headwater.storage.state_log import Checkpoint, StateLog


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    unsynced: Sequence[str]
    """Segment and index files that were written to since the last checkpoint."""
    has_new_names: bool
    changes: Sequence[JournalEntry]
    rewrites: bool
    """`changes` are all replicas there are."""
    checkpoint: Checkpoint


class CheckpointWriter:
    """Runs one job at a time."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        descriptors: Descriptors,
        state_log: StateLog,
        reserve: Reserve,
        low_water: LowWater,
        flush_threads: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._descriptors = descriptors
        self._state_log = state_log
        self._reserve = reserve
        self._low_water = low_water
        self._flush_threads = flush_threads

    def run(self, job: CheckpointJob) -> None:
        """Raises OSError (ENOSPC) if there was no room even after the reserve was given up; then nothing happened."""
        for_each(job.unsynced, self._flush, self._flush_threads)
        if job.has_new_names:
            flush_directory(self._files, self._directory)
        try:
            self._write_state(job)
        except OSError as error:
            if not is_no_space(error) or not self._reserve.release():
                raise
            self._write_state(job)
        else:
            self._reserve.take(self._low_water.line_bytes())

    def _flush(self, path: str) -> None:
        try:
            with self._descriptors.borrow(path) as fd:
                flush(self._files, fd)
        except FileNotFoundError:
            return  # deleted since

    def _write_state(self, job: CheckpointJob) -> None:
        if job.rewrites:
            self._state_log.rewrite(job.changes, job.checkpoint)
        else:
            self._state_log.append(job.changes, job.checkpoint)
