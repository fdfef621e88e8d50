"""Alterations of topic configurations: each resource of a request, with its own result."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from headwater.broker.settings.config_resources import ConfigResourceType
from headwater.broker.settings.topic_name import check_topic_name
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError


class ConfigResource(Protocol):
    """What is altered, in both APIs that alter."""

    resource_type: int
    resource_name: str


class Alteration(NamedTuple):
    """What became of a resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


ResourceT = TypeVar("ResourceT", bound=ConfigResource)


async def alter_each(
    resources: Sequence[ResourceT],
    refusal: Callable[[int, str], RequestError | None],
    alter: Callable[[ResourceT], Awaitable[None]],
) -> list[Alteration]:
    """Alter every resource of a request; one result each, in order. A resource named twice is not altered at all.
    `refusal` says, by its type and name, why the client may not alter one."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results = []
    for resource in resources:
        names = (resource.resource_type, resource.resource_name)
        try:
            if times[names] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "The resource is named twice.")
            refused = refusal(*names)
            if refused is not None:
                raise refused
            if resource.resource_type == ConfigResourceType.TOPIC:
                check_topic_name(resource.resource_name)
            await alter(resource)
            result = Alteration(*names)
        except RequestError as error:
            result = Alteration(*names, error.code, error.message)
        except (Unavailable, Unknown) as error:
            message = f"The metadata could not be changed: {error}"
            result = Alteration(*names, ErrorCode.KAFKA_STORAGE_ERROR, message)
        results.append(result)
    return results
