"""CreatePartitions (37), versions 0 to 3: more partitions for a topic, never fewer."""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.CREATE_PARTITIONS,
    name="CreatePartitions",
    access=Access.by_handler(on_topic(Operation.ALTER, "topics[].name", refused_at="results[].error_code")),
    min_version=0,
    max_version=3,
)


async def handle(
    broker: "Broker", request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    results = []
    for asked in request.topics:
        result = CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.NONE, error_message=None)
        try:
            context.access.require(Operation.ALTER, ResourceType.TOPIC, asked.name)
            topic = broker.catalog.topic(asked.name)
            if topic.is_internal:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, f"Topic {topic.name} is internal: its partitions are the broker's own."
                )
            added = asked.count - topic.partition_count
            if asked.assignments is not None and len(asked.assignments) != max(added, 0):
                raise RequestError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{added} partitions would be added, but {len(asked.assignments)} are assigned.",
                )
            await broker.catalog.changes.add_partitions(topic, asked.count, validate_only=request.validate_only)
        except RequestError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return CreatePartitionsResponse(results=results)
