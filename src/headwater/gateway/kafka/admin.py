"""Topics and nodes described, topics created, changed and deleted. Everything raises KafkaFailure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headwater.gateway.config import GatewayConfig
from headwater.gateway.kafka import raw
from headwater.gateway.kafka.brokers import Address
from headwater.gateway.kafka.call_threads import CallThreads
from headwater.gateway.kafka.errors import ClusterUnavailable, InvalidRequest, KafkaFailure
from headwater.gateway.kafka.librdkafka_errors import failure_of
from headwater.gateway.kafka.settings import client_settings
from headwater.model.ids import PartitionName
from headwater.wire.message import Message

DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION = 35, 1
DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION = 55, 1
DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_VERSION = 60, 2
INTERNAL_PREFIX = "__"
DEFAULT = -1

T = TypeVar("T")

"""Topic and partition."""

WITHOUT_LEADER = (
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError._NOENT,
)  # fmt: skip
"""A partition without a leader has no offsets to tell now, nor has one that was deleted since it was listed."""


def is_internal(topic: str) -> bool:
    return topic.startswith(INTERNAL_PREFIX)


class Admin:
    def __init__(self, config: GatewayConfig, threads: CallThreads) -> None:
        self._client = AdminClient(client_settings(config))
        self._threads = threads
        self._timeout_s = config.request_timeout_ms / 1000

    async def metadata(self) -> Any:
        """All topics and brokers. Asking for all, because asking for one by name may create it."""
        return await self._call("", self._client.list_topics, timeout=self._timeout_s)

    async def brokers(self) -> list[Address]:
        found = (await self.metadata()).brokers
        if not found:
            raise ClusterUnavailable("The cluster names no broker.")
        return [(broker.host, broker.port) for _, broker in sorted(found.items())]

    async def cluster(self) -> Message:
        """As DescribeCluster tells it, with the nodes that are gone and missed (fenced)."""
        return await self._ask_any(DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_VERSION, include_fenced_brokers=True)

    async def last_seen_ms(self) -> dict[int, int]:
        """Of nodes that are gone and missed, when they were noticed to be."""
        quorum = Message(topic_name="__cluster_metadata", partitions=[Message(partition_index=0)])
        answer = await self._ask_any(DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION, topics=[quorum])
        return {
            node.replica_id: node.last_fetch_timestamp
            for topic in answer.topics
            for partition in topic.partitions
            for node in partition.observers
            if node.last_fetch_timestamp >= 0
        }

    async def _ask_any(self, api_key: int, version: int, **fields: Any) -> Message:
        """Whichever broker answers."""
        last: KafkaFailure = ClusterUnavailable("The cluster names no broker.")
        for broker in await self.brokers():
            try:
                return await raw.ask(broker, api_key, version, **fields)
            except KafkaFailure as failure:
                last = failure
        raise last

    async def topic(self, topic: str) -> Any:
        """One topic, with its id."""
        return await self._only(topic, self._client.describe_topics, TopicCollection([topic]))

    async def create_topic(
        self, topic: str, partitions: int = DEFAULT, replicas: int = DEFAULT, config: Mapping[str, str] | None = None
    ) -> None:
        new_topic = NewTopic(topic, partitions, replicas, config=dict(config or {}))
        await self._only(topic, self._client.create_topics, [new_topic])

    async def delete_topic(self, topic: str) -> None:
        await self._only(topic, self._client.delete_topics, [topic])

    async def add_partitions(self, topic: str, count: int) -> None:
        await self._only(topic, self._client.create_partitions, [NewPartitions(topic, count)])

    async def alter_config(self, topic: str, config: Mapping[str, str | None]) -> None:
        """None gives a setting its default back."""
        changes = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.DELETE)
            if value is None
            else ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        await self._only(topic, self._client.incremental_alter_configs, [resource])

    async def topic_config(self, topic: str) -> dict[str, Any]:
        """ConfigEntry by name."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries: dict[str, Any] = await self._only(topic, self._client.describe_configs, [resource])
        return entries

    async def offsets(
        self, partitions: Iterable[PartitionName], spec: Any, *, committed: bool = False, topic: str = ""
    ) -> dict[PartitionName, int]:
        """By topic and partition, without partitions that no node leads now. With `committed` the end is where the
        first open transaction begins."""
        specs = {TopicPartition(*partition): spec for partition in partitions}
        if not specs:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return dict(await self._call(topic, self._offsets, specs, isolation))

    async def offset_range(
        self, partitions: Sequence[PartitionName], *, committed: bool = False
    ) -> dict[PartitionName, tuple[int, int]]:
        """The first offset there is and the next one to be written."""
        starts = await self.offsets(partitions, OffsetSpec.earliest())
        ends = await self.offsets(list(starts), OffsetSpec.latest(), committed=committed)
        return {partition: (starts[partition], ends[partition]) for partition in ends}

    async def sizes(self, brokers: Iterable[Address]) -> dict[PartitionName, int]:
        """Bytes on disk by partition, of its largest replica. A broker that does not tell is left out."""
        sizes: dict[PartitionName, int] = {}
        for broker in brokers:
            for partition, size in (await self.sizes_at(broker) or {}).items():
                sizes[partition] = max(size, sizes.get(partition, 0))
        return sizes

    async def sizes_at(self, broker: Address) -> dict[PartitionName, int] | None:
        """What one broker has on its disk; None if it does not answer."""
        try:
            answer = await raw.ask(broker, DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS_VERSION, topics=None)
        except KafkaFailure:
            return None
        return {
            (topic.name, partition.partition_index): partition.partition_size
            for directory in answer.results or ()
            for topic in directory.topics or ()
            for partition in topic.partitions or ()
        }

    def _offsets(self, specs: dict[Any, Any], isolation: Any) -> dict[PartitionName, int]:
        futures = self._client.list_offsets(specs, isolation_level=isolation, request_timeout=self._timeout_s)
        found = {}
        for partition, future in futures.items():
            try:
                found[partition.topic, partition.partition] = future.result().offset
            except KafkaException as error:
                if error.args[0].code() not in WITHOUT_LEADER:
                    raise
        return found

    async def ask(self, question: Callable[[AdminClient, float], T], *, topic: str = "", group: str = "") -> T:
        """Call `question` in a thread, with librdkafka's client and a timeout in seconds. It may raise KafkaException;
        `topic` and `group` are what the failure is then about."""
        answer: T = await self._call(topic, question, self._client, self._timeout_s, group=group)
        return answer

    async def _only(self, topic: str, call: Callable[..., Any], *args: Any) -> Any:
        """The result of a call about one thing, which answers with one future."""

        def done() -> Any:
            (future,) = call(*args, request_timeout=self._timeout_s).values()
            return future.result()

        return await self._call(topic, done)

    async def _call(self, topic: str, call: Callable[..., Any], *args: Any, group: str = "", **kwargs: Any) -> Any:
        try:
            return await self._threads.run(call, *args, **kwargs)
        except KafkaException as error:
            raise failure_of(error, topic=topic, group=group) from None
        except (ValueError, TypeError) as error:
            # librdkafka refuses before it asks: a name that is empty or too long, a number out of range.
            raise InvalidRequest(f"It cannot be asked for: {error}.") from None
