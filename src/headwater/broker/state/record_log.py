"""State that is a log: records in one partition of an internal topic, written in order and read back whole.

- Records are written in the order of the calls. One append is under way at a time; what is asked for meanwhile is
  written together by the next one.
- The callback of a write is called when its records, and all before them, are committed: before `write` returns where
  the partition takes them at once, unless callbacks are being called right then. They write, too, and the order stays.
- When the partition does not take an append, memory is ahead of the truth. `on_lost` is called first, then the
  callbacks of all writes that wait; what was not written is dropped. The owner of the state must read it again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeAlias

from headwater.broker.log.partition import Partition
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.model.errors import RequestError
from headwater.model.ids import Offset
from headwater.model.replica import StoreError, StoreFailed
from headwater.records.batch import BatchHeader, CorruptBatch, parse_header, split
from headwater.records.build import build_batch, chunked
from headwater.records.record import Record, records

LOAD_CHUNK_BYTES = 1024 * 1024
LOAD_RETRY_S = 1.0
"""State that cannot be read is of no use to anyone, so reading it is tried again, this far apart, for ever."""
MAX_BATCH_BYTES = 1024 * 1024
"""Records that are appended together; a single larger one goes alone."""

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
Then: TypeAlias = Callable[[RequestError | None], None]
"""What to do when records are committed; or, with the reason, when they never will be."""


class RecordLog:
    def __init__(self, partition: Partition, clock: Clock, on_lost: Callable[[RequestError], None]) -> None:
        self.partition = partition
        self._clock = clock
        self._on_lost = on_lost
        self._records: list[Record] = []
        self._waiting: list[Then] = []
        self._is_writing = False

    # Writing

    def write(self, written: Sequence[Record], then: Then) -> None:
        """Without records: `then` follows what others wrote before."""
        self._records += written
        self._waiting.append(then)
        if self._is_writing:
            return
        if self.partition.commits_at_once:
            self._write()
        else:  # in the next turn of the event loop, together with what else is decided in this one
            self._is_writing = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        """Append what waits, and call back, until there is a commit to wait for."""
        self._is_writing = True
        committed = None
        try:
            while self._waiting and committed is None:
                committed = self._write_some()
        finally:
            self._is_writing = committed is not None

    def _write_some(self) -> "asyncio.Future[None] | None":
        batch, self._records = self._records, []
        waiting, self._waiting = self._waiting, []
        try:
            committed = self._append(batch)
        except RequestError as error:
            self._lose(waiting, error)
            return None
        if committed is None:
            _call(waiting, None)
        else:
            committed.add_done_callback(partial(self._committed, waiting))
        return committed

    def _append(self, written: Sequence[Record]) -> "asyncio.Future[None] | None":
        """What to wait for, if anything: batches are committed in their order, so it is the last one."""
        committed = None
        for chunk in chunked(written, MAX_BATCH_BYTES):
            batch = build_batch(chunk, timestamp=self._clock.now_ms())
            committed = self.partition.append(batch, parse_header(batch)).committed
        return committed

    def _committed(self, waiting: list[Then], committed: "asyncio.Future[None]") -> None:
        error = committed.exception()
        try:
            if isinstance(error, RequestError):
                self._lose(waiting, error)
            else:
                _call(waiting, None)
        finally:
            self._write()

    def _lose(self, waiting: list[Then], error: RequestError) -> None:
        waiting += self._waiting
        self._records, self._waiting = [], []
        log_event(
            "state_log_lost",
            logging.WARNING,
            topic=self.partition.topic_name,
            partition=self.partition.id.index,
            error=error,
        )
        self._on_lost(error)
        _call(waiting, error)

    # Reading

    async def load(self, begin: Callable[[], Callable[[Record], None]]) -> int:
        """Read everything that is committed; return the number of records. `begin` is called for each attempt, and
        gives what takes the records; a record that it refuses with ValueError is left out."""
        while True:
            try:
                return await self._replay(begin())
            except StoreFailed:
                raise
            except StoreError as error:
                log_event(
                    "state_load_failed",
                    logging.WARNING,
                    topic=self.partition.topic_name,
                    partition=self.partition.id.index,
                    error=f"{type(error).__name__}: {error}",
                )
                await asyncio.sleep(LOAD_RETRY_S)

    async def _replay(self, take: Callable[[Record], None]) -> int:
        count = 0
        offset, end = self.partition.log_start, self.partition.high_watermark
        while offset < end:
            found = await self.partition.read(offset, LOAD_CHUNK_BYTES)
            if not len(found):
                break
            for header, batch in split(found):
                if header.last_offset < offset:
                    continue
                if not header.is_control:
                    self._take_all(header, batch, take)
                    count += header.record_count
                offset = header.last_offset + 1
            await asyncio.sleep(0)
        return count

    def _take_all(self, header: BatchHeader, batch: memoryview, take: Callable[[Record], None]) -> None:
        """What cannot be read is left out: one bad record must not take the rest of the state with it."""
        try:
            for record in records(batch, header):
                try:
                    take(record)
                except ValueError as error:
                    self._log_unreadable(record.offset, error)
        except CorruptBatch as error:
            self._log_unreadable(header.base_offset, error)

    def _log_unreadable(self, offset: Offset, error: Exception) -> None:
        log_event("state_unreadable", logging.WARNING, topic=self.partition.topic_name, offset=offset, error=error)


def _call(waiting: Sequence[Then], error: RequestError | None) -> None:
    for then in waiting:
        then(error)
