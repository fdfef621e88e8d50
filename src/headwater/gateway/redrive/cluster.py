"""What a redrive asks of the cluster. Everything raises KafkaException."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headwater.gateway.kafka.blocking import REQUEST_TIMEOUT_S, alter_group_config, group_configs, offsets_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

FILTER = "headwater.filter"

Settings = Mapping[str, Any]
"""Of any client: where the cluster is, and how it is reached."""


def partitions_by_topic(client: "AdminClient") -> dict[str, set[int]]:
    """Of all topics: asking for one by name may create it."""
    topics = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    return {name: set(topic.partitions) for name, topic in topics.items()}


def end_offsets(client: "AdminClient", topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Partitions that no node leads at the moment are asked again for a while."""
    asked = [TopicPartition(topic, index) for index in partitions]
    return {index: end for (_, index), end in offsets_of(client, asked, OffsetSpec.latest()).items()}


def group_names(client: "AdminClient") -> list[str]:
    listed = client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
    for error in listed.errors:
        raise error if isinstance(error, KafkaException) else KafkaException(error)
    return [group.group_id for group in listed.valid]


def group_filters(client: "AdminClient", names: Iterable[str]) -> dict[str, str]:
    """The filter that each group names itself; empty if it does not."""
    return {name: config.own.get(FILTER) or "" for name, config in group_configs(client, names).items()}


def name_filter(client: "AdminClient", group: str, expression: str) -> None:
    alter_group_config(client, group, set={FILTER: expression})


def is_end(error: KafkaError) -> bool:
    """Whether it says that a partition has no more. Raises what does not pass by itself."""
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if not error.retriable():
        raise KafkaException(error)
    return False
