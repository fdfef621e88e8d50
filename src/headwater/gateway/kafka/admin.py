"""Topics and nodes described, topics created, changed and deleted: over librdkafka where it has a call, over our own
client otherwise. Everything raises KafkaFailure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
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

from headwater.client.address import BrokerAddress
from headwater.client.admin.log_dirs import DiskUsage, disk_usage, largest_replicas
from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.client.errors import ClientError
from headwater.client.librdkafka import ask_offsets
from headwater.client.question import AnswerT, Question
from headwater.gateway.config import GatewayConfig
from headwater.gateway.kafka.call_threads import CallThreads
from headwater.gateway.kafka.client_errors import failure_of_client
from headwater.gateway.kafka.errors import InvalidRequest
from headwater.gateway.kafka.librdkafka_errors import failure_of
from headwater.gateway.kafka.settings import client_settings
from headwater.model.ids import PartitionName

INTERNAL_PREFIX = "__"
DEFAULT = -1

T = TypeVar("T")


def is_internal(topic: str) -> bool:
    return topic.startswith(INTERNAL_PREFIX)


@contextmanager
def client_failures() -> Iterator[None]:
    """Raises errors of our own client as failures."""
    try:
        yield
    except ClientError as error:
        raise failure_of_client(error) from error


class Admin:
    def __init__(self, config: GatewayConfig, threads: CallThreads, cluster: AsyncioCluster) -> None:
        self._client = AdminClient(client_settings(config))
        self._cluster = cluster
        self._threads = threads
        self._timeout_s = config.request_timeout_ms / 1000

    async def metadata(self) -> Any:
        """All topics and brokers. Asking for all, because asking for one by name may create it."""
        return await self._call("", self._client.list_topics, timeout=self._timeout_s)

    async def answer(self, question: Question[AnswerT]) -> AnswerT:
        with client_failures():
            return await self._cluster.answer(question)

    async def answer_everywhere(self, question: Question[AnswerT]) -> list[AnswerT]:
        """From every broker."""
        with client_failures():
            return await self._cluster.answer_everywhere(question)

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
        """By topic and partition, without partitions that no node leads now, and those that were deleted since they
        were listed. With `committed` the end is where the first open transaction begins."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        names = [TopicPartition(*partition) for partition in partitions]
        offsets, _ = await self._call(
            topic,
            ask_offsets,
            self._client,
            names,
            spec,
            patience_s=0.0,
            timeout_s=self._timeout_s,
            isolation_level=isolation,
        )
        return dict(offsets)

    async def offset_range(
        self, partitions: Sequence[PartitionName], *, committed: bool = False
    ) -> dict[PartitionName, tuple[int, int]]:
        """The first offset there is and the next one to be written."""
        starts = await self.offsets(partitions, OffsetSpec.earliest())
        ends = await self.offsets(list(starts), OffsetSpec.latest(), committed=committed)
        return {partition: (starts[partition], ends[partition]) for partition in ends}

    async def sizes(self, brokers: Iterable[BrokerAddress]) -> dict[PartitionName, int]:
        """Bytes on disk by partition, of its largest replica. A broker that does not tell is left out."""
        usages = [await self.disk_usage(broker) for broker in brokers]
        return largest_replicas(usage for usage in usages if usage is not None)

    async def disk_usage(self, broker: BrokerAddress) -> DiskUsage | None:
        """None if the broker does not answer."""
        try:
            return await self._cluster.answer_at(broker, disk_usage())
        except ClientError:
            return None

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
