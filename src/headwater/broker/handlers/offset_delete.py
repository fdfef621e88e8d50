"""OffsetDelete (47): forget offsets of topics that a group no longer reads. Version 0."""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.OFFSET_DELETE,
    name="OffsetDelete",
    access=Access.first(
        on_group(Operation.DELETE),
        then=(on_topic(Operation.READ, "topics[].name", refused_at="topics[].partitions[].error_code"),),
    ),
    min_version=0,
    max_version=0,
)


async def handle(broker: "Broker", request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    access = context.access
    refused = {
        topic.name for topic in request.topics if not access.allows(Operation.READ, ResourceType.TOPIC, topic.name)
    }
    known = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if topic.name not in refused and broker.catalog.find(topic.name) is not None
    ]
    answers = await broker.groups.delete_offsets(request.group_id, known)

    def unless_known(name: str) -> ErrorCode:
        is_refused = name in refused
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_refused else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    errors = {(answer.topic, answer.partition): answer.error for answer in answers}
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=index, error_code=errors.get((topic.name, index), unless_known(topic.name))
                    )
                    for index in (partition.partition_index for partition in topic.partitions)
                ],
            )
            for topic in request.topics
        ],
    )
