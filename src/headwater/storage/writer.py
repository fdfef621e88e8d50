"""The writer: one thread that takes everything that waits, writes it, flushes once, and wakes all callers that wait.

No timer: while one group is being flushed, the next one forms. For each group, in this order:

1. the bytes of appends go to their segment files (not flushed);
2. the journal gets all entries of the group in one write, and is flushed;
3. the event loop hears of all of them in one call.

So the segment file has whatever was acknowledged, and readers need nothing else. A write that finds the disk
full fails its append and all later ones that were queued for that replica, and the file is cut back. Any other error
is final: the store has failed.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headwater.model.replica import Buffer, NoSpace, StoreFailed
from headwater.storage.descriptors import Descriptors
from headwater.storage.entry import PREFIX_BYTES, JournalEntry
from headwater.storage.files import Files, is_no_space
from headwater.storage.journal import Journal
from headwater.storage.replica import Replica
from headwater.storage.segment_file import ReplicaPaths


class Work:
    """One call that waits for the disk. Written to the segment file if it has buffers, to the journal if it has an
    entry."""

    __slots__ = (
        "attempt",
        "buffers",
        "done",
        "entry",
        "error",
        "future",
        "is_append",
        "position",
        "replica",
        "size_bytes",
    )

    def __init__(
        self,
        replica: Replica,
        future: asyncio.Future[None],
        done: Callable[["Work"], None],
        *,
        entry: JournalEntry | None = None,
        buffers: Sequence[Buffer] = (),
        position: int = 0,
        is_append: bool = False,
    ) -> None:
        self.replica = replica
        self.future = future
        self.done = done
        """Applied on the event loop, before the caller is woken, if and only if the work succeeded."""
        self.entry = entry
        self.buffers = buffers
        self.position = position
        self.is_append = is_append
        self.attempt = replica.attempt
        self.size_bytes = (sum(map(len, buffers)) if entry is None else entry.payload_bytes) + PREFIX_BYTES
        self.error: Exception | None = None


class CommitWriter(Protocol):
    """How work reaches the writer, and how the outcome comes back."""

    def put(self, work: Work) -> None: ...

    def close(self) -> None:
        """Return when everything put in is done."""


class GroupCommit:
    """Steps 1 and 2 for one group. Used by one thread at a time."""

    def __init__(self, files: Files, paths: ReplicaPaths, descriptors: Descriptors, journal: Journal) -> None:
        self._files = files
        self._paths = paths
        self._descriptors = descriptors
        self._journal = journal
        self._failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        """Nothing more is written; all work gets this error."""
        self._failure = self._failure or error

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def write_segments(self, group: Sequence[Work]) -> None:
        by_replica: dict[Replica, list[Work]] = {}
        for work in group:
            if self._failure is not None:
                work.error = self._failure
            elif not work.is_append:
                continue
            elif work.attempt <= work.replica.broken_attempt:
                work.error = NoSpace("an append before this one found the disk full")
            elif work.buffers:
                by_replica.setdefault(work.replica, []).append(work)
        for replica, works in by_replica.items():
            try:
                self._write_segment(replica, works)
            except Exception as error:
                self._refuse(works, error)

    def write_journal(self, group: Sequence[Work]) -> None:
        works = [work for work in group if work.entry is not None and work.error is None]
        if not works:
            return
        try:
            self._journal.write([work.entry for work in works if work.entry is not None])
        except Exception as error:
            self._refuse(works, error)

    def _write_segment(self, replica: Replica, works: list[Work]) -> None:
        buffers = works[0].buffers if len(works) == 1 else [part for work in works for part in work.buffers]
        position = works[0].position
        with self._descriptors.borrow(self._paths.segment(replica.name), create=True) as fd:
            self._files.pwritev(fd, buffers, position)

    def _refuse(self, works: list[Work], error: Exception) -> None:
        if not isinstance(error, NoSpace) and not (isinstance(error, OSError) and is_no_space(error)):
            self._fail_all(works, error)  # a mistake of ours included: what is half done must not be built upon
            return
        cut: set[Replica] = set()
        for work in works:
            work.error = NoSpace(f"the disk is full: {error}")
            if not work.is_append:
                continue
            work.replica.broken_attempt = work.attempt
            if work.replica not in cut:
                cut.add(work.replica)
                self._cut_back(work)

    def _cut_back(self, work: Work) -> None:
        """Give up the room of bytes that were not acknowledged. They are not looked at again in any case."""
        try:
            with self._descriptors.borrow(self._paths.segment(work.replica.name), create=True) as fd:
                if self._files.size_bytes(fd) > work.position:
                    self._files.truncate(fd, work.position)
        except OSError as error:
            self._fail_all([work], error)

    def _fail_all(self, works: list[Work], error: Exception) -> None:
        failure = StoreFailed(f"the store has failed: {error}")
        failure.__cause__ = error
        self.fail(failure)
        for work in works:
            work.error = failure


class WriterThread:
    """The writer of production: a dedicated thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        commit: GroupCommit,
        on_done: Callable[[Sequence[Work]], None],
        *,
        max_group_bytes: int,
        max_group_entries: int,
    ) -> None:
        self._loop = loop
        self._commit = commit
        self._on_done = on_done
        self._max_group_bytes = max_group_bytes
        self._max_group_entries = max_group_entries
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headwater-writer", daemon=True)
        self._thread.start()

    def put(self, work: Work) -> None:
        self._queue.put(work)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_closing = False
        while not is_closing:
            work = self._queue.get()
            if work is None:
                return
            group = [work]
            size = work.size_bytes
            while size < self._max_group_bytes and len(group) < self._max_group_entries and self._queue.qsize():
                work = self._queue.get()
                if work is None:
                    is_closing = True
                    break
                if size + work.size_bytes > self._max_group_bytes:
                    self._process(group)
                    group, size = [], 0
                group.append(work)
                size += work.size_bytes
            self._process(group)

    def _process(self, group: list[Work]) -> None:
        if not group:
            return
        self._commit.write_segments(group)
        early = [work for work in group if work.entry is None]
        if early:
            self._report(early)
            group = [work for work in group if work.entry is not None]
        if group:
            self._commit.write_journal(group)
            self._report(group)

    def _report(self, group: Sequence[Work]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._on_done, group)
        except RuntimeError:
            return  # the event loop is closed: no caller waits any more


class InlineWriter:
    """The writer of tests: the same work on the event loop, one group per turn."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        commit: GroupCommit,
        on_done: Callable[[Sequence[Work]], None],
        *,
        max_group_bytes: int,
        max_group_entries: int,
    ) -> None:
        self._loop = loop
        self._commit = commit
        self._on_done = on_done
        self._max_group_bytes = max_group_bytes
        self._max_group_entries = max_group_entries
        self._queue: deque[Work] = deque()
        self._is_scheduled = False

    def put(self, work: Work) -> None:
        self._queue.append(work)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def close(self) -> None:
        self._run()

    def _run(self) -> None:
        self._is_scheduled = False
        while self._queue:
            group: list[Work] = []
            size = 0
            while self._queue and len(group) < self._max_group_entries:
                if group and size + self._queue[0].size_bytes > self._max_group_bytes:
                    break
                work = self._queue.popleft()
                size += work.size_bytes
                group.append(work)
            self._commit.write_segments(group)
            self._commit.write_journal(group)
            self._on_done(group)
