"""Alterations of topic configurations: each resource of a request, with its own answer."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from headwater.broker.settings.config_resources import ResourceType
from headwater.broker.settings.topic_name import check_topic_name
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.message import Message


async def alter_each(resources: Sequence[Message], alter: Callable[[Message], Awaitable[None]]) -> list[Message]:
    """Alter every resource of a request; one answer each, in order. A resource named twice is not altered at all."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    answers = []
    for resource in resources:
        answer = Message(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "The resource is named twice.")
            if resource.resource_type == ResourceType.TOPIC:
                check_topic_name(resource.resource_name)
            await alter(resource)
        except RequestError as error:
            answer.error_code, answer.error_message = error.code, error.message
        except (Unavailable, Unknown) as error:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            answer.error_message = f"The metadata could not be changed: {error}"
        answers.append(answer)
    return answers
