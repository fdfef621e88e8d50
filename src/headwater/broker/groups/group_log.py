"""One shard of the groups and the partition that remembers it: decisions are logged in their order, and answered when
the log has them (`state/shard_log`).

No reply leaves before every event decided up to then is committed, so no client learns of a state that a crash could
take back.
"""

from collections.abc import Callable
from functools import partial

from headwater.broker.log.partition import Partition
from headwater.broker.state.record_log import Spawn
from headwater.broker.state.shard_log import ShardLog, give
from headwater.groups.effects import GroupEffects
from headwater.groups.event_records import decode, encode
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.groups.topics import TopicTable
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment, moment
from headwater.records.record import Record

OFFSETS_TOPIC = "__consumer_offsets"


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
        """`on_deadline` is called with the shard's next deadline after every decision."""
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._on_deadline = on_deadline
        self._on_loaded = on_loaded
        self.shard_log = ShardLog(partition, clock, spawn, self)

    @property
    def is_loaded(self) -> bool:
        return self.shard_log.is_loaded

    @property
    def shard(self) -> GroupShard:
        """The groups. Raises RequestError while they are being read."""
        return self.shard_log.shard

    def now(self) -> Moment:
        return moment(self._clock)

    def release(self, effects: GroupEffects) -> None:
        """Log the events; give the replies when they, and all decided before them, are committed."""
        self.shard_log.write([Record(*encode(event)) for event in effects.events], partial(give, effects.replies))
        for each in effects.departures:
            log_event("member_removed", group=each.group_id, member=each.member_id, reason=each.reason.value)
        if self.is_loaded and (next_ms := self.shard.next_deadline_ms()) is not None:
            self._on_deadline(next_ms)

    # Called by the shard log

    def new_shard(self) -> GroupShard:
        return GroupShard(self._settings, self._topics)

    def replay(self, shard: GroupShard, record: Record) -> None:
        event = decode(record.key or b"", record.value)
        if event is not None:
            shard.apply(event)

    def loaded(self, shard: GroupShard, record_count: int) -> None:
        shard.resume(self.now())
        if record_count:
            partition, groups = self.shard_log.partition.id.index, len(shard.group_ids())
            log_event("groups_loaded", partition=partition, records=record_count, groups=groups)
        self.release(GroupEffects())
        self._on_loaded(self)

    def dropped(self, shard: GroupShard, code: ErrorCode, error: RequestError) -> None:
        give(shard.kill(code).replies, error)
