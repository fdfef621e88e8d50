"""DescribeTopicPartitions (75), version 0: partitions of topics, in the order of their names, a page at a time.

A page holds at most as many partitions as asked for, and never more than MAX_PARTITIONS; a cursor in the answer says
where the next one begins. No topics asked for means all that the client may describe. The request has no flag for
authorized operations, so they are always there. Lists of replicas are empty, never null: Java's client fails
on null.
"""

import asyncio
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_topic
from headwater.broker.access.topic_access import topic_refusal
from headwater.broker.api import Api, RequestContext
from headwater.broker.authorized_operations import NOT_ASKED, operations_on_topic
from headwater.broker.cluster.topic_description import describe_partitions
from headwater.broker.settings.topic_name import check_topic_name
from headwater.broker.topics.topic import Topic
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.schema import NULL_UUID
from headwater.wire.typed.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    name="DescribeTopicPartitions",
    access=Access.by_handler(
        on_topic(
            Operation.DESCRIBE,
            "topics[].name",
            refused_at="topics[].error_code",
            condition="left out if all topics are asked for",
        )
    ),
    min_version=0,
    max_version=0,
)

MAX_PARTITIONS = 2_000
ASKED_AT_ONCE = 500
"""Topics that are checked before other requests are served."""


async def handle(
    broker: "Broker", request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    access, means_all = context.access, not request.topics
    names = sorted({topic.name for topic in request.topics or broker.catalog})
    room = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    first_name, first_index = "", 0
    if request.cursor is not None:
        first_name, first_index = request.cursor.topic_name, max(0, request.cursor.partition_index)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for count, name in enumerate(names, 1):
        if count % ASKED_AT_ONCE == 0:
            await asyncio.sleep(0)
        if name < first_name or (means_all and not _is_shown(broker, access, name)):
            continue
        first = first_index if name == first_name else 0
        if room == 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=first)
            )
        refusal = None if means_all else topic_refusal(access, Operation.DESCRIBE, name)
        if refusal is not None:
            described, next_index = _failed(name, refusal, NOT_ASKED), None
        else:
            described, next_index = _answer(broker, context, name, first, room)
        topics.append(described)
        # An unknown topic takes room, too: the answer stays bounded whatever is asked for.
        room -= len(described.partitions) if described.error_code == ErrorCode.NONE else 1
        if next_index is not None:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=next_index)
            )
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)


def _is_shown(broker: "Broker", access: ClientAccess, name: str) -> bool:
    """It may have been deleted since its name was listed."""
    is_allowed = not access.is_restricted or access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name)
    return is_allowed and broker.catalog.find(name) is not None


def _answer(
    broker: "Broker", context: RequestContext, name: str, first: int, room: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """And the first partition that there was no room for."""
    try:
        check_topic_name(name)
        topic = broker.catalog.topic(name)
    except RequestError as error:
        return _failed(name, error, operations_on_topic(context.access, name)), None
    end = min(topic.partition_count, first + room)
    described = _describe(broker, topic, context, first, end)
    return described, end if end < topic.partition_count else None


def _failed(name: str, error: RequestError, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error.code, name=name, topic_id=NULL_UUID, partitions=(), topic_authorized_operations=operations
    )


def _describe(
    broker: "Broker", topic: Topic, context: RequestContext, first: int, end: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=partition.error_code,
                partition_index=partition.partition_index,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.nodes.replicas,
                isr_nodes=partition.nodes.in_sync,
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=partition.nodes.offline,
            )
            for partition in describe_partitions(broker.cluster_nodes, topic, context.listener, first, end)
        ],
        topic_authorized_operations=operations_on_topic(context.access, topic.name),
    )
