"""DeleteTopics (20). Versions 1 to 6: by name, and from 6 on by name or id."""

from typing import TYPE_CHECKING

from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.message import Message
from headwater.wire.schema import NULL_UUID

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=20, name="DeleteTopics", min_version=1, max_version=6)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    if context.api_version >= 6:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [(name, NULL_UUID) for name in request.topic_names]
    return Message(responses=[await _delete(broker, name, topic_id) for name, topic_id in asked])


async def _delete(broker: "Broker", name: str | None, topic_id: object) -> Message:
    result = Message(name=name, topic_id=topic_id, error_code=ErrorCode.NONE, error_message=None)
    try:
        if name is not None and topic_id != NULL_UUID:
            raise RequestError(ErrorCode.INVALID_REQUEST, "Name the topic or give its id, not both.")
        topic = broker.catalog.resolve(name, topic_id)  # type: ignore[arg-type]
        if topic.is_internal:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Topic {topic.name} is internal and cannot be deleted.")
        result.name, result.topic_id = topic.name, topic.topic_id
        await broker.delete_topic(topic)
    except RequestError as error:
        result.error_code, result.error_message = error.code, error.message
    return result
