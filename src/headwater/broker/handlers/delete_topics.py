"""DeleteTopics (20). Versions 1 to 6: by name, and from 6 on by name or id; from 5 on topics are refused that the
client's quota has no room for.

A client that may not describe a topic is not told its name, nor whether there is one of the name that it gave.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_cluster, on_topic
from headwater.broker.access.topic_access import refusal_by_id, topic_refusal
from headwater.broker.api import Api, RequestContext
from headwater.broker.quotas.mutation_quota import MutationQuota
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import TopicId
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.schema import NULL_UUID
from headwater.wire.typed.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

RefusalOf: TypeAlias = Callable[[ClientAccess, Operation, str], RequestError | None]
STRICT = 5

API = Api(
    key=ApiKey.DELETE_TOPICS,
    name="DeleteTopics",
    access=Access.by_handler(
        on_cluster(
            Operation.DELETE,
            refused_at="responses[].error_code",
            versions=range(6),
            or_else=on_topic(Operation.DELETE, "topic_names[]", refused_at="responses[].error_code"),
        ),
        on_cluster(
            Operation.DELETE,
            refused_at="responses[].error_code",
            versions=range(6, 100),
            or_else=on_topic(Operation.DELETE, "topics[].name", refused_at="responses[].error_code"),
        ),
    ),
    min_version=1,
    max_version=6,
)


async def handle(broker: "Broker", request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    if context.api_version >= 6:
        topics = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        topics = [(name, NULL_UUID) for name in request.topic_names]
    access = context.access
    quota = MutationQuota.of(context.usage, is_strict=context.api_version >= STRICT)
    results = [await _delete(broker, access, name, topic_id, quota) for name, topic_id in topics]
    if access.is_restricted:
        # As in Kafka: what comes first says nothing about what exists.
        random.shuffle(results)
    return DeleteTopicsResponse(responses=results)


async def _delete(
    broker: "Broker", access: ClientAccess, name: str | None, topic_id: TopicId, quota: MutationQuota
) -> DeletableTopicResult:
    result = DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE, error_message=None)
    try:
        if name is not None and topic_id != NULL_UUID:
            raise RequestError(ErrorCode.INVALID_REQUEST, "Name the topic or give its id, not both.")
        comes_first = name is not None and not access.grants(Operation.DESCRIBE, ResourceType.TOPIC, name)
        if name is not None and comes_first:
            _check_access(access, topic_refusal, name)
        topic = broker.catalog.resolve(name, topic_id)
        if access.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            result.name = topic.name
        if not comes_first:
            _check_access(access, topic_refusal if name is not None else refusal_by_id, topic.name)
        if topic.is_internal:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"Topic {topic.name} is internal and cannot be deleted.")
        result.name, result.topic_id = topic.name, topic.topic_id
        with quota.admitted(topic.partition_count):
            await broker.delete_topic(topic)
    except RequestError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _check_access(access: ClientAccess, refusal_of: RefusalOf, name: str) -> None:
    if access.grants(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME):
        return
    refusal = refusal_of(access, Operation.DELETE, name)
    if refusal is not None:
        raise refusal
