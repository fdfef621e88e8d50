"""ListOffsets: where logs begin and end, and which offset was written first at or after a time. Each broker answers for
the partitions that it leads."""

from collections.abc import Mapping
from typing import Final

from headwater.client.errors import check
from headwater.client.question import Question, question
from headwater.client.topic_partition import TopicPartition
from headwater.model.ids import NodeId
from headwater.wire.typed.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
NOT_FOUND: Final = -1
NO_REPLICA: Final = NodeId(-1)


def list_offsets(timestamps: Mapping[TopicPartition, int], isolation_level: int) -> Question[dict[TopicPartition, int]]:
    """For each partition the first offset at or after a time in milliseconds (NOT_FOUND if there is none), or the
    EARLIEST, or the LATEST that may be read. The reader raises BrokerRefused, whose subject is the partition."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in timestamps.items():
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    request = ListOffsetsRequest(
        replica_id=NO_REPLICA,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    return question(request, _offsets)


def _offsets(response: ListOffsetsResponse) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic in response.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            check(result.error_code, None, str(partition))
            found[partition] = result.offset
    return found
