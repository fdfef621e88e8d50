"""One shard of the groups and the partition that remembers it: decisions are logged in their order, and answered when
the log has them.

- Decisions are applied in memory at once, ahead of the log. No reply leaves before every event decided up to then is
  committed, so nobody learns of a state that a crash could take back.
- One append is under way at a time. What is decided meanwhile is written together by the next one.
- When the log does not take an append, the memory is ahead of the truth: everyone who waits is sent to look for the
  coordinator again, and the shard is replayed from the log.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headwater.broker.partition import Partition
from headwater.groups.byte_reader import Malformed
from headwater.groups.effects import Effects, Reply
from headwater.groups.event_records import decode, encode
from headwater.groups.events import Event
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.groups.topics import TopicTable
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment
from headwater.model.replica import Buffer, StoreError, StoreFailed
from headwater.records.batch import BatchHeader, CorruptBatch, parse_header, split
from headwater.records.build import build_batch, chunked
from headwater.records.record import Record, records
from headwater.transport.facts import log_fact

LOAD_CHUNK_BYTES = 1024 * 1024
LOAD_RETRY_S = 1.0
"""A shard that cannot be read is of no use to anyone, so reading it is tried again, this far apart, for ever."""
MAX_BATCH_BYTES = 1024 * 1024
"""Events that are logged together; a single larger one goes alone."""


class GroupLog:
    def __init__(
        self,
        partition: Partition,
        settings: GroupSettings,
        topics: TopicTable,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        on_deadline: Callable[[int], None],
    ) -> None:
        """`on_deadline` is told of the shard's next deadline after every decision."""
        self._partition = partition
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._spawn = spawn
        self._on_deadline = on_deadline
        self._shard: GroupShard | None = None
        self._events: list[Event] = []
        self._replies: list[Reply] = []
        self._is_writing = False

    @property
    def is_loaded(self) -> bool:
        return self._shard is not None

    @property
    def shard(self) -> GroupShard:
        """The groups. Raises RequestError while they are being read."""
        if self._shard is None:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._shard

    def release(self, effects: Effects) -> None:
        """Log the events; give the replies when they, and all decided before them, are committed."""
        self._events += effects.events
        if self._is_writing or self._events:
            self._replies += effects.replies
            if not self._is_writing:
                self._is_writing = True
                self._spawn(self._write())
        else:
            _give(effects.replies)
        for each in effects.departures:
            log_fact("member_removed", group=each.group_id, member=each.member_id, reason=each.reason.value)
        if self._shard is not None and (next_ms := self._shard.next_deadline_ms()) is not None:
            self._on_deadline(next_ms)

    async def load(self) -> None:
        """Replay the partition, then take part."""
        while True:
            shard = GroupShard(self._settings, self._topics)
            try:
                count = await self._replay(shard)
                break
            except StoreFailed:
                raise
            except StoreError as error:
                log_fact("groups_load_failed", partition=self._partition.id, error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(LOAD_RETRY_S)
        shard.resume(self._now())
        self._shard = shard
        if count:
            groups = len(shard.group_ids())
            log_fact("groups_loaded", partition=self._partition.id.index, records=count, groups=groups)
        self.release(Effects())

    # Reading

    async def _replay(self, shard: GroupShard) -> int:
        count = 0
        offset, end = self._partition.log_start, self._partition.high_watermark
        while offset < end:
            found = await self._partition.read(offset, LOAD_CHUNK_BYTES)
            if not len(found):
                break
            for header, batch in split(found):
                if header.last_offset >= offset:
                    count += self._apply(shard, header, batch)
                    offset = header.last_offset + 1
            await asyncio.sleep(0)
        return count

    def _apply(self, shard: GroupShard, header: BatchHeader, batch: Buffer) -> int:
        """What cannot be read is left out: one bad record must not take the other groups with it."""
        if header.is_control:
            return 0
        try:
            for record in records(batch, header):
                try:
                    event = decode(record.key or b"", record.value)
                except Malformed as error:
                    log_fact("group_record_unreadable", offset=record.offset, error=error)
                    continue
                if event is not None:
                    shard.apply(event)
        except CorruptBatch as error:
            log_fact("group_batch_unreadable", offset=header.base_offset, error=error)
        return header.record_count

    # Writing

    async def _write(self) -> None:
        try:
            while self._events or self._replies:
                events, self._events = self._events, []
                replies, self._replies = self._replies, []
                try:
                    await self._append(events)
                except RequestError as error:
                    self._replies = replies + self._replies
                    self._start_over(error)
                    return
                _give(replies)
        finally:
            self._is_writing = False

    async def _append(self, events: Sequence[Event]) -> None:
        appended = []
        for chunk in chunked((Record(*encode(event)) for event in events), MAX_BATCH_BYTES):
            batch = build_batch(chunk, timestamp=self._clock.now_ms())
            appended.append(self._partition.append(batch, parse_header(batch)))
        for each in appended:
            if each.committed is not None:
                await each.committed

    def _start_over(self, error: RequestError) -> None:
        """The log is behind what was decided, and it is the log that is right."""
        log_fact("groups_dropped", partition=self._partition.id.index, error=error.message)
        shard, self._shard = self._shard, None
        replies, self._replies, self._events = self._replies, [], []
        if shard is not None:
            replies += shard.kill(ErrorCode.COORDINATOR_NOT_AVAILABLE).replies
        for reply in replies:
            waiting = reply.to
            assert isinstance(waiting, asyncio.Future), "who waits here waits for a future"
            if not waiting.done():
                waiting.set_exception(RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message))
        self._spawn(self.load())

    def _now(self) -> Moment:
        return Moment(self._clock.now_ms(), int(self._clock.monotonic() * 1000))


def _give(replies: Sequence[Reply]) -> None:
    for reply in replies:
        waiting = reply.to
        assert isinstance(waiting, asyncio.Future), "who waits here waits for a future"
        if not waiting.done():
            waiting.set_result(reply.answer)
