"""The group coordinator: finds the shard of a group, asks it, and waits until the answer may be given.

A group belongs to one partition of the internal topic, by a hash of its id; the topic is created with the first group.
Shards are read in the background after a start; until then their groups are answered with COORDINATOR_LOAD_IN_PROGRESS,
on which clients wait and ask again.

All deadlines of all groups are kept by one task, which sleeps until the earliest of them.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias

from headwater.broker.groups.group_log import OFFSETS_TOPIC, GroupLog
from headwater.broker.groups.group_views import GroupViews
from headwater.broker.log.partition import Partition
from headwater.broker.settings.authorization import Authorization
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.state.deadline_timer import DeadlineTimer
from headwater.broker.state.state_topic import StateTopic
from headwater.broker.topics.catalog import Catalog
from headwater.groups.consumer_requests import ConsumerHeartbeat
from headwater.groups.effects import (
    ConsumerAnswer,
    GroupEffects,
    JoinAnswer,
    LeaveAnswer,
    OffsetAnswer,
    ReplyTo,
    ShareHeartbeatAnswer,
    SyncAnswer,
)
from headwater.groups.offset_table import FoundOffset
from headwater.groups.rebalance import GroupState
from headwater.groups.requests import CommitRequest, JoinRequest, LeaveRequest, SyncRequest
from headwater.groups.settings import ConsumerTimes, GroupSettings, MigrationPolicy
from headwater.groups.shard import GroupShard, check_group_id
from headwater.groups.share import ShareGroup, ShareHeartbeat, ShareSettings
from headwater.groups.topics import TopicInfo, TopicTable
from headwater.groups.transaction_ends import AnnouncedCommit, TransactionEnds
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId, TopicId
from headwater.model.moment import Moment, moment

EXPIRY_INTERVAL_S = 600.0
"""How often offsets that outlived their retention are looked for."""

Decision: TypeAlias = Callable[[GroupShard, ReplyTo, Moment], GroupEffects]


class GroupCoordinator:
    def __init__(
        self,
        catalog: Catalog,
        config: BrokerConfig,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        *,
        is_durable: Callable[[str], bool] = lambda group_id: False,
        own_times: Callable[[str], ConsumerTimes | None] = lambda group_id: None,
    ) -> None:
        """`is_durable` says whether a group keeps its positions however long it is not read; `own_times` what a group
        itself sets for members of the new protocol."""
        self._catalog = catalog
        self._clock = clock
        self._spawn = spawn
        self._settings = GroupSettings(own_times=own_times)
        self._is_durable = is_durable
        self.configure(config)
        self._topics = TopicTable()
        for topic in catalog:
            self._topic_changed(topic.name)
        catalog.on_change.append(self._topic_changed)
        self._ends = TransactionEnds()
        self._topic: StateTopic[GroupLog] = StateTopic(
            catalog, OFFSETS_TOPIC, config.offsets_topic_partitions, self._open, spawn
        )
        self.views = GroupViews(self._topic, catalog)
        self._alarm = DeadlineTimer(lambda: int(clock.monotonic() * 1000))
        self.on_share_departure: list[Callable[[str, str], None]] = []
        """Called with the group and each member that a share group loses."""

    def configure(self, config: BrokerConfig) -> None:
        """From now on. Sessions that run are as long as they were promised to be, and the next ones are new."""
        settings = self._settings
        settings.min_session_timeout_ms = config.group_min_session_timeout_ms
        settings.max_session_timeout_ms = config.group_max_session_timeout_ms
        settings.initial_rebalance_delay_ms = config.group_initial_rebalance_delay_ms
        settings.max_members = config.group_max_size
        settings.offsets_retention_ms = config.offsets_retention_minutes * 60_000
        settings.consumer_session_timeout_ms = config.group_consumer_session_timeout_ms
        settings.consumer_heartbeat_interval_ms = config.group_consumer_heartbeat_interval_ms
        settings.consumer_max_members = config.group_consumer_max_size
        settings.migration_policy = MigrationPolicy(config.group_consumer_migration_policy)
        settings.restricts_patterns = config.authorizes is Authorization.ON

    def start(self) -> None:
        """Begin to read what is stored, and to watch the time."""
        self._topic.start()
        self._catalog.on_removed.append(lambda topic: self.forget_topic(topic.name))
        self._spawn(self._alarm.run(self.tick))
        self._spawn(self._watch_retention())

    async def ensure_ready(self) -> None:
        """Create the offsets topic if it does not exist."""
        await self._topic.ensure()

    def is_loaded(self) -> bool:
        return all(log.is_loaded for log in self._topic)

    def keeps(self, group_id: str) -> bool:
        """Whether this node is the group's coordinator, as far as it knows."""
        return self._topic.exists and self._topic.keeps(group_id)

    # Members

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        check_group_id(group_id)
        await self.ensure_ready()
        unique = str(uuid.uuid4())
        answer: JoinAnswer = await self._decide(
            group_id, lambda shard, to, now: shard.join(group_id, request, unique, to, now)
        )
        return answer

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        check_group_id(group_id)
        if not self._find(group_id, ErrorCode.UNKNOWN_MEMBER_ID).is_loaded:
            # Who was joining is not stored: the member begins again, and need not look for its coordinator.
            return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
        answer: SyncAnswer = await self._decide(
            group_id, lambda shard, to, now: shard.sync(group_id, request, to, now), ErrorCode.UNKNOWN_MEMBER_ID
        )
        return answer

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        check_group_id(group_id)
        log = self._find(group_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if not log.is_loaded:
            # As Kafka does: sessions begin anew when the group is loaded, and some clients give up on any other answer.
            return ErrorCode.NONE
        error = log.shard.heartbeat(group_id, member_id, instance_id, generation, self._now())
        if error is not ErrorCode.NONE:
            log.release(GroupEffects())
        return error

    async def leave(self, group_id: str, requests: Sequence[LeaveRequest]) -> Sequence[LeaveAnswer]:
        if not self._topic.exists:
            return [LeaveAnswer(ErrorCode.UNKNOWN_MEMBER_ID, each.member_id, each.instance_id) for each in requests]
        answers: Sequence[LeaveAnswer] = await self._decide(
            group_id, lambda shard, to, now: shard.leave(group_id, requests, to, now)
        )
        return answers

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerAnswer:
        """A member of a consumer group (KIP-848) joins, stays or leaves."""
        check_group_id(group_id)
        await self.ensure_ready()
        answer: ConsumerAnswer = await self._decide(
            group_id, lambda shard, to, now: shard.consumer_heartbeat(group_id, request, to, now)
        )
        return answer

    # Members of share groups

    async def share_heartbeat(
        self, group_id: str, request: ShareHeartbeat, settings: ShareSettings
    ) -> ShareHeartbeatAnswer:
        await self.ensure_ready()
        answer: ShareHeartbeatAnswer = await self._decide(
            group_id,
            lambda shard, to, now: shard.share_heartbeat(group_id, request, settings, self._topic_view, to, now),
        )
        self._tell_departed(self._topic.log(group_id))
        return answer

    async def create_share_group(self, group_id: str) -> None:
        """A share group without members, unless there is one."""
        check_group_id(group_id)
        await self.ensure_ready()
        await self._decide(group_id, lambda shard, to, now: shard.create_share_group(group_id, to))

    def doubt_share_member(self, group_id: str, member_id: str, settings: ShareSettings) -> None:
        """The member's connection was lost: it must be heard of soon."""
        log = self._find(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        if log.is_loaded:
            log.shard.share.doubt(group_id, member_id, settings, self._now())
            log.release(GroupEffects())

    def share_group(self, group_id: str) -> ShareGroup:
        """For reading. Raises GROUP_ID_NOT_FOUND."""
        found = self._find(group_id, ErrorCode.GROUP_ID_NOT_FOUND).shard.share.get(group_id)
        if found is None:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return found

    def check_share_group_is_empty(self, group_id: str) -> None:
        """Only a group without members can be changed by an administrator. Raises RequestError."""
        if self.share_group(group_id).state is not GroupState.EMPTY:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"Share group {group_id} has members.")

    # Offsets

    async def commit(self, group_id: str, request: CommitRequest) -> Sequence[OffsetAnswer]:
        check_group_id(group_id)
        await self.ensure_ready()
        answers: Sequence[OffsetAnswer] = await self._decide(
            group_id, lambda shard, to, now: shard.commit(group_id, request, to, now)
        )
        return answers

    async def committed(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> list[FoundOffset]:
        """What the group has committed: in these partitions, or in all. Nothing for an unknown group. A member of a
        consumer group (KIP-848) names itself, and is refused if its epoch is over."""
        if not self._topic.exists:
            return [FoundOffset(topic, partition, None) for topic, partition in partitions or ()]
        log = self._topic.log(group_id)
        log.shard.check_fetch(group_id, member_id, member_epoch)
        found = log.shard.found_offsets(group_id, partitions)
        await self._committed_so_far(log)
        return found

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> Sequence[OffsetAnswer]:
        answers: Sequence[OffsetAnswer] = await self._decide(
            group_id,
            lambda shard, to, now: shard.delete_offsets(group_id, partitions, to),
            ErrorCode.GROUP_ID_NOT_FOUND,
        )
        return answers

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted, and with it the offsets of all groups there."""
        for log in self._topic:
            if log.is_loaded:
                log.release(log.shard.forget_topic(topic))

    # Offsets in transactions

    async def offsets_partition(self, group_id: str) -> PartitionId:
        """Where the group's offsets are kept: the partition that takes part in a transaction which commits some."""
        check_group_id(group_id)
        await self.ensure_ready()
        return PartitionId(self._catalog.topic(OFFSETS_TOPIC).topic_id, self._topic.index(group_id))

    def announced(
        self, producer_id: int, producer_epoch: int, version: int
    ) -> contextlib.AbstractContextManager[AnnouncedCommit]:
        """To be entered before the transaction's coordinator is asked, and left after `commit_in_transaction`."""
        return self._ends.announced(producer_id, producer_epoch, version)

    async def commit_in_transaction(
        self,
        group_id: str,
        request: CommitRequest,
        producer_id: int,
        producer_epoch: int,
        announced: AnnouncedCommit | None = None,
    ) -> Sequence[OffsetAnswer]:
        """Commit for the case that the producer's transaction commits, of which its coordinator must have said that it
        is under way. Refused if it ended since the commit was announced."""
        check_group_id(group_id)
        await self.ensure_ready()

        def decide(shard: GroupShard, to: ReplyTo, now: Moment) -> GroupEffects:
            if announced is not None:
                announced.check()
            return shard.commit_in_transaction(group_id, request, producer_id, producer_epoch, to, now)

        answers: Sequence[OffsetAnswer] = await self._decide(group_id, decide)
        return answers

    def is_loading(self, index: int) -> bool:
        """Whether a partition's groups are being read. If they are not kept here, there is nothing to wait for."""
        return self._topic.is_kept(index) and not self._topic.at(index).is_loaded

    async def loaded(self, index: int) -> None:
        """Return when the groups of a partition are read."""
        if self._topic.is_kept(index):
            await self._topic.at(index).shard_log.loaded()

    def end_transaction(
        self, index: int, producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int
    ) -> "asyncio.Future[Any]":
        """The producer's transaction has ended: what it committed to groups of this partition counts from now on, or
        vanishes. Done when that is durable; doing it again does nothing. Raises RequestError."""
        if not self._topic.exists:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No groups are kept in partition {index}.")
        self._catalog.topic(OFFSETS_TOPIC).partition(index)
        self._ends.ended(producer_id, producer_epoch, coordinator_epoch)
        log = self._topic.at(index)
        to: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        log.release(log.shard.end_transaction(producer_id, producer_epoch, is_commit, to))
        return to

    async def delete_group(self, group_id: str) -> None:
        await self._decide(
            group_id, lambda shard, to, now: shard.delete_group(group_id, to), ErrorCode.GROUP_ID_NOT_FOUND
        )

    # Time

    def tick(self) -> int | None:
        """Do everything whose time has come; say when the next time is."""
        now = self._now()
        for log in self._topic:
            next_ms = log.shard.next_deadline_ms() if log.is_loaded else None
            if next_ms is not None and next_ms <= now.monotonic_ms:
                log.release(log.shard.tick(now))
                self._tell_departed(log)
        deadlines = (log.shard.next_deadline_ms() for log in self._topic if log.is_loaded)
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    async def expire(self) -> None:
        """Forget what outlived its retention, one group at a time, letting others work in between."""
        for log in self._topic:
            if log.is_loaded:
                self._forget_deleted_topics(log)
            for group_id in log.shard.group_ids() if log.is_loaded else []:
                if log.is_loaded and not self._is_durable(group_id):
                    log.release(log.shard.expire(group_id, self._now()))
                await asyncio.sleep(0)

    # Inside

    def _open(self, partition: Partition) -> GroupLog:
        return GroupLog(
            partition=partition,
            settings=self._settings,
            topics=self._topics,
            clock=self._clock,
            spawn=self._spawn,
            on_deadline=self._alarm.arm,
            on_loaded=self._forget_deleted_topics,
        )

    def _forget_deleted_topics(self, log: GroupLog) -> None:
        """A crash, or a shard that was being read, may have come between a topic's deletion and that of its offsets."""
        missing = [topic for topic in log.shard.offset_topics() if self._catalog.find(topic) is None]
        if missing:
            self._spawn(self._forget_if_deleted(log, missing))

    async def _forget_if_deleted(self, log: GroupLog, topics: Sequence[str]) -> None:
        """This node may not have heard of a topic yet that others commit to."""
        for topic in topics:
            try:
                is_deleted = await self._catalog.is_name_free(topic)
            except RequestError:
                return  # the next look will find it, too
            if is_deleted and log.is_loaded:
                log.release(log.shard.forget_topic(topic))

    def _find(self, group_id: str, unless: ErrorCode) -> GroupLog:
        if not self._topic.exists:
            raise RequestError(unless)
        return self._topic.log(group_id)

    async def _decide(self, group_id: str, decision: Decision, unless: ErrorCode = ErrorCode.NOT_COORDINATOR) -> Any:
        """Let the group's shard decide, and wait for the answer. `unless` is the refusal where there are no groups."""
        log = self._find(group_id, unless)
        to: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        log.release(decision(log.shard, to, self._now()))
        return await to

    async def _committed_so_far(self, log: GroupLog) -> None:
        effects = GroupEffects()
        to: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        effects.reply(to, ErrorCode.NONE)
        log.release(effects)
        if not to.done():
            await to

    def _tell_departed(self, log: GroupLog) -> None:
        if log.is_loaded:
            for group_id, member_id in log.shard.share.take_departed():
                for listener in self.on_share_departure:
                    listener(group_id, member_id)

    def _topic_view(self, name: str) -> tuple[TopicId, int] | None:
        topic = self._catalog.find(name)
        return (topic.topic_id, topic.partition_count) if topic is not None else None

    def _topic_changed(self, name: str) -> None:
        topic = self._catalog.find(name)
        if topic is None:
            self._topics.remove(name)
        else:
            self._topics.put(TopicInfo(name, topic.topic_id, topic.partition_count))

    async def _watch_retention(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_S)
            await self.expire()

    def _now(self) -> Moment:
        return moment(self._clock)
