"""The queues of all share groups: finds the one of a group and a partition, makes it on first use, keeps its deadlines.

A queue comes into being when a member of an existing group first fetches; where it begins is the group's
`share.auto.offset.reset`, and is on disk before the first record leaves. State is read in the background after a start;
who fetches meanwhile waits for it.

All deadlines of all queues (leases, delays, rests, time to live) are kept by one task, which sleeps until the earliest.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

from headwater.broker.alarm import Alarm
from headwater.broker.catalog import Catalog
from headwater.broker.config import BrokerConfig
from headwater.broker.coordinator import GroupCoordinator
from headwater.broker.dead_letters import DeadLetters
from headwater.broker.group_configs import GroupConfigs
from headwater.broker.offset_search import find_timestamp
from headwater.broker.partition import Partition
from headwater.broker.share_log import ShareKey, ShareLog
from headwater.broker.share_queue import ShareQueue
from headwater.broker.share_sessions import ShareSession, ShareSessions
from headwater.broker.state_topic import StateTopic
from headwater.broker.steady_time import SteadyTime
from headwater.broker.subscriptions import GroupPosition
from headwater.broker.thin_batches import ThinBatches
from headwater.broker.topic import Topic
from headwater.model.clock import Clock
from headwater.model.deadlines import Deadlines
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import Offset, PartitionId
from headwater.queues.outcomes import DeadLetter
from headwater.queues.settings import OffsetReset, ResetTo
from headwater.queues.share_partition import SharePartition
from headwater.transport.connection import Connection

STATE_TOPIC = "__share_group_state"
LOAD_WAIT_S = 10.0
"""How long a request waits for state that is being read, before it is told to come back."""


class ShareCoordinator:
    def __init__(
        self,
        catalog: Catalog,
        groups: GroupCoordinator,
        group_configs: GroupConfigs,
        config: BrokerConfig,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self.sessions = ShareSessions(config.share_max_sessions)
        self.thin_batches = ThinBatches()
        self.spawn = spawn
        self._catalog = catalog
        self._groups = groups
        self._group_configs = group_configs
        self._clock = clock
        self._dead_letters = DeadLetters(catalog, config, clock)
        self._queues: dict[str, dict[PartitionId, ShareQueue]] = {}
        """By group."""
        self._topic: StateTopic[ShareLog] = StateTopic(
            catalog, STATE_TOPIC, config.share_state_topic_partitions, self._open, spawn
        )
        self._opening: dict[ShareKey, asyncio.Lock] = {}
        self._deadlines: Deadlines[ShareQueue] = Deadlines()
        self._time = SteadyTime(clock)
        self._alarm = Alarm(self.now_ms)
        self._is_stopping = False

    def start(self) -> None:
        """Begin to read what is stored, and to watch the time."""
        self._topic.start()
        self._catalog.leadership.on_lost.append(self._partition_lost)
        self._groups.on_share_departure = self.release_member
        self._group_configs.watchers.add(self._reconfigure)
        self.spawn(self._alarm.run(self._expire))

    def stop(self) -> None:
        """From now on connections are lost because the broker goes: that says nothing about who held them."""
        self._is_stopping = True

    # Queues

    def __iter__(self) -> Iterator[ShareQueue]:
        for queues in self._queues.values():
            yield from queues.values()

    def find(self, group_id: str, partition: PartitionId) -> ShareQueue | None:
        return self._queues.get(group_id, {}).get(partition)

    def of_group(self, group_id: str) -> list[ShareQueue]:
        return list(self._queues.get(group_id, {}).values())

    def positions(self) -> Iterator[GroupPosition]:
        """Where every queue begins. Raises RequestError while some of them are still being read."""
        if not all(log.loaded.is_set() for log in self._topic):
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for queue in list(self):
            partition = queue.partition
            yield GroupPosition(queue.key.group_id, partition.topic_name, partition.id.index, queue.share.start_offset)

    async def queue(self, group_id: str, partition: Partition) -> ShareQueue:
        """The queue of a group and a partition. Made on first use, if the group exists."""
        found = self.find(group_id, partition.id)
        if found is not None:
            return found
        log = await self._loaded_log(ShareKey(group_id, partition.id))
        found = self.find(group_id, partition.id)
        if found is not None:
            return found
        self._groups.share_group(group_id)
        return await self._make(ShareKey(group_id, partition.id), partition, log, None)

    async def loaded(self, group_id: str) -> list[ShareQueue]:
        """All queues of a group, when all of them are read."""
        for log in self._topic:
            await self._wait_loaded(log)
        return self.of_group(group_id)

    async def reset(self, group_id: str, partition: Partition, start_offset: Offset) -> None:
        """Begin anew at an offset; a queue that does not exist yet begins there."""
        key = ShareKey(group_id, partition.id)
        log = await self._loaded_log(key)
        queue = self.find(group_id, partition.id)
        if queue is None:
            await self._make(key, partition, log, start_offset)
        else:
            await queue.reset(start_offset)

    async def forget(self, queues: Iterable[ShareQueue]) -> None:
        logged = [self._drop(queue).forget() for queue in queues]
        if logged:
            await asyncio.gather(*logged)

    async def delete_group(self, group_id: str) -> None:
        """The group is deleted: so is all that it has read."""
        await self.forget(await self.loaded(group_id))

    def forget_topic(self, topic: Topic) -> None:
        """The topic was deleted: nobody will read on in it."""
        for queue in [queue for queue in self if queue.partition.id.topic_id == topic.topic_id]:
            self._drop(queue).forget()

    # Members

    def open_session(self, group_id: str, member_id: str, connection: Connection) -> ShareSession:
        """A session that ends with its connection."""
        session = self.sessions.open(group_id, member_id)
        connection.when_closed[session.key] = lambda: self._lost_connection(session)
        return session

    def close_session(self, session: ShareSession) -> None:
        if self.sessions.close(session):
            self.release_member(session.group_id, session.member_id)

    def _lost_connection(self, session: ShareSession) -> None:
        if self.sessions.get(*session.key) is session and not self._is_stopping:
            self.close_session(session)
            settings = self._group_configs.membership(session.group_id)
            self._groups.doubt_share_member(*session.key, settings)

    def release_member(self, group_id: str, member_id: str) -> None:
        """The member is gone: others may have what it holds."""
        for queue in self.of_group(group_id):
            queue.release_member(member_id)

    # Surroundings of the queues

    def now_ms(self) -> int:
        return self._time.now_ms()

    def arm(self, queue: ShareQueue) -> None:
        at_ms = queue.share.next_deadline_ms()
        if at_ms is None or queue.is_closed:
            self._deadlines.clear(queue)
            return
        self._deadlines.set(queue, at_ms)
        self._alarm.arm(at_ms)

    def post(self, queue: ShareQueue, letters: Sequence[DeadLetter], logged: "asyncio.Future[None]") -> None:
        self.spawn(self._dead_letters.write(queue, letters, logged))

    # Inside

    def _open(self, partition: Partition) -> ShareLog:
        return ShareLog(partition, self._group_configs.settings, self._clock, self._loaded, self._lost)

    def _log(self, key: ShareKey) -> ShareLog:
        return self._topic.log(f"{key.group_id}/{key.partition}")

    async def _loaded_log(self, key: ShareKey) -> ShareLog:
        await self._topic.ensure()
        log = self._log(key)
        await self._wait_loaded(log)
        return log

    async def _wait_loaded(self, log: ShareLog) -> None:
        if log.loaded.is_set():
            return
        try:
            async with asyncio.timeout(LOAD_WAIT_S):
                await log.loaded.wait()
        except TimeoutError:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None

    def _loaded(self, log: ShareLog, found: dict[ShareKey, SharePartition]) -> None:
        strays = []
        for key, share in found.items():
            topic = self._catalog.find_id(key.partition.topic_id)
            if topic is None or not topic.has(key.partition.index):
                strays.append(key)
            elif key.partition.index in topic.led:
                self._add(ShareQueue(key, topic.partition(key.partition.index), share, log, self))
        for key in strays:
            log.forget(key)

    def _add(self, queue: ShareQueue) -> None:
        queue.reconfigure(self._group_configs.settings(queue.key.group_id))
        self._queues.setdefault(queue.key.group_id, {})[queue.key.partition] = queue
        self.arm(queue)
        pending = queue.share.pending_dead_letters()
        if pending:
            self.spawn(self._dead_letters.resume(queue, pending))

    def _drop(self, queue: ShareQueue) -> ShareQueue:
        queues = self._queues.get(queue.key.group_id, {})
        if queues.get(queue.key.partition) is queue:
            del queues[queue.key.partition]
            if not queues:
                del self._queues[queue.key.group_id]
        queue.close()
        self._deadlines.clear(queue)
        return queue

    def _lost(self, log: ShareLog) -> None:
        """The log is behind what was decided, and it is the log that is right."""
        for queue in [queue for queue in self if queue.log is log]:
            self._drop(queue)
        if not log.is_over:
            self.spawn(log.load())

    def _partition_lost(self, partition: Partition) -> None:
        """Another node leads what the queues read."""
        for queue in [queue for queue in self if queue.partition is partition]:
            self._drop(queue)

    async def _make(self, key: ShareKey, partition: Partition, log: ShareLog, start: Offset | None) -> ShareQueue:
        """Nobody learns of a queue before its beginning is on disk."""
        lock = self._opening.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                found = self.find(key.group_id, key.partition)
                if found is not None:
                    return found
                settings = self._group_configs.settings(key.group_id)
                if start is None:
                    start = await _first_offset(partition, settings.offset_reset, self.now_ms())
                share = SharePartition(settings, start)
                await log.write(key, [share.snapshot()], share)
                queue = ShareQueue(key, partition, share, log, self)
                self._add(queue)
                return queue
        finally:
            if not lock.locked():
                self._opening.pop(key, None)

    def _reconfigure(self, group_id: str) -> None:
        settings = self._group_configs.settings(group_id)
        for queue in self.of_group(group_id):
            queue.reconfigure(settings)

    def _expire(self) -> int | None:
        now_ms = self.now_ms()
        due = []
        while (queue := self._deadlines.take_due(now_ms)) is not None:
            due.append(queue)
        for queue in due:
            queue.expire()
        return self._deadlines.next_ms()


async def _first_offset(partition: Partition, reset: OffsetReset, now_ms: int) -> Offset:
    """Where a group begins that never read the partition."""
    match reset.to:
        case ResetTo.EARLIEST:
            return partition.log_start
        case ResetTo.LATEST:
            return partition.high_watermark
        case ResetTo.DURATION:
            found = await find_timestamp(partition, now_ms - reset.duration_ms)
            return found.offset if found is not None else partition.high_watermark
