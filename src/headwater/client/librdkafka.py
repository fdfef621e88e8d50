"""What clients of librdkafka are asked in calls that block: in threads of the gateway, and by the commands.

Everything raises KafkaException. confluent-kafka is imported inside functions: the command line starts without it.
"""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.model.ids import PartitionName

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
    from confluent_kafka.admin import AdminClient

REQUEST_TIMEOUT_S = 15.0
POLL_S = 0.2
PAUSE_S = 0.05


def ask_offsets(
    client: "AdminClient",
    partitions: "Iterable[TopicPartition]",
    spec: object,
    patience_s: float,
    *,
    timeout_s: float | None = None,
    **options: object,
) -> "tuple[dict[PartitionName, int], dict[TopicPartition, KafkaException]]":
    """The offsets, and what the partitions said that have none to tell. A topic that was just made has no leader
    yet, and a leader that just went has no successor: such partitions are asked again for a while."""
    from confluent_kafka import KafkaError, KafkaException

    from headwater.model.errors import ErrorCode

    absent = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
    leaderless = (KafkaError._NOENT, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    offsets: dict[PartitionName, int] = {}
    refused: dict[TopicPartition, KafkaException] = {}
    until_s = time.monotonic() + patience_s
    asked = list(partitions)
    while asked:
        again = []
        futures = client.list_offsets(
            dict.fromkeys(asked, spec), request_timeout=REQUEST_TIMEOUT_S if timeout_s is None else timeout_s, **options
        )
        for partition, future in futures.items():
            try:
                offsets[partition.topic, partition.partition] = future.result().offset
            except KafkaException as error:
                code = error.args[0].code()
                if code not in leaderless + absent:
                    raise
                if code in leaderless and time.monotonic() < until_s:
                    again.append(partition)
                else:
                    refused[partition] = error
        if again:
            time.sleep(PAUSE_S)
        asked = again
    return offsets, refused


def offsets_of(
    client: "AdminClient", partitions: "Iterable[TopicPartition]", spec: object
) -> "dict[PartitionName, int]":
    """The offsets of all these partitions. Raises what one of them is refused with."""
    offsets, refused = ask_offsets(client, partitions, spec, REQUEST_TIMEOUT_S)
    for error in refused.values():
        raise error
    return offsets


def committed_positions(
    client: "AdminClient", groups: Iterable[str], timeout_s: float = REQUEST_TIMEOUT_S
) -> "dict[str, list[TopicPartition]]":
    """The offsets that classic and consumer groups have committed, with their metadata."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    futures = {}
    for group in groups:  # one group a call is what librdkafka takes; all of them are asked before any is awaited
        request = [ConsumerGroupTopicPartitions(group)]
        (futures[group],) = client.list_consumer_group_offsets(request, request_timeout=timeout_s).values()
    return {
        group: [each for each in future.result().topic_partitions or () if each.error is None and each.offset >= 0]
        for group, future in futures.items()
    }


def poll_some(consumer: "Consumer", max_messages: int) -> "list[Message]":
    """Wait for one message, then take what else is there: `consume` alone would wait for all it was asked for."""
    first = consumer.poll(POLL_S)
    if first is None:
        return []
    return [first, *(consumer.consume(max_messages - 1, 0) if max_messages > 1 else ())]
