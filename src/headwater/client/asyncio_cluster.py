"""A cluster on an event loop: one connection to each broker, shared by short requests. Requests that wait get
connections of their own (`dial`). Everything raises ClientError."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Iterable
from typing import TypeVar

from headwater.client.address import BrokerAddress
from headwater.client.asyncio_connection import AsyncioConnection
from headwater.client.cluster_view import ClusterView, Coordinated, TopicView, coordinator_request, metadata_request
from headwater.client.errors import ClientError, ConnectionLost
from headwater.client.question import AnswerT, Question
from headwater.client.retry import Backoff, passes
from headwater.client.settings import ConnectionSettings
from headwater.wire.message import Request, ResponseT

PATIENCE_S = 8.0
"""How long a request is repeated while leaders and coordinators move."""

T = TypeVar("T")


class AsyncioCluster:
    def __init__(self, bootstrap: Iterable[BrokerAddress], settings: ConnectionSettings) -> None:
        self._settings = settings
        self._view = ClusterView(bootstrap)
        self._connections: dict[BrokerAddress, AsyncioConnection] = {}
        self._dialling: defaultdict[BrokerAddress, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(self, request: Request[ResponseT]) -> ResponseT:
        """Ask one broker after another, until one answers."""
        failure = ConnectionLost("no address is known")
        for address in self._view.addresses:
            try:
                return await self.ask_at(address, request)
            except ConnectionLost as error:
                failure = error
        raise failure

    async def ask_at(self, address: BrokerAddress, request: Request[ResponseT]) -> ResponseT:
        return await (await self._connection(address)).ask(request)

    async def ask_node(self, node_id: int, request: Request[ResponseT]) -> ResponseT:
        return await self.ask_at(await self._node(node_id), request)

    async def ask_coordinator(self, of: Coordinated, request: Request[ResponseT]) -> ResponseT:
        """One try, as far as errors inside of responses are concerned."""
        return await self.ask_at(await self.coordinator(of), request)

    async def answer(self, question: Question[AnswerT]) -> AnswerT:
        """One try, as far as errors inside of the response are concerned."""
        of, request = question.coordinator_of, question.request
        response = await (self.ask(request) if of is None else self.ask_coordinator(of, request))
        return question.read(response)

    async def answer_at(self, address: BrokerAddress, question: Question[AnswerT]) -> AnswerT:
        return question.read(await self.ask_at(address, question.request))

    async def answer_everywhere(self, question: Question[AnswerT]) -> list[AnswerT]:
        """From every broker that the cluster names now, by node."""
        return [await self.answer_at(address, question) for address in await self.brokers()]

    async def dial(self, node_id: int) -> AsyncioConnection:
        """A connection of one's own."""
        return await AsyncioConnection.open(await self._node(node_id), self._settings)

    async def coordinator(self, of: Coordinated) -> BrokerAddress:
        """As the cluster says now. Raises CoordinatorUnknown as well, after one try."""
        return self._view.learn_coordinator(of, await self.ask(coordinator_request(of)))

    async def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicView]:
        """Those of the named topics that exist, or all."""
        asked = None if names is None else list(names)
        return self._view.learn(asked, await self.ask(metadata_request(asked)))

    async def brokers(self) -> list[BrokerAddress]:
        """All that the cluster names now, by node."""
        await self.topics([])
        return [address for _, address in sorted(self._view.nodes.items())]

    async def nodes(self) -> list[int]:
        await self.topics([])
        return sorted(self._view.nodes)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _node(self, node_id: int) -> BrokerAddress:
        if node_id not in self._view.nodes:
            await self.topics([])
        if node_id not in self._view.nodes:
            raise ConnectionLost(f"broker {node_id} is not known")
        return self._view.nodes[node_id]

    async def _connection(self, address: BrokerAddress) -> AsyncioConnection:
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        async with self._dialling[address]:
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = self._connections[address] = await AsyncioConnection.open(address, self._settings)
        return connection


async def retried(
    call: Callable[[], Awaitable[T]],
    *,
    patience_s: float = PATIENCE_S,
    also: Container[int] = (),
    final: Container[int] = (),
) -> T:
    """The result of a call that is repeated while it fails for a reason that passes (`retry.passes`)."""

    def may_pass(error: Exception) -> bool:
        return isinstance(error, ClientError) and passes(error, also=also, final=final)

    return await repeated(call, may_pass, patience_s=patience_s)


async def repeated(
    call: Callable[[], Awaitable[T]], may_pass: Callable[[Exception], bool], *, patience_s: float = PATIENCE_S
) -> T:
    """The result of a call that is repeated, with pauses, while it raises what may pass."""
    loop = asyncio.get_running_loop()
    backoff = Backoff(loop.time(), patience_s)
    while True:
        try:
            return await call()
        except Exception as error:
            pause_s = backoff.next_pause_s(loop.time())
            if pause_s is None or not may_pass(error):
                raise
        await asyncio.sleep(pause_s)
