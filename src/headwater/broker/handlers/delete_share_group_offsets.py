"""DeleteShareGroupOffsets (92), version 0: a share group without members forgets topics (KIP-932)."""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    name="DeleteShareGroupOffsets",
    access=Access.first(
        on_group(Operation.DELETE),
        then=(on_topic(Operation.READ, "topics[].topic_name", refused_at="responses[].error_code"),),
    ),
    min_version=0,
    max_version=0,
)


async def handle(
    broker: "Broker", request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    broker.groups.check_share_group_is_empty(request.group_id)
    names = dict.fromkeys(topic.topic_name for topic in request.topics)
    answers = [await _delete(broker, context.access, request.group_id, name) for name in names]
    return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, error_message=None, responses=answers)


async def _delete(
    broker: "Broker", access: ClientAccess, group_id: str, name: str
) -> DeleteShareGroupOffsetsResponseTopic:
    answer = DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=ErrorCode.NONE, error_message=None)
    try:
        access.require(Operation.READ, ResourceType.TOPIC, name)
        topic = broker.catalog.topic(name)
        answer.topic_id = topic.topic_id
        await broker.share_admin.forget(group_id, topic.topic_id)
    except RequestError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer
