"""Where the state of share groups is kept: in the partitions of an internal topic, each with whoever leads it.

A share partition belongs to one of them by a hash of the group and the partition that it reads. Keepers on other nodes
are asked over the network, in the order of the calls.
"""

import asyncio
from collections.abc import Mapping, Sequence

from headwater.broker.log.partition import Partition
from headwater.broker.nodes import node_messages as node_calls
from headwater.broker.nodes.node_client import Lane, NodeClient
from headwater.broker.nodes.node_messages import Claimed, Kind, ShareKey, StateWrite
from headwater.broker.queues.kept_shares import ShareLog
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.state.record_log import Spawn
from headwater.broker.state.state_topic import StateTopic
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.model.clock import Clock
from headwater.model.errors import RequestError
from headwater.model.ids import LeaderEpoch, PartitionId, TopicId

STATE_TOPIC = "__share_group_state"
OWN_KEYS = 1
"""The format of internal topics (model.cluster.STATE_FORMAT) that has the newer keys."""
LOAD_WAIT_S = 10.0
"""How long a request waits for state that is being read, before it is told to come back."""


class ShareStates:
    """Implements `queue_log.Keeper`."""

    def __init__(self, catalog: Catalog, config: BrokerConfig, clock: Clock, spawn: Spawn, nodes: NodeClient) -> None:
        self._catalog = catalog
        self._clock = clock
        self._spawn = spawn
        self._nodes = nodes
        self._topic: StateTopic[ShareLog] = StateTopic(
            catalog, STATE_TOPIC, config.share_state_topic_partitions, self._open, spawn
        )

    def start(self) -> None:
        """Begin to read what is stored."""
        self._topic.start()
        self._catalog.on_removed.append(self._topic_removed)

    async def ensure(self) -> None:
        await self._topic.ensure()

    @property
    def partition_count(self) -> int:
        """0 while there is no topic, and so no state."""
        return self._catalog.topic(STATE_TOPIC).partition_count if self._topic.exists else 0

    async def state_partition(self, key: ShareKey) -> PartitionId:
        """Where a share partition is kept."""
        await self.ensure()
        return self._place(self._index(key))

    def keeper(self, key: ShareKey) -> ShareLog:
        """For a leader on another node. Raises RequestError if the state is not kept here."""
        return self._topic.log(_name(key))

    def keeper_at(self, index: int) -> ShareLog:
        return self._topic.at(index)

    # What leaders of partitions ask, wherever the state is

    async def claim(self, key: ShareKey, epoch: LeaderEpoch) -> Claimed:
        index = self._index(key)
        log = await self._near(index)
        if log is not None:
            return await log.claim(key, epoch)
        return node_calls.read_claimed(
            await self._nodes.ask_leader(self._place(index), Kind.CLAIM, node_calls.claim(key, epoch), Lane.STATE)
        )

    async def claim_all(
        self, index: int, leaders: Mapping[PartitionId, LeaderEpoch]
    ) -> Sequence[tuple[ShareKey, Claimed]]:
        """What one partition of the topic knows of the partitions that this node leads, in which epochs."""
        log = await self._near(index)
        if log is not None:
            return await log.claim_all(leaders)
        body = node_calls.claims(index, leaders.items())
        return node_calls.read_all_claimed(
            await self._nodes.ask_leader(self._place(index), Kind.CLAIM_ALL, body, Lane.BULK)
        )

    def write(self, write: StateWrite) -> "asyncio.Future[None]":
        index = self._index(write.key)
        if self._topic.is_kept(index) or self._nodes.is_alone:
            return self._topic.at(index).write(write)
        return asyncio.get_running_loop().create_task(self._write_far(index, write))

    async def forget(self, key: ShareKey, ticket: int) -> None:
        index = self._index(key)
        log = await self._near(index)
        if log is not None:
            await log.forget(key, ticket)
            return
        body = node_calls.key(key) + node_calls.number(ticket)
        await self._nodes.ask_leader(self._place(index), Kind.FORGET_STATE, body, Lane.STATE)

    # Inside

    async def _near(self, index: int) -> ShareLog | None:
        """The log of one partition, when it is read, if it is kept here or is about to be. None if another node keeps
        it. Raises RequestError."""
        await self._catalog.leadership.begun(self._place(index))
        if not self._topic.is_kept(index) and not self._nodes.is_alone:
            return None
        log = self._topic.at(index)
        await log.loaded(LOAD_WAIT_S)
        return log

    async def _write_far(self, index: int, write: StateWrite) -> None:
        """Tasks begin in the order in which they are made, and a lane keeps it."""
        await self._nodes.ask_leader(self._place(index), Kind.WRITE_STATE, node_calls.state_write(write), Lane.STATE)

    def _index(self, key: ShareKey) -> int:
        return self._topic.index(_name(key))

    def _place(self, index: int) -> PartitionId:
        return self._catalog.topic(STATE_TOPIC).partition_id(index)

    def _open(self, partition: Partition) -> ShareLog:
        return ShareLog(partition, self._clock, self._spawn, self._loaded, lambda: self._nodes.all_read(OWN_KEYS))

    def _loaded(self, log: ShareLog) -> None:
        """A topic may have gone while nobody kept the state."""
        strays = [topic_id for topic_id in log.topics() if self._catalog.find_id(topic_id) is None]
        if strays:
            self._spawn(self._forget_strays(log, strays))

    async def _forget_strays(self, log: ShareLog, strays: Sequence[TopicId]) -> None:
        for topic_id in strays:
            try:
                if await self._catalog.is_deleted(topic_id):
                    log.forget_topic(topic_id)
            except RequestError:
                return  # they stay until the log is read the next time

    def _topic_removed(self, topic: Topic) -> None:
        for log in self._topic:
            log.forget_topic(topic.topic_id)


def _name(key: ShareKey) -> str:
    return f"{key.group_id}/{key.partition}"
