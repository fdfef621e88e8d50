"""ListOffsets (2): where a point in time is in the log. Versions 1 to 11.

timestamp  -1 latest, -2 earliest, from version 7 on -3 the record with the largest timestamp, from 8 on -4 earliest on
           local disk, from 9 on -5 latest in remote storage, from 11 on -6 earliest that is yet to be moved there
           (there is none of both), else the first record at or after it

With isolation level read_committed nothing at or past the last stable offset is found.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_topic
from headwater.broker.access.topic_access import topic_refusal
from headwater.broker.api import Api, RequestContext
from headwater.broker.log.offset_search import find_max_timestamp, find_timestamp
from headwater.broker.log.partition import Partition
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from headwater.records.batch import NO_TIMESTAMP
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.LIST_OFFSETS,
    name="ListOffsets",
    access=Access.by_handler(
        on_topic(Operation.DESCRIBE, "topics[].name", refused_at="topics[].partitions[].error_code")
    ),
    min_version=1,
    max_version=11,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Since when a negative timestamp has a meaning. Earlier it is answered with UNSUPPORTED_VERSION."""


async def handle(broker: "Broker", request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """A partition that is asked for more than once is answered once, with INVALID_REQUEST, as in Kafka: each answer may
    cost a search."""
    asked: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
    for topic in request.topics:
        by_index = asked.setdefault(topic.name, {})
        for partition in topic.partitions:
            by_index.setdefault(partition.partition_index, []).append(partition)
    topics = []
    for name, by_index in asked.items():
        refusal = topic_refusal(context.access, Operation.DESCRIBE, name)
        if refusal is not None:
            refused = [ListOffsetsPartitionResponse(partition_index=each, error_code=refusal.code) for each in by_index]
            topics.append(ListOffsetsTopicResponse(name=name, partitions=refused))
            continue
        partitions = [
            await _answer(broker, name, each, request.isolation_level, context.api_version)
            for each in by_index.values()
        ]
        topics.append(ListOffsetsTopicResponse(name=name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


async def _answer(
    broker: "Broker", topic: str, questions: Sequence[ListOffsetsPartition], isolation_level: int, version: int
) -> ListOffsetsPartitionResponse:
    asked = questions[0]
    result = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=ErrorCode.NONE)
    try:
        if len(questions) > 1:
            raise RequestError(ErrorCode.INVALID_REQUEST, "A partition has one answer in a response.")
        if asked.timestamp < 0 and version < FIRST_VERSIONS.get(asked.timestamp, API.max_version + 1):
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"Timestamp {asked.timestamp} has no meaning.")
        partition = broker.catalog.topic(topic).partition(asked.partition_index)
        partition.check_epoch(asked.current_leader_epoch)
        result.offset, result.timestamp, result.leader_epoch = await _search(
            partition, asked.timestamp, isolation_level
        )
    except RequestError as error:
        result.error_code = error.code
    return result


async def _search(partition: Partition, timestamp: int, isolation_level: int) -> tuple[Offset, int, LeaderEpoch]:
    """(offset, timestamp, leader epoch), each -1 if there is none."""
    end = partition.last_stable_offset if isolation_level else partition.high_watermark
    if timestamp == LATEST:
        return end, NO_TIMESTAMP, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return partition.log_start, NO_TIMESTAMP, partition.epoch_at(partition.log_start)
    if timestamp == MAX_TIMESTAMP:
        found = await find_max_timestamp(partition, end)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        found = None
    else:
        found = await find_timestamp(partition, timestamp, end)
    if found is None:
        return NO_OFFSET, NO_TIMESTAMP, NO_LEADER_EPOCH
    return found.offset, found.timestamp, found.leader_epoch
