"""AlterShareGroupOffsets (91), version 0: a share group without members begins anew at other offsets (KIP-932).

An offset outside the log is moved to its nearest end. What the group knew of single records is forgotten.
A group that does not exist comes into being with this, before its first member does, if it names a topic that exists.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import refused
from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.groups.shard import check_group_id
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import Offset
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    name="AlterShareGroupOffsets",
    access=Access.first(
        on_group(Operation.READ),
        then=(on_topic(Operation.READ, "topics[].topic_name", refused_at="responses[].partitions[].error_code"),),
    ),
    min_version=0,
    max_version=0,
)


async def handle(
    broker: "Broker", request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    await broker.group_configs.refresh(request.group_id)
    refusals = {
        name: refused(context.access, Operation.READ, ResourceType.TOPIC, name)
        for name in dict.fromkeys(asked.topic_name for asked in request.topics)
    }
    await _check(broker, request.group_id, [name for name, refusal in refusals.items() if refusal is None])
    topics = [await _topic(broker, request.group_id, asked, refusals[asked.topic_name]) for asked in request.topics]
    return AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE, error_message=None, responses=topics)


async def _check(broker: "Broker", group_id: str, names: Iterable[str]) -> None:
    """`names` are the topics that the client may read.

    Raises RequestError unless there is such a group without members now, or nothing to alter for one."""
    check_group_id(group_id)
    knows_topic = any(broker.catalog.find(name) is not None for name in names)
    if knows_topic:
        await broker.groups.create_share_group(group_id)
    try:
        broker.groups.check_share_group_is_empty(group_id)
    except RequestError as error:
        if knows_topic or error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise


async def _topic(
    broker: "Broker", group_id: str, asked: AlterShareGroupOffsetsRequestTopic, refusal: RequestError | None
) -> AlterShareGroupOffsetsResponseTopic:
    topic = broker.catalog.find(asked.topic_name) if refusal is None else None
    partitions = [
        await _alter(broker, group_id, asked.topic_name, each.partition_index, each.start_offset, refusal)
        for each in asked.partitions
    ]
    answer = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name, partitions=partitions)
    if topic is not None:
        answer.topic_id = topic.topic_id
    return answer


async def _alter(
    broker: "Broker", group_id: str, name: str, index: int, offset: Offset, refusal: RequestError | None
) -> AlterShareGroupOffsetsResponsePartition:
    answer = AlterShareGroupOffsetsResponsePartition(
        partition_index=index, error_code=ErrorCode.NONE, error_message=None
    )
    try:
        if refusal is not None:
            raise refusal
        await broker.share_admin.reset(group_id, broker.catalog.topic(name).partition_id(index), offset)
    except RequestError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer
