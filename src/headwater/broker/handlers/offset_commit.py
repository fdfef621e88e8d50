"""OffsetCommit (8): how far a group has read. Versions 2 to 8: the client's own retention in 2 to 4, leader epochs from
6 on, static members from 7 on.

What cannot be committed says so for each partition; a refusal of the whole request is repeated for each of them.
"""

from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.groups.requests import CommitRequest, OffsetToCommit
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=8, name="OffsetCommit", min_version=2, max_version=8)

LAST_WITH_RETENTION = 4


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    known = tuple(
        OffsetToCommit(
            topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
        )
        for topic in request.topics
        for partition in topic.partitions
        if _exists(broker, topic.name, partition.partition_index)
    )
    commit = CommitRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=known,
        retention_ms=_retention_ms(request, context.api_version),
    )
    try:
        answers = await broker.groups.commit(request.group_id, commit)
        errors = {(answer.topic, answer.partition): answer.error for answer in answers}
    except RequestError as error:
        errors = {(each.topic, each.partition): error.code for each in known}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Message(
        topics=[
            Message(
                name=topic.name,
                partitions=[
                    Message(partition_index=index, error_code=errors.get((topic.name, index), unknown))
                    for index in (partition.partition_index for partition in topic.partitions)
                ],
            )
            for topic in request.topics
        ]
    )


def _retention_ms(request: Message, version: int) -> int | None:
    if version > LAST_WITH_RETENTION or request.retention_time_ms < 0:
        return None
    retention_ms: int = request.retention_time_ms
    return retention_ms


def _exists(broker: "Broker", name: str, partition: int) -> bool:
    topic = broker.catalog.find(name)
    return topic is not None and 0 <= partition < len(topic.partitions)
