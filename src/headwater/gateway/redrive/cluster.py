"""What a redrive asks of the cluster. Everything raises KafkaException."""

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient

REQUEST_TIMEOUT_S = 15.0
POLL_S = 0.2
PAUSE_S = 0.05
PASSING = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)
FILTER = "headwater.filter"
GROUP_SOURCE = 8
"""Of what a group says itself, in the numbers of the protocol."""
GROUPS_AT_ONCE = 500

Settings = Mapping[str, Any]
"""Of any client: where the cluster is, and how it is reached."""


def partitions_by_topic(client: "AdminClient") -> dict[str, set[int]]:
    """Of all topics: asking for one by name may create it."""
    topics = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    return {name: set(topic.partitions) for name, topic in topics.items()}


def end_offsets(client: "AdminClient", topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Partitions that nobody leads at the moment are asked again for a while."""
    found: dict[int, int] = {}
    until_s = time.monotonic() + REQUEST_TIMEOUT_S
    asked = set(partitions)
    while asked:
        wanted = {TopicPartition(topic, index): OffsetSpec.latest() for index in asked}
        for place, future in client.list_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                found[place.partition] = future.result().offset
            except KafkaException as error:
                if error.args[0].code() not in PASSING or time.monotonic() > until_s:
                    raise
        asked -= found.keys()
        if asked:
            time.sleep(PAUSE_S)
    return found


def group_names(client: "AdminClient") -> list[str]:
    listed = client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
    for error in listed.errors:
        raise error if isinstance(error, KafkaException) else KafkaException(error)
    return [group.group_id for group in listed.valid]


def group_filters(client: "AdminClient", names: Iterable[str]) -> dict[str, str]:
    """The filter that each group names itself; empty if it does not."""
    wanted = list(names)
    found = {}
    for first in range(0, len(wanted), GROUPS_AT_ONCE):
        resources = [ConfigResource(ResourceType.GROUP, name) for name in wanted[first : first + GROUPS_AT_ONCE]]
        for resource, future in client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S).items():
            entry = future.result().get(FILTER)
            is_own = entry is not None and entry.source == GROUP_SOURCE
            found[resource.name] = entry.value or "" if is_own else ""
    return found


def name_filter(client: "AdminClient", group: str, expression: str) -> None:
    change = ConfigEntry(FILTER, expression, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[change])
    (future,) = client.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
    future.result()


def committed_places(client: "AdminClient", group: str, topic: str) -> list[TopicPartition]:
    request = [ConsumerGroupTopicPartitions(group)]
    (future,) = client.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S).values()
    places = future.result().topic_partitions or []
    return [place for place in places if place.topic == topic and place.error is None and place.offset >= 0]


def poll_some(consumer: "Consumer", max_messages: int) -> "list[Message]":
    """Wait for one message, then take what else is there: `consume` alone would wait for all it was asked for."""
    first = consumer.poll(POLL_S)
    if first is None:
        return []
    return [first, *(consumer.consume(max_messages - 1, 0) if max_messages > 1 else ())]


def is_end(error: KafkaError) -> bool:
    """Whether it says that a partition has no more. Raises what does not pass by itself."""
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if not error.retriable():
        raise KafkaException(error)
    return False
