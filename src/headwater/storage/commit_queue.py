"""The way from a call to the writer and back: keeps the order, bounds what waits, and counts what is on its way.

Owned by the event loop."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from headwater.model.replica import Buffer, StoreFailed
from headwater.storage.entry import JournalEntry
from headwater.storage.replica import Replica
from headwater.storage.writer import CommitWriter, Work


class CommitQueue:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, max_queued_bytes: int, on_failure: Callable[[Exception], None]
    ) -> None:
        self._loop = loop
        self._max_queued_bytes = max_queued_bytes
        self._on_failure = on_failure
        self._queued_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._writer: CommitWriter | None = None
        self._failure: Exception | None = None

    def attach(self, writer: CommitWriter) -> None:
        self._writer = writer

    @property
    def failure(self) -> Exception | None:
        return self._failure

    def check(self) -> None:
        if self._failure is not None:
            raise StoreFailed(str(self._failure)) from self._failure

    @property
    def has_room(self) -> bool:
        """Whether `room` would return at once."""
        return not self._waiting and self._queued_bytes < self._max_queued_bytes

    async def room(self) -> None:
        """Return at once, or in the order of the calls, when not too much is waiting for the writer."""
        if self.has_room:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
            while self._queued_bytes >= self._max_queued_bytes:
                self._waiting.remove(waiter)
                waiter = self._loop.create_future()
                self._waiting.appendleft(waiter)
                await waiter
        finally:
            self._waiting.remove(waiter)
            # The next waiter is woken now and runs after the caller: a call in between must not overtake.
            self._wake_next()

    def submit(
        self,
        replica: Replica,
        done: Callable[[Work], None],
        *,
        entry: JournalEntry | None = None,
        buffers: Sequence[Buffer] = (),
        position: int = 0,
        is_append: bool = False,
    ) -> asyncio.Future[None]:
        """Hand over to the writer. `done` runs before the future is resolved, and only if all went well."""
        assert self._writer is not None, "a writer is attached before the first call"
        self.check()
        future: asyncio.Future[None] = self._loop.create_future()
        work = Work(replica, future, done, entry=entry, buffers=buffers, position=position, is_append=is_append)
        replica.pending += 1
        self._queued_bytes += work.size_bytes
        self._writer.put(work)
        return future

    async def idle(self, replica: Replica) -> None:
        """Return when nothing of the replica is on its way."""
        while replica.pending:
            if replica.idle is None:
                replica.idle = self._loop.create_future()
            await asyncio.shield(replica.idle)

    def finished(self, group: Sequence[Work]) -> None:
        """The writer is through with these."""
        for work in group:
            replica = work.replica
            replica.pending -= 1
            self._queued_bytes -= work.size_bytes
            if work.error is None:
                work.done(work)
            else:
                self._failed(work, work.error)
            if not replica.pending and replica.idle is not None:
                replica.idle.set_result(None)
                replica.idle = None
        for work in group:
            if work.future.done():
                continue  # the caller has gone
            if work.error is None:
                work.future.set_result(None)
            else:
                work.future.set_exception(work.error)
        if self._queued_bytes < self._max_queued_bytes:
            self._wake_next()

    def fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self._on_failure(error)

    def close(self) -> None:
        """Refuse whatever comes now."""
        self._failure = self._failure or StoreFailed("the store is closed")

    def _failed(self, work: Work, error: Exception) -> None:
        replica = work.replica
        if isinstance(error, StoreFailed):
            self.fail(error)
        if work.is_append and work.attempt == replica.attempt:
            replica.attempt += 1
            replica.queued_end, replica.queued_bytes = replica.end, replica.size_bytes

    def _wake_next(self) -> None:
        if self._waiting and not self._waiting[0].done():
            self._waiting[0].set_result(None)
