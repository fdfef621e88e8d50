"""What plain Kafka clients are asked in calls that block: in threads of the gateway, and by the commands.

Everything raises KafkaException. confluent-kafka is imported inside functions: the command line starts without it.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
    from confluent_kafka.admin import AdminClient

REQUEST_TIMEOUT_S = 15.0
POLL_S = 0.2
PAUSE_S = 0.05
GROUP_SOURCE = 8
"""Of what a group says itself, in the numbers of the protocol."""
GROUPS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class GroupConfig:
    values: Mapping[str, str]
    """Everything that holds for the group."""
    own: Mapping[str, str]
    """What it says itself."""


def ask_offsets(
    client: "AdminClient", partitions: "Iterable[TopicPartition]", spec: object, patience_s: float
) -> "tuple[dict[tuple[str, int], int], dict[TopicPartition, KafkaException]]":
    """The offsets, and what the partitions said that have none to tell. A topic that was just made has no leader
    yet, and a leader that just went has no successor: such partitions are asked again for a while."""
    from confluent_kafka import KafkaError, KafkaException

    passing = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)
    absent = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
    offsets: dict[tuple[str, int], int] = {}
    refused: dict[TopicPartition, KafkaException] = {}
    until_s = time.monotonic() + patience_s
    asked = list(partitions)
    while asked:
        again = []
        futures = client.list_offsets(dict.fromkeys(asked, spec), request_timeout=REQUEST_TIMEOUT_S)
        for partition, future in futures.items():
            try:
                offsets[partition.topic, partition.partition] = future.result().offset
            except KafkaException as error:
                code = error.args[0].code()
                if code not in passing + absent:
                    raise
                if code in passing and time.monotonic() < until_s:
                    again.append(partition)
                else:
                    refused[partition] = error
        if again:
            time.sleep(PAUSE_S)
        asked = again
    return offsets, refused


def offsets_of(
    client: "AdminClient", partitions: "Iterable[TopicPartition]", spec: object
) -> "dict[tuple[str, int], int]":
    """The offsets of all these partitions. Raises what one of them is refused with."""
    offsets, refused = ask_offsets(client, partitions, spec, REQUEST_TIMEOUT_S)
    for error in refused.values():
        raise error
    return offsets


def committed_positions(client: "AdminClient", group: str) -> "list[TopicPartition]":
    from confluent_kafka import ConsumerGroupTopicPartitions

    request = [ConsumerGroupTopicPartitions(group)]
    (future,) = client.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S).values()
    positions = future.result().topic_partitions or []
    return [position for position in positions if position.error is None and position.offset >= 0]


def group_configs(client: "AdminClient", names: Iterable[str]) -> dict[str, GroupConfig]:
    from confluent_kafka.admin import ConfigResource, ResourceType

    found: dict[str, GroupConfig] = {}
    all_names = list(names)
    for first in range(0, len(all_names), GROUPS_AT_ONCE):
        resources = [ConfigResource(ResourceType.GROUP, name) for name in all_names[first : first + GROUPS_AT_ONCE]]
        for resource, future in client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S).items():
            entries = future.result()
            found[resource.name] = GroupConfig(
                {name: entry.value for name, entry in entries.items()},
                {name: entry.value for name, entry in sorted(entries.items()) if entry.source == GROUP_SOURCE},
            )
    return found


def alter_group_config(
    client: "AdminClient", group: str, *, set: Mapping[str, str] = {}, delete: Iterable[str] = ()
) -> None:
    """All changes together or none."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in set.items()]
    changes += [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in delete]
    if not changes:
        return
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=changes)
    (future,) = client.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
    future.result()


def poll_some(consumer: "Consumer", max_messages: int) -> "list[Message]":
    """Wait for one message, then take what else is there: `consume` alone would wait for all it was asked for."""
    first = consumer.poll(POLL_S)
    if first is None:
        return []
    return [first, *(consumer.consume(max_messages - 1, 0) if max_messages > 1 else ())]
