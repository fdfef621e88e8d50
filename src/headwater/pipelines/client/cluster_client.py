"""A cluster as queries ask it: `headwater.client` with the configuration of a query, and with errors in its words.

`shared_cluster` gives the same one to everything in a process that reads with the same configuration, because Spark
runs the tasks of a query one after another in the same few processes.

Leaders move and brokers restart: a request that fails for such a reason is tried again, with new metadata, until
`retry_timeout_ms` of the configuration has passed. Not thread-safe.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar
from uuid import UUID

import numpy as np

from headwater.client.address import BrokerAddress
from headwater.client.blocking_backoff import BlockingBackoff
from headwater.client.blocking_cluster import BlockingCluster
from headwater.client.blocking_connection import BlockingConnection
from headwater.client.cluster_view import TopicView
from headwater.client.errors import BrokerRefused, ConnectionLost, NoSuchPartition, NotLoggedIn, UnusableTlsFiles
from headwater.client.offsets import list_offsets
from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.config import ClientConfig
from headwater.pipelines.client.offsets import Offsets
from headwater.pipelines.client.refusals import partition_refusal, topic_refusal, unreachable, unusable_tls_files
from headwater.pipelines.errors import BrokerUnreachable, InvalidOption, RetriableError, SourceError, UnknownTopic

FIRST_CONTACT_MS = 5_000
"""At the start of a query a person waits, and should soon hear of a wrong address."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
MAX_CLUSTERS = 16
"""Per thread. A process seldom uses more configurations at the same time."""

_Found = TypeVar("_Found")


class ClusterClient:
    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._brokers = self.own_brokers()

    def reach(self) -> None:
        """Find a broker that answers, or raise BrokerUnreachable soon."""
        self._retried(self._brokers.any_connection, backoff(min(FIRST_CONTACT_MS, self.config.retry_timeout_ms)))

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicView]:
        """Those of the named topics that exist, or all that there are, as of now."""
        asked = sorted(set(names)) if names is not None else None
        return self._retried(lambda: self._brokers.topics(asked))

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        """For each partition the first offset at or after a time in milliseconds (NOT_FOUND if there is none), or the
        EARLIEST, or the LATEST that may be read."""
        return self._retried(lambda: self._list_offsets(timestamps))

    def leader(self, partition: TopicPartition) -> BlockingConnection:
        """A connection to the broker that leads the partition. One try: the caller decides how long to go on."""
        with self.in_words():
            return self._brokers.connection(self._brokers.leader(partition))

    def leader_address(self, partition: TopicPartition) -> BrokerAddress:
        with self.in_words():
            return self._brokers.leader(partition)

    def by_leader(self, partitions: Mapping[TopicPartition, object]) -> dict[BrokerAddress, list[TopicPartition]]:
        with self.in_words():
            return self._brokers.by_leader(partitions.keys())

    def dial(self, address: BrokerAddress) -> BlockingConnection:
        """A connection of one's own."""
        with self.in_words():
            return self._brokers.dial(address)

    def own_brokers(self) -> BlockingCluster:
        """The same cluster over connections that are not shared."""
        return BlockingCluster(self.config.bootstrap, self.config.connection, _unfilled)

    def topic_id(self, name: str) -> UUID | None:
        """As the last metadata had it."""
        topic = self._brokers.view.topics.get(name)
        return topic.topic_id if topic is not None else None

    def forget(self, topic: str) -> None:
        """What is known of a topic turned out to be wrong: ask again before it is used."""
        self._brokers.view.forget_topic(topic)

    def unreachable(self, error: ConnectionLost) -> BrokerUnreachable:
        return unreachable(self.config.bootstrap, error)

    @contextmanager
    def in_words(self) -> Iterator[None]:
        """Errors of the client become those of a query. A lost connection stays what it is: the caller may try
        again."""
        try:
            yield
        except BrokerRefused as error:
            raise topic_refusal(error) from error
        except NoSuchPartition as error:
            raise UnknownTopic(str(error)) from error
        except UnusableTlsFiles as error:
            raise unusable_tls_files(self.config.tls, error) from error
        except NotLoggedIn as error:
            raise InvalidOption(f"The brokers do not let the query in: {error}") from error

    def close(self) -> None:
        self._brokers.close()

    def _retried(self, ask: Callable[[], _Found], pauses: BlockingBackoff | None = None) -> _Found:
        pauses = pauses or backoff(self.config.retry_timeout_ms)
        while True:
            try:
                with self.in_words():
                    return ask()
            except ConnectionLost as error:
                failure: SourceError = self.unreachable(error)
            except RetriableError as error:
                failure = error
            if not pauses.pause():
                raise failure
            self._brokers.view.topics.clear()

    def _list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        found: Offsets = {}
        for address, partitions in self._brokers.by_leader(timestamps.keys()).items():
            question = list_offsets({each: timestamps[each] for each in partitions}, self.config.isolation_level)
            try:
                offsets = self._brokers.answer_at(address, question)
            except BrokerRefused as error:
                raise partition_refusal(error, address) from error
            found |= offsets
        if found.keys() < timestamps.keys():
            raise RetriableError(
                f"Brokers left out {', '.join(map(str, timestamps.keys() - found.keys()))} in their answers."
            )
        return found


def backoff(timeout_ms: int) -> BlockingBackoff:
    """The pauses of queries."""
    return BlockingBackoff(timeout_ms / 1000, first_pause_s=FIRST_PAUSE_S, longest_pause_s=LONGEST_PAUSE_S)


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


def _unfilled(size: int) -> memoryview:
    """Not filled with zeros first: the memory is there when bytes arrive, whatever length was announced."""
    return np.empty(size, np.uint8).data
