"""DeleteRecords (21), versions 0 to 2: everything before an offset goes; -1 means everything that is committed.

Refused, as by Kafka, for internal topics and for topics that are only compacted, where old records are what the topic
is for. Transactions do not hold it up: what one that goes on has written may go, too.
"""

from collections import Counter
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_topic
from headwater.broker.access.topic_access import topic_refusal
from headwater.broker.api import Api, RequestContext
from headwater.broker.log.partition import Partition
from headwater.broker.log.partition_metadata import LostLeadership
from headwater.broker.topics.topic import Topic
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_OFFSET, Offset
from headwater.model.replica import StoreError
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DELETE_RECORDS,
    name="DeleteRecords",
    access=Access.by_handler(
        on_topic(Operation.DELETE, "topics[].name", refused_at="topics[].partitions[].error_code")
    ),
    min_version=0,
    max_version=2,
)

HIGH_WATERMARK = -1


async def handle(broker: "Broker", request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    topics = []
    times = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    for asked in request.topics:
        refusal = topic_refusal(context.access, Operation.DELETE, asked.name)
        partitions = [
            await _answer(broker, asked.name, partition, times)
            if refusal is None
            else DeleteRecordsPartitionResult(
                partition_index=partition.partition_index, low_watermark=NO_OFFSET, error_code=refusal.code
            )
            for partition in asked.partitions
        ]
        topics.append(DeleteRecordsTopicResult(name=asked.name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


async def _answer(
    broker: "Broker", name: str, asked: DeleteRecordsPartition, times: Counter[tuple[str, int]]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=NO_OFFSET, error_code=ErrorCode.NONE
    )
    try:
        if times[name, asked.partition_index] > 1:
            raise RequestError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
        topic = broker.catalog.topic(name)
        partition = topic.partition(asked.partition_index)
        _check_policy(topic)
        await _delete_before(partition, asked.offset)
        result.low_watermark = partition.log_start
    except RequestError as error:
        result.error_code = error.code
    except LostLeadership:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    except (Unavailable, Unknown, StoreError):
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result


def _check_policy(topic: Topic) -> None:
    if topic.is_internal:
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {topic.name} is internal.")
    if topic.config.is_compacted and not topic.config.is_deleted:
        raise RequestError(ErrorCode.POLICY_VIOLATION, f"Topic {topic.name} is compacted, not deleted from.")


async def _delete_before(partition: Partition, offset: Offset) -> None:
    start = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= start <= partition.high_watermark:
        raise RequestError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"Offset {offset} is past the committed end, {partition.high_watermark}."
        )
    if start > partition.log_start:
        await partition.trim(start)
