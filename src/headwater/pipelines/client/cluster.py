"""The brokers as one client sees them: which topics there are, which broker leads what, and where their logs begin and
end.

A cluster is asked through one connection to each broker, kept for as long as it works. `shared_cluster` gives the same
one to everything in a process that reads with the same configuration, because Spark runs the tasks of a query one
after another in the same few processes.

Leaders move and brokers restart: a request that fails for such a reason is tried again, with new metadata, until
`retry_timeout_ms` of the configuration has passed. Not thread-safe.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from headwater.model.errors import ErrorCode
from headwater.pipelines.client.apis import LIST_OFFSETS, METADATA
from headwater.pipelines.client.config import BrokerAddress, ClientConfig
from headwater.pipelines.client.connection import BrokerConnection, ConnectionLost
from headwater.pipelines.client.offsets import Offsets, TopicPartition
from headwater.pipelines.client.retry import RetryBackoff
from headwater.pipelines.errors import BrokerUnreachable, RequestRefused, SourceError, UnknownTopic
from headwater.wire.message import Message
from headwater.wire.schema import NULL_UUID

LATEST = -1
EARLIEST = -2
NOT_FOUND = -1
NO_REPLICA = -1
FIRST_CONTACT_MS = 5_000
"""At the start of a query a person waits, and should soon hear of a wrong address."""

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors that new metadata and a little time cure. Whether a topic exists at all is for metadata to say."""
MAX_CLUSTERS = 16
"""Per thread. A process seldom uses more configurations at the same time."""

_Found = TypeVar("_Found")


class RetriableError(RequestRefused):
    """A broker answered with an error that passes."""


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: UUID | None
    is_internal: bool
    leaders: Mapping[int, int]
    """Of each partition, the node that leads it."""


class ClusterClient:
    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._connections: dict[BrokerAddress, BrokerConnection] = {}
        self._brokers: dict[int, BrokerAddress] = {}
        self._topics: dict[str, TopicMetadata] = {}

    def reach(self) -> None:
        """Find a broker that answers, or raise BrokerUnreachable soon."""
        self._retried(self._any_connection, RetryBackoff(min(FIRST_CONTACT_MS, self.config.retry_timeout_ms)))

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """Those of the named topics that exist, or all that there are, as of now."""
        asked = sorted(set(names)) if names is not None else None
        return self._retried(lambda: self._ask_metadata(asked))

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        """For each partition the first offset at or after a time in milliseconds (NOT_FOUND if there is none), or the
        EARLIEST, or the LATEST that may be read."""
        found: Offsets = {}

        def ask() -> Offsets:
            missing = {partition: time_ms for partition, time_ms in timestamps.items() if partition not in found}
            found.update(self._list_offsets(missing))
            return found

        return self._retried(ask)

    def leader(self, partition: TopicPartition) -> BrokerConnection:
        """A connection to the broker that leads the partition. One try: the caller decides how long to go on."""
        return self._connect(self.leader_address(partition))

    def leader_address(self, partition: TopicPartition) -> BrokerAddress:
        topic = self._topics.get(partition.topic)
        if topic is None or topic.leaders.get(partition.partition) not in self._brokers:
            topic = self._ask_metadata([partition.topic]).get(partition.topic)
        if topic is None or partition.partition not in topic.leaders:
            raise UnknownTopic(f"Partition {partition} does not exist.")
        address = self._brokers.get(topic.leaders[partition.partition])
        if address is None:
            raise ConnectionLost(f"partition {partition} has no leader now")
        return address

    def topic_id(self, name: str) -> UUID | None:
        """As the last metadata had it."""
        topic = self._topics.get(name)
        return topic.topic_id if topic is not None else None

    def forget(self, topic: str) -> None:
        """What is known of a topic turned out to be wrong: ask again before it is used."""
        self._topics.pop(topic, None)

    def unreachable(self, error: ConnectionLost) -> BrokerUnreachable:
        brokers = ", ".join(map(str, self.config.bootstrap))
        return BrokerUnreachable(
            f"The brokers ({brokers}) cannot be reached: {error}. Is a broker running there, and is "
            "kafka.bootstrap.servers right?"
        )

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._topics.clear()

    def _retried(self, ask: Callable[[], _Found], backoff: RetryBackoff | None = None) -> _Found:
        backoff = backoff or RetryBackoff(self.config.retry_timeout_ms)
        while True:
            try:
                return ask()
            except ConnectionLost as error:
                failure: SourceError = self.unreachable(error)
            except RetriableError as error:
                failure = error
            if not backoff.pause():
                raise failure
            self._topics.clear()

    def _ask_metadata(self, names: Sequence[str] | None) -> dict[str, TopicMetadata]:
        asked = None if names is None else [Message(name=name, topic_id=NULL_UUID) for name in names]
        answer = self._any_connection().ask(METADATA, topics=asked, allow_auto_topic_creation=False)
        self._brokers = {node.node_id: BrokerAddress(node.host, node.port) for node in answer.brokers or ()}
        found = {topic.name: _topic(topic) for topic in answer.topics or () if _exists(topic)}
        kept = {} if names is None else {name: topic for name, topic in self._topics.items() if name not in names}
        self._topics = kept | found
        return found

    def _any_connection(self) -> BrokerConnection:
        for connection in self._connections.values():
            if connection.is_open and connection.is_idle:
                return connection
        failure = ConnectionLost("no address is known")
        for address in dict.fromkeys((*self._brokers.values(), *self.config.bootstrap)):
            try:
                return self._connect(address)
            except ConnectionLost as error:
                failure = error
        raise failure

    def _connect(self, address: BrokerAddress) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open or not connection.is_idle:
            connection = self._connections[address] = BrokerConnection(address, self.config)
        return connection

    def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        unknown = {partition.topic for partition in timestamps} - self._topics.keys()
        if unknown:
            self._ask_metadata(sorted(unknown))
        by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
        for partition in timestamps:
            by_leader.setdefault(self.leader_address(partition), []).append(partition)
        found: Offsets = {}
        for address, partitions in by_leader.items():
            answer = self._connect(address).ask(
                LIST_OFFSETS,
                replica_id=NO_REPLICA,
                isolation_level=self.config.isolation_level,
                topics=_by_topic(partitions, timestamps),
            )
            for topic in answer.topics or ():
                for result in topic.partitions or ():
                    partition = TopicPartition(topic.name, result.partition_index)
                    check_error(result.error_code, address, partition)
                    found[partition] = result.offset
        if found.keys() < timestamps.keys():
            raise RetriableError(
                f"Brokers left out {', '.join(map(str, timestamps.keys() - found.keys()))} in their answers."
            )
        return found


