"""A cluster whose calls block: one connection to each broker, kept for as long as it works. Not thread-safe.
Everything raises ClientError."""

from collections.abc import Callable, Collection, Container, Iterable
from typing import TypeVar

from headwater.client.address import BrokerAddress
from headwater.client.blocking_backoff import BlockingBackoff
from headwater.client.blocking_connection import BlockingConnection, zeroed
from headwater.client.cluster_view import ClusterView, Coordinated, TopicView, coordinator_request, metadata_request
from headwater.client.errors import ClientError, ConnectionLost, NoSuchPartition
from headwater.client.question import AnswerT, Question
from headwater.client.retry import passes
from headwater.client.settings import ConnectionSettings
from headwater.client.topic_partition import TopicPartition
from headwater.wire.message import Request, ResponseT

T = TypeVar("T")


class BlockingCluster:
    def __init__(
        self,
        bootstrap: Iterable[BrokerAddress],
        settings: ConnectionSettings,
        allocate: Callable[[int], memoryview] = zeroed,
    ) -> None:
        self.view = ClusterView(bootstrap)
        self._settings = settings
        self._allocate = allocate
        self._connections: dict[BrokerAddress, BlockingConnection] = {}

    def ask(self, request: Request[ResponseT]) -> ResponseT:
        """Any broker."""
        return self.any_connection().ask(request)

    def ask_at(self, address: BrokerAddress, request: Request[ResponseT]) -> ResponseT:
        return self.connection(address).ask(request)

    def ask_coordinator(self, of: Coordinated, request: Request[ResponseT]) -> ResponseT:
        """One try, as far as errors inside of the response are concerned."""
        return self.ask_at(self.coordinator(of), request)

    def answer(self, question: Question[AnswerT]) -> AnswerT:
        """One try, as far as errors inside of the response are concerned."""
        of = question.coordinator_of
        if of is None:
            return question.read(self.ask(question.request))
        try:
            return question.read(self.ask_coordinator(of, question.request))
        except ClientError:
            self.view.coordinators.pop(of, None)  # another broker may be the coordinator by now: the next try asks
            raise

    def answer_at(self, address: BrokerAddress, question: Question[AnswerT]) -> AnswerT:
        return question.read(self.ask_at(address, question.request))

    def answer_everywhere(self, question: Question[AnswerT]) -> list[AnswerT]:
        """From every broker that the cluster names now, by node."""
        return [self.answer_at(address, question) for address in self.brokers()]

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicView]:
        """Those of the named topics that exist, or all, as of now."""
        asked = None if names is None else list(names)
        return self.view.learn(asked, self.ask(metadata_request(asked)))

    def leader(self, partition: TopicPartition) -> BrokerAddress:
        """As it is known, or else asked for. A caller that learns better forgets it (`view.forget_topic`). Raises
        NoSuchPartition, and ConnectionLost if no broker leads the partition now."""
        address = self.view.leader(*partition)
        if address is None:
            topic = self.topics([partition.topic]).get(partition.topic)
            if topic is None or partition.partition not in topic.leaders:
                raise NoSuchPartition(f"Partition {partition} does not exist.")
            address = self.view.leader(*partition)
        if address is None:
            raise ConnectionLost(f"partition {partition} has no leader now")
        return address

    def by_leader(self, partitions: Collection[TopicPartition]) -> dict[BrokerAddress, list[TopicPartition]]:
        """Raises what `leader` raises."""
        unknown = {partition.topic for partition in partitions} - self.view.topics.keys()
        if unknown:
            self.topics(sorted(unknown))
        found: dict[BrokerAddress, list[TopicPartition]] = {}
        for partition in partitions:
            found.setdefault(self.leader(partition), []).append(partition)
        return found

    def brokers(self) -> list[BrokerAddress]:
        """All that the cluster names now, by node."""
        self.topics([])
        return [address for _, address in sorted(self.view.nodes.items())]

    def coordinator(self, of: Coordinated) -> BrokerAddress:
        """As it is known, or else asked for. `answer` forgets a coordinator that fails."""
        known = self.view.coordinators.get(of)
        return known or self.view.learn_coordinator(of, self.ask(coordinator_request(of)))

    def any_connection(self) -> BlockingConnection:
        """To the first broker that can be reached."""
        for connection in self._connections.values():
            if connection.is_open and connection.is_idle:
                return connection
        failure = ConnectionLost("no address is known")
        for address in self.view.addresses:
            try:
                return self.connection(address)
            except ConnectionLost as error:
                failure = error
        raise failure

    def connection(self, address: BrokerAddress) -> BlockingConnection:
        """Shared, unless a response is under way on it."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_open or not connection.is_idle:
            connection = self._connections[address] = self.dial(address)
        return connection

    def dial(self, address: BrokerAddress) -> BlockingConnection:
        """A connection of one's own."""
        return BlockingConnection(address, self._settings, self._allocate)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self.view.topics.clear()


def retried(
    call: Callable[[], T],
    *,
    patience_s: float,
    also: Container[int] = (),
    final: Container[int] = (),
) -> T:
    """The result of a call that is repeated while it fails for a reason that passes (`retry.passes`)."""
    backoff = BlockingBackoff(patience_s)
    while True:
        try:
            return call()
        except ClientError as error:
            if not passes(error, also=also, final=final) or not backoff.pause():
                raise
