"""The queues of all share groups: finds the one of a group and a partition, makes it on first use, keeps its deadlines.

A queue is served by the leader of the partition that it reads. It is created when a member of an existing group
first fetches; where it begins is the group's `share.auto.offset.reset`, and is on disk before the first record leaves.
When this node begins to lead a partition, it claims the state of the partition's queues from its keeper
(`broker/queues/state_keepers`); fetches wait meanwhile. When the lead ends, the queues are dropped.

All deadlines of all queues (leases, delays, rests, time to live) are kept by one task, which sleeps until the earliest.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.log.offset_search import find_timestamp
from headwater.broker.log.partition import Partition
from headwater.broker.nodes.node_client import NodeClient
from headwater.broker.nodes.node_messages import Claimed, ShareKey
from headwater.broker.queues.dead_letters import DeadLetters
from headwater.broker.queues.partial_batches import PartialBatches
from headwater.broker.queues.share_groups import ShareGroups
from headwater.broker.queues.share_loading import ShareLoading
from headwater.broker.queues.share_queue import ShareQueue
from headwater.broker.queues.share_sessions import INITIAL_EPOCH, ShareSession, ShareSessions
from headwater.broker.queues.state_keepers import StateKeepers
from headwater.broker.queues.state_writer import StateWriter
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.group_configs import GroupConfigs
from headwater.broker.state.deadline_timer import DeadlineTimer
from headwater.broker.state.steady_time import SteadyTime
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.model.deadlines import Deadlines
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.group_position import GroupPosition
from headwater.model.ids import Offset, PartitionId
from headwater.queues.event_bytes import decode
from headwater.queues.outcomes import DeadLetter
from headwater.queues.settings import OffsetReset, ResetTo
from headwater.queues.share_partition import SharePartition
from headwater.transport.connection import Connection

RELOAD_RETRY_S = 0.5
LAST_ACKNOWLEDGEMENTS_S = 1.0
"""How long a member that left is given to end its session, before what it holds is given to others."""


class ShareCoordinator:
    def __init__(
        self,
        catalog: Catalog,
        groups: GroupCoordinator,
        group_configs: GroupConfigs,
        config: BrokerConfig,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        nodes: NodeClient,
    ) -> None:
        self.sessions = ShareSessions(config.share_max_sessions)
        self.partial_batches = PartialBatches()
        self.spawn = spawn
        self._catalog = catalog
        self._groups = ShareGroups(groups, nodes, spawn)
        self._group_configs = group_configs
        self._dead_letters = DeadLetters(catalog, config, clock, nodes)
        self._queues: dict[str, dict[PartitionId, ShareQueue]] = {}
        """By group."""
        self.states = StateKeepers(catalog, config, clock, spawn, nodes)
        self._loading = ShareLoading(self.states, spawn, self._claimed)
        self._opening: dict[ShareKey, asyncio.Lock] = {}
        self._deadlines: Deadlines[ShareQueue] = Deadlines()
        self._time = SteadyTime(clock)
        self._alarm = DeadlineTimer(self.now_ms)
        self._is_stopping = False

    def start(self) -> None:
        """Begin to read what is stored, and to watch the time."""
        self._catalog.on_removed.append(self.forget_topic)
        self.states.start()
        for partition in self._catalog.partitions():
            self._loading.add(partition)
        self._catalog.leadership.on_led.append(self._loading.add)
        self._catalog.leadership.on_lost.append(self._partition_lost)
        self._groups.on_departure(self._departed)
        self._group_configs.watchers.add(self._reconfigure)
        self.spawn(self._alarm.run(self._expire))

    def configure(self, config: BrokerConfig) -> None:
        """Other settings of the broker. What they are for groups is in `group_configs` by now."""
        self.sessions.limit = config.share_max_sessions
        self._dead_letters.config = config
        for group_id in tuple(self._queues):
            self._reconfigure(group_id)

    def rights_changed(self) -> None:
        """Of clients. Fetches that wait are told at once what they may no longer read."""
        for queue in self:
            queue.rights_changed()

    def stop(self) -> None:
        """From now on connections are lost because the broker stops: that says nothing about their members."""
        self._is_stopping = True

    # Queues

    def __iter__(self) -> Iterator[ShareQueue]:
        for queues in self._queues.values():
            yield from queues.values()

    def find(self, group_id: str, partition: PartitionId) -> ShareQueue | None:
        return self._queues.get(group_id, {}).get(partition)

    def refusal(self, partition: PartitionId) -> ErrorCode:
        """Why there is no queue of a partition here."""
        topic = self._catalog.find_id(partition.topic_id)
        is_elsewhere = topic is not None and topic.has(partition.index) and partition.index not in topic.led
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def of_group(self, group_id: str) -> list[ShareQueue]:
        return list(self._queues.get(group_id, {}).values())

    def positions(self) -> Iterator[GroupPosition]:
        """Where every queue begins. Raises RequestError while some of them are still being read."""
        if not self._loading.is_done:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for queue in list(self):
            partition = queue.partition
            yield GroupPosition(queue.key.group_id, partition.topic_name, partition.id.index, queue.share.start_offset)

    async def queue(self, group_id: str, partition: Partition) -> ShareQueue:
        """The queue of a group and a partition. Made on first use, if the group exists."""
        found = self.find(group_id, partition.id)
        if found is not None:
            return found
        await self._loading.done(partition)
        found = self.find(group_id, partition.id)
        if found is not None:
            return found
        await self._groups.check(group_id)
        return await self._make(ShareKey(group_id, partition.id), partition, None)

    async def loaded(self, group_id: str) -> list[ShareQueue]:
        """All queues of a group in partitions that are led here, when all of them are read."""
        await self._loading.all_done()
        return self.of_group(group_id)

    async def reset(self, group_id: str, partition: Partition, start_offset: Offset) -> None:
        """Begin anew at an offset; a queue that does not exist yet begins there."""
        await self._loading.done(partition)
        queue = self.find(group_id, partition.id)
        if queue is None:
            await self._make(ShareKey(group_id, partition.id), partition, start_offset)
        else:
            await queue.reset(start_offset)

    async def forget(self, queues: Iterable[ShareQueue]) -> None:
        await asyncio.gather(*(self._drop(queue).forget() for queue in queues))

    async def delete_group(self, group_id: str) -> None:
        """The group is deleted: so is all that it has read in partitions that are led here."""
        await self.forget(await self.loaded(group_id))

    def forget_topic(self, topic: Topic) -> None:
        """The topic was deleted, and with it its queues. Their state is removed by its keeper."""
        for queue in [queue for queue in self if queue.partition.id.topic_id == topic.topic_id]:
            self._drop(queue)

    # Members

    def session(
        self, group_id: str, member_id: str, epoch: int, connection: Connection, *, acknowledges: bool
    ) -> ShareSession:
        """The session of a fetch: the initial epoch opens one, later epochs use it. Raises RequestError."""
        if epoch != INITIAL_EPOCH:
            return self.sessions.use(group_id, member_id, epoch)
        if acknowledges:
            raise RequestError(ErrorCode.INVALID_REQUEST, "The first request of a session has nothing to acknowledge.")
        return self._open_session(group_id, member_id, connection)

    def _open_session(self, group_id: str, member_id: str, connection: Connection) -> ShareSession:
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
            self._groups.doubt(*session.key, settings)

    def _departed(self, group_id: str, member_id: str) -> None:
        """The member left its group, or was not heard of for too long. It says so to the group's coordinator, and its
        last acknowledgements, which end its session, may be on their way on another connection."""
        session = self.sessions.get(group_id, member_id)
        if session is None:
            self.release_member(group_id, member_id)
        else:
            self.spawn(self._release_later(session, session.epoch))

    async def _release_later(self, session: ShareSession, epoch: int) -> None:
        await asyncio.sleep(LAST_ACKNOWLEDGEMENTS_S)
        if self.sessions.get(*session.key) is session and session.epoch == epoch:  # else it ended, or is in use again
            self.release_member(*session.key)

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

    def _claimed(self, key: ShareKey, partition: Partition, claimed: Claimed) -> None:
        """The state of a queue was read."""
        if partition.is_over or self.find(*key) is not None:
            return
        share = SharePartition(self._group_configs.settings(key.group_id))
        for value in (claimed.snapshot, *claimed.changes):
            try:
                share.apply(decode(value))
            except ValueError as error:  # one bad record must not take the rest of the state with it
                log_event(
                    "share_state_unreadable", logging.WARNING, group=key.group_id, partition=key.partition, error=error
                )
        self._add(self._new_queue(key, partition, share, claimed))

    def _new_queue(self, key: ShareKey, partition: Partition, share: SharePartition, claimed: Claimed) -> ShareQueue:
        def lost() -> None:
            self._lost(queue)

        log = StateWriter(
            key=key,
            epoch=partition.leader_epoch,
            share=share,
            claimed=claimed,
            keeper=self.states,
            spawn=self.spawn,
            on_lost=lost,
        )
        queue = ShareQueue(key, partition, share, log, self)
        return queue

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

    def _lost(self, queue: ShareQueue) -> None:
        """The log is behind what was decided, and it is the log that is right."""
        if not queue.is_closed:
            self._drop(queue)
            self.spawn(self._reload(queue.key, queue.partition))

    async def _reload(self, key: ShareKey, partition: Partition) -> None:
        while not partition.is_over and self.find(*key) is None:
            try:
                claimed = await self.states.claim(key, partition.leader_epoch)
            except RequestError as error:
                if error.code is ErrorCode.FENCED_LEADER_EPOCH:
                    return  # a later leader serves it
                await asyncio.sleep(RELOAD_RETRY_S)
                continue
            if claimed.snapshot:
                self._claimed(key, partition, claimed)
            return

    def _partition_lost(self, partition: Partition) -> None:
        """Another node leads what the queues read."""
        self._loading.remove(partition)
        for queue in [queue for queue in self if queue.partition is partition]:
            self._drop(queue)

    async def _make(self, key: ShareKey, partition: Partition, start: Offset | None) -> ShareQueue:
        """A queue is not visible before its beginning is on disk."""
        await self.states.ensure()
        lock = self._opening.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                found = self.find(*key)
                if found is not None:
                    return found
                partition.check_led()
                claimed = await self.states.claim(key, partition.leader_epoch)
                found = self.find(*key)
                if found is None and claimed.snapshot:  # another node led for a moment, and made it
                    self._claimed(key, partition, claimed)
                    found = self.find(*key)
                return found or await self._make_new(key, partition, claimed, start)
        finally:
            if not lock.locked():
                self._opening.pop(key, None)

    async def _make_new(
        self, key: ShareKey, partition: Partition, claimed: Claimed, start: Offset | None
    ) -> ShareQueue:
        await self._group_configs.refresh(key.group_id)
        settings = self._group_configs.settings(key.group_id)
        if start is None:
            start = await _first_offset(partition, settings.offset_reset, self.now_ms())
        share = SharePartition(settings, start)
        queue = self._new_queue(key, partition, share, claimed)
        await queue.log.write([share.snapshot()])
        partition.check_led()
        self._add(queue)
        return queue

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
