"""CreatePartitions (37), versions 0 to 3: more partitions for a topic, never fewer. From 3 on topics are refused
that the client's quota has no room for."""

from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.quotas.mutation_quota import MutationQuota
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

STRICT = 3

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
    quota = MutationQuota.of(context.usage, is_strict=context.api_version >= STRICT)
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
            add = partial(broker.catalog.changes.add_partitions, topic, asked.count)
            if request.validate_only or quota.may_refuse:
                await add(validate_only=True)
            if not request.validate_only:
                with quota.admitted(added):
                    await add()
        except RequestError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return CreatePartitionsResponse(results=results)
