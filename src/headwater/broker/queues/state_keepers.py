"""Where the state of share groups is kept: in the partitions of an internal topic, each kept by its leader.

A share partition belongs to one of them by a hash of the group and the partition that it reads. Keepers on other nodes
are asked over the network, in the order of the calls.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from headwater.broker.log.partition import Partition
from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_client import ConnectionClass, NodeClient, NodeRequest, no_response
from headwater.broker.nodes.node_messages import Claimed, NodeCallKind, ShareKey, StateWrite
from headwater.broker.nodes.routed import Route
from headwater.broker.queues.state_keeper import StateKeeper
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.state.record_log import Spawn
from headwater.broker.state.state_topic import StateTopic
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.model.clock import Clock
from headwater.model.errors import RequestError
from headwater.model.ids import LeaderEpoch, PartitionId, TopicId

T = TypeVar("T")

STATE_TOPIC = "__share_group_state"
OWN_KEYS = 1
"""The format of internal topics (model.cluster.STATE_FORMAT) that has the newer keys."""
LOAD_WAIT_S = 10.0
"""How long a request waits for state that is being read, before it gets a retriable error."""


class StateKeepers:
    """Implements `queue_log.Keeper`."""

    def __init__(self, catalog: Catalog, config: BrokerConfig, clock: Clock, spawn: Spawn, nodes: NodeClient) -> None:
        self._catalog = catalog
        self._clock = clock
        self._spawn = spawn
        self._nodes = nodes
        self._topic: StateTopic[StateKeeper] = StateTopic(
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

    def keeper(self, key: ShareKey) -> StateKeeper:
        """For a leader on another node. Raises RequestError if the state is not kept here."""
        return self._topic.log(_name(key))

    def keeper_at(self, index: int) -> StateKeeper:
        return self._topic.at(index)

    # What leaders of partitions ask, wherever the state is

    async def claim(self, key: ShareKey, epoch: LeaderEpoch) -> Claimed:
        request = NodeRequest(
            NodeCallKind.CLAIM,
            ConnectionClass.STATE,
            lambda: node_messages.claim(key, epoch),
            node_messages.read_claimed,
        )
        return await self._call(self._index(key), lambda keeper: keeper.claim(key, epoch), request)

    async def claim_all(
        self, index: int, leaders: Mapping[PartitionId, LeaderEpoch]
    ) -> Sequence[tuple[ShareKey, Claimed]]:
        """What one partition of the topic knows of the partitions that this node leads, in which epochs."""
        request: NodeRequest[Sequence[tuple[ShareKey, Claimed]]] = NodeRequest(
            NodeCallKind.CLAIM_ALL,
            ConnectionClass.BULK,
            lambda: node_messages.claims(index, leaders.items()),
            node_messages.read_all_claimed,
        )
        return await self._call(index, lambda keeper: keeper.claim_all(leaders), request)

    def write(self, write: StateWrite) -> "asyncio.Future[None]":
        index = self._index(write.key)
        request = NodeRequest(
            NodeCallKind.WRITE_STATE, ConnectionClass.STATE, lambda: node_messages.state_write(write), no_response
        )
        return self._route(index).start(lambda: self._topic.at(index).write(write), request)

    async def forget(self, key: ShareKey, ticket: int) -> None:
        body = node_messages.key(key) + node_messages.number(ticket)
        request = NodeRequest(NodeCallKind.FORGET_STATE, ConnectionClass.STATE, lambda: body, no_response)
        await self._call(self._index(key), lambda keeper: keeper.forget(key, ticket), request)

    # Inside

    async def _call(self, index: int, here: Callable[[StateKeeper], Awaitable[T]], request: NodeRequest[T]) -> T:
        """Call the keeper of one partition, when it has read its log, if it is here or about to be. Raises
        RequestError."""

        async def call_here() -> T:
            keeper = self._topic.at(index)
            await keeper.wait_loaded(LOAD_WAIT_S)
            return await here(keeper)

        await self._catalog.leadership.begun(self._place(index))
        return await self._route(index).call(call_here, request)

    def _route(self, index: int) -> Route:
        return Route(self._nodes, lambda: self._topic.is_kept(index), self._place(index))

    def _index(self, key: ShareKey) -> int:
        return self._topic.index(_name(key))

    def _place(self, index: int) -> PartitionId:
        return self._catalog.topic(STATE_TOPIC).partition_id(index)

    def _open(self, partition: Partition) -> StateKeeper:
        return StateKeeper(partition, self._clock, self._spawn, self._loaded, lambda: self._nodes.all_read(OWN_KEYS))

    def _loaded(self, log: StateKeeper) -> None:
        """Topics may have been deleted while no node led the partition that keeps the state."""
        strays = [topic_id for topic_id in log.topics() if self._catalog.find_id(topic_id) is None]
        if strays:
            self._spawn(self._forget_strays(log, strays))

    async def _forget_strays(self, log: StateKeeper, strays: Sequence[TopicId]) -> None:
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
