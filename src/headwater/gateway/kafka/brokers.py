"""The cluster as those see it who speak its protocol themselves: who is there, who leads, who coordinates.

One connection to each broker is shared by short questions. Requests that wait get connections of their own (`dial`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from headwater.gateway.kafka.connection import KafkaConnection
from headwater.gateway.kafka.errors import BrokerGone, BrokerRefused
from headwater.model.errors import ErrorCode
from headwater.wire.message import Message
from headwater.wire.schema import NULL_UUID

METADATA, FIND_COORDINATOR = 3, 10
GROUP_KEY = 0
PATIENCE_S = 8.0
"""How long a question is repeated while leaders and coordinators move."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5

Address: TypeAlias = tuple[str, int]

PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that a little time cures."""


def check(code: int, reason: str | None, subject: str) -> None:
    """Raises BrokerRefused unless the code is 0."""
    if code:
        raise BrokerRefused(code, reason, subject)


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    name: str
    topic_id: UUID
    leaders: Mapping[int, int]
    """Of each partition, the node that leads it; below 0 if there is none."""


class Brokers:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = [_address(part) for part in bootstrap.split(",")]
        self._nodes: dict[int, Address] = {}
        self._shared: dict[Address, KafkaConnection] = {}
        self._dialling = asyncio.Lock()

    async def ask(self, api_key: int, version: int, **fields: Any) -> Message:
        """Ask one broker after the other, until one answers."""
        failure = BrokerGone("no address is known")
        for address in dict.fromkeys((*self._nodes.values(), *self._bootstrap)):
            try:
                return await (await self._connection(address)).ask(api_key, version, **fields)
            except BrokerGone as error:
                failure = error
        raise failure

    async def ask_node(self, node_id: int, api_key: int, version: int, **fields: Any) -> Message:
        return await (await self._connection(await self._node(node_id))).ask(api_key, version, **fields)

    async def ask_coordinator(self, group: str, api_key: int, version: int, **fields: Any) -> Message:
        """One try, as far as errors inside of the answer are concerned."""
        connection = await self._connection(await self.coordinator(group))
        return await connection.ask(api_key, version, **fields)

    async def dial(self, node_id: int) -> KafkaConnection:
        """A connection of one's own."""
        return await KafkaConnection.open(*await self._node(node_id))

    async def coordinator(self, group: str) -> Address:
        backoff = RequestBackoff()
        while True:
            try:
                answer = await self.ask(FIND_COORDINATOR, 4, key_type=GROUP_KEY, coordinator_keys=[group])
                found = answer.coordinators[0]
                check(found.error_code, found.error_message, f"The coordinator of {group}")
                return found.host, found.port
            except (BrokerRefused, BrokerGone) as error:
                await backoff.pause(error)

    async def topics(self, names: list[str] | None = None) -> dict[str, TopicLeaders]:
        """Those of the named topics that exist, or all."""
        asked = None if names is None else [Message(name=name, topic_id=NULL_UUID) for name in names]
        answer = await self.ask(
            METADATA, 12, topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        self._nodes = {node.node_id: (node.host, node.port) for node in answer.brokers or ()}
        return {
            topic.name: TopicLeaders(
                name=topic.name,
                topic_id=topic.topic_id,
                leaders={each.partition_index: each.leader_id for each in topic.partitions or ()},
            )
            for topic in answer.topics or ()
            if topic.error_code == ErrorCode.NONE and topic.name is not None
        }

    async def nodes(self) -> list[int]:
        await self.topics([])
        return sorted(self._nodes)

    def close(self) -> None:
        for connection in self._shared.values():
            connection.close()
        self._shared.clear()

    async def _node(self, node_id: int) -> Address:
        if node_id not in self._nodes:
            await self.topics([])
        if node_id not in self._nodes:
            raise BrokerGone(f"broker {node_id} is not known")
        return self._nodes[node_id]

    async def _connection(self, address: Address) -> KafkaConnection:
        connection = self._shared.get(address)
        if connection is not None and connection.is_open:
            return connection
        async with self._dialling:
            connection = self._shared.get(address)
            if connection is None or not connection.is_open:
                connection = self._shared[address] = await KafkaConnection.open(*address)
        return connection


class RequestBackoff:
    """Pauses between the tries of a request that fails while leaders and coordinators move."""

    def __init__(self, patience_s: float = PATIENCE_S, also: Iterable[ErrorCode] = ()) -> None:
        """`also` are further codes after which this request is tried again."""
        self._passing = PASSING | frozenset(also)
        self._until_s = asyncio.get_running_loop().time() + patience_s
        self._pause_s = FIRST_PAUSE_S

    async def pause(self, error: BrokerRefused | BrokerGone) -> None:
        """Wait before the next try. Raises the error if no try would help or the time is up."""
        if isinstance(error, BrokerRefused) and error.code not in self._passing:
            raise error
        if asyncio.get_running_loop().time() + self._pause_s > self._until_s:
            raise error
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


def _address(text: str) -> Address:
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)
