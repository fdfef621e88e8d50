"""One shard of the groups and the partition that remembers it: decisions are logged in their order, and answered when
the log has them.

- Decisions are applied in memory at once, ahead of the log. No reply leaves before every event decided up to then is
  committed, so nobody learns of a state that a crash could take back.
- When the log does not take an append, the memory is ahead of the truth: everyone who waits is sent to look for the
  coordinator again, and the shard is replayed from the log.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from headwater.broker.log.partition import Partition
from headwater.broker.replies import give
from headwater.broker.state.record_log import RecordLog, Spawn
from headwater.groups.effects import Effects
from headwater.groups.event_records import decode, encode
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.groups.topics import TopicTable
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment, moment
from headwater.records.record import Record
from headwater.transport.facts import log_fact


class GroupLog:
    def __init__(
        self,
        partition: Partition,
        settings: GroupSettings,
        topics: TopicTable,
        clock: Clock,
        spawn: Spawn,
        on_deadline: Callable[[int], None],
        on_loaded: Callable[["GroupLog"], None] = lambda log: None,
    ) -> None:
        """`on_deadline` is told of the shard's next deadline after every decision."""
        self._log = RecordLog(partition, clock, self._start_over)
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._spawn = spawn
        self._on_deadline = on_deadline
        self._on_loaded = on_loaded
        self._shard: GroupShard | None = None
        self._settled = asyncio.Event()
        """The groups are read, or another node has them."""

    @property
    def partition(self) -> Partition:
        return self._log.partition

    @property
    def is_loaded(self) -> bool:
        return self._shard is not None

    @property
    def shard(self) -> GroupShard:
        """The groups. Raises RequestError while they are being read."""
        if self._shard is None:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._shard

    async def loaded(self) -> None:
        """Return when the groups are read, or there is nothing to wait for any more."""
        await self._settled.wait()

    def release(self, effects: Effects) -> None:
        """Log the events; give the replies when they, and all decided before them, are committed."""
        self._log.write([Record(*encode(event)) for event in effects.events], partial(give, effects.replies))
        for each in effects.departures:
            log_fact("member_removed", group=each.group_id, member=each.member_id, reason=each.reason.value)
        if self._shard is not None and (next_ms := self._shard.next_deadline_ms()) is not None:
            self._on_deadline(next_ms)

    async def load(self) -> None:
        """Replay the partition, then take part."""
        shard = GroupShard(self._settings, self._topics)

        def begin() -> Callable[[Record], None]:
            nonlocal shard
            shard = GroupShard(self._settings, self._topics)
            return partial(_replay, shard)

        count = await self._log.load(begin)
        shard.resume(self._now())
        self._shard = shard
        self._settled.set()
        if count:
            groups = len(shard.group_ids())
            log_fact("groups_loaded", partition=self.partition.id.index, records=count, groups=groups)
        self.release(Effects())
        self._on_loaded(self)

    def close(self, error: RequestError) -> None:
        """Another node has the groups from now on: everyone who waits is told to look for it."""
        self._settled.set()
        shard, self._shard = self._shard, None
        if shard is not None:
            give(shard.kill(ErrorCode.NOT_COORDINATOR).replies, error)

    def _start_over(self, error: RequestError) -> None:
        """The log is behind what was decided, and it is the log that is right."""
        self._settled.clear()
        shard, self._shard = self._shard, None
        if shard is not None:
            give(shard.kill(ErrorCode.COORDINATOR_NOT_AVAILABLE).replies, error)
        if not self.partition.is_over:
            self._spawn(self.load())

    def _now(self) -> Moment:
        return moment(self._clock)


def _replay(shard: GroupShard, record: Record) -> None:
    event = decode(record.key or b"", record.value)
    if event is not None:
        shard.apply(event)
