"""Topics that a client names, and may do something with.

Authorization comes before existence: of a name that is refused the client does not learn whether there is such a topic.
An id that no topic has is unknown to everyone; one that a topic has is refused by the topic's name.
"""

from collections.abc import Mapping

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.model.errors import ErrorCode
from headwater.model.ids import TopicId
from headwater.security.access_codes import Operation, ResourceType


def allowed_topic(catalog: Catalog, access: ClientAccess, operation: Operation, name: str) -> Topic | ErrorCode:
    """The topic; or what the client is told instead."""
    if access.is_restricted and not access.allows(operation, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = catalog.find(name)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic


def allowed_topic_by_id(
    catalog: Catalog, access: ClientAccess, operation: Operation, topic_id: TopicId
) -> Topic | ErrorCode:
    """The topic; or what the client is told instead."""
    topic = catalog.find_id(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    is_allowed = not access.is_restricted or access.allows(operation, ResourceType.TOPIC, topic.name)
    return topic if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def error_in(topic: Topic | ErrorCode, index: int, errors: Mapping[tuple[str, int], ErrorCode]) -> ErrorCode:
    """What the client is told of a partition, where `errors` has what became of those that were tried."""
    if isinstance(topic, ErrorCode):
        return topic
    return errors.get((topic.name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