def check_error(code: int, address: BrokerAddress, partition: TopicPartition) -> None:
    """Raise RetriableError or RequestRefused if it is an error."""
    if code == ErrorCode.NONE:
        return
    name = error_name(code)
    if code in RETRIABLE:
        raise RetriableError(f"Broker {address} answers {name} for {partition}.")
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise RequestRefused(f"Broker {address} does not let this client read {partition}: {name}.")
    raise RequestRefused(f"Broker {address} refuses to say more of {partition}: {name}.")


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def shared_cluster(config: ClientConfig) -> ClusterClient:
    """The cluster of this configuration in this thread of this process. A process that was forked has its own."""
    if getattr(_local, "process", None) != os.getpid():
        _local.process = os.getpid()
        _local.clusters = {}
    clusters: dict[ClientConfig, ClusterClient] = _local.clusters
    cluster = clusters.pop(config, None) or ClusterClient(config)
    clusters[config] = cluster  # the newest use comes last
    if len(clusters) > MAX_CLUSTERS:
        clusters.pop(next(iter(clusters))).close()
    return cluster


_local = threading.local()


def _exists(topic: Message) -> bool:
    """Whether metadata knows a topic. A name that no topic can have is one that does not exist."""
    if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        return False
    if topic.error_code in RETRIABLE:
        raise RetriableError(f"Topic {topic.name} is not ready: {error_name(topic.error_code)}.")
    if topic.error_code:
        raise RequestRefused(f"Topic {topic.name} cannot be read: {error_name(topic.error_code)}.")
    return True


def _topic(topic: Message) -> TopicMetadata:
    return TopicMetadata(
        topic.name,
        topic.topic_id if topic.topic_id != NULL_UUID else None,
        topic.is_internal,
        {partition.partition_index: partition.leader_id for partition in topic.partitions or ()},
    )


def _by_topic(partitions: Iterable[TopicPartition], timestamps: Mapping[TopicPartition, int]) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for partition in partitions:
        asked = Message(partition_index=partition.partition, timestamp=timestamps[partition])
        topics.setdefault(partition.topic, []).append(asked)
    return [Message(name=name, partitions=asked) for name, asked in topics.items()]
