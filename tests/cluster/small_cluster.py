"""A cluster of nodes that differ: each with options of its own, added and removed while it runs.

Nodes are threads of this process and the metadata is a SQLite file, unless a test wants processes or etcd: that starts
in a moment, and what a node does is the same.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.cli.cluster.description import ClusterDescription
from headwater.cli.cluster.metadata_description import read_metadata
from headwater.metadata import keys
from headwater.metadata.connect import open_metadata
from headwater.metadata.store import MetaStore
from headwater.model.ids import PartitionId
from headwater.model.segments import Head, SealedSegment
from headwater.testing.broker import Broker
from tests.support.eventually import eventually, gathered

PATIENCE_S = 60.0
TOO_FEW_NODES = (KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_REPLICA_ASSIGNMENT)
SEGMENT_BYTES = 1024 * 1024


T = TypeVar("T")


class SmallCluster:
    def __init__(self, directory: Path, metadata: str | None = None, **config: Any) -> None:
        self._directory = directory
        self.metadata_url = metadata or f"sqlite:{directory / 'metadata.db'}"
        self._config = config
        self.nodes: dict[int, Broker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in reversed(self.nodes.values()):
            node.close()

    def add(self, node_id: int, **config: Any) -> Broker:
        node = Broker(
            node_id=node_id,
            data_dir=self._directory / f"node-{node_id}",
            metadata=self.metadata_url,
            peer_listen="127.0.0.1:0",
            **{**self._config, **config},
        )
        self.nodes[node_id] = node.start()
        return node

    def add_all(self, *node_ids: int) -> Self:
        for node_id in node_ids:
            self.add(node_id)
        return self

    def remove(self, node_id: int) -> None:
        """A clean stop, for good."""
        self.nodes.pop(node_id).close()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
        named = {name.replace("_", "."): value for name, value in config.items()}
        wanted = NewTopic(topic, partitions, replicas, config=named)
        self._create(wanted)

    def assign(self, topic: str, replicas: list[list[int]], **config: str) -> None:
        """A topic whose leaders are known."""
        named = {name.replace("_", "."): value for name, value in config.items()}
        wanted = NewTopic(topic, len(replicas), replica_assignment=replicas, config=named)
        self._create(wanted)

    def _create(self, wanted: NewTopic) -> None:
        """A node that has just come may not be known to the one that is asked."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            admin = self.admin  # a future does not keep its client alive
            try:
                admin.create_topics([wanted])[wanted.topic].result(PATIENCE_S)
                return
            except KafkaException as error:
                if error.args[0].code() not in TOO_FEW_NODES or time.monotonic() > deadline:
                    raise

    def produce(self, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=partition)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    def read(self, topic: str, count: int, partition: int = 0) -> list[bytes]:
        """The first `count` records of a partition."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reading", "log_level": 0})
        consumer.assign([TopicPartition(topic, partition, 0)])
        values = gathered(lambda: [each.value() for each in consumer.consume(count, 0.2) if not each.error()], count)
        consumer.close()
        return values[:count]

    def partition(self, topic: str, index: int = 0) -> Any:
        """As Metadata tells it: leader, replicas, isrs. The node that is asked may hear of a topic a moment later."""
        claim = f"a node knows {topic}"
        return eventually(lambda: self.admin.list_topics(timeout=PATIENCE_S).topics.get(topic), claim).partitions[index]

    def wait_until(self, claim: str, is_so: Callable[[], bool]) -> None:
        eventually(is_so, claim)

    # By the metadata

    def facts(self) -> ClusterDescription:
        return self._ask(read_metadata)

    def store_of(self, node_id: int) -> str:
        (store,) = [store.store for store in self.facts().stores or () if store.node == node_id]
        return store

    def segments(self, topic: str, index: int = 0) -> list[SealedSegment]:
        """The sealed ones, in their order."""

        async def read(metadata: MetaStore) -> list[SealedSegment]:
            partition = await _partition(metadata, topic, index)
            found = [keys.decode_sealed(kv.value) for kv in await metadata.list(keys.sealed_prefix(partition))]
            return sorted(found, key=lambda segment: segment.base)

        return self._ask(read)

    def head(self, topic: str, index: int = 0) -> Head:
        async def read(metadata: MetaStore) -> Head:
            found = await metadata.get(keys.head_key(await _partition(metadata, topic, index)))
            assert found is not None, f"{topic} has no partition {index}"
            return keys.decode_head(found.value)

        return self._ask(read)

    def open_replicas(self, topic: str, index: int = 0) -> tuple[str, ...]:
        segment = self.head(topic, index).open
        return segment.replicas if segment is not None else ()

    def _ask(self, read: Callable[[MetaStore], Awaitable[T]]) -> T:
        async def run() -> T:
            metadata = await open_metadata(self.metadata_url)
            try:
                return await read(metadata)
            finally:
                await metadata.close()

        return asyncio.run(run())


async def _partition(metadata: MetaStore, topic: str, index: int) -> PartitionId:
    topics = [keys.decode_topic(kv.value) for kv in await metadata.list(keys.TOPICS)]
    return next(PartitionId(found.topic_id, index) for found in topics if found.name == topic)


def filling(segments: int, size_bytes: int = 64 * 1024) -> list[bytes]:
    """Records that fill so many segments, each one of its own."""
    count = segments * (SEGMENT_BYTES // size_bytes)
    return [b"%08d" % number + b"." * (size_bytes - 8) for number in range(count)]
