"""DescribeShareGroupOffsets (90): where share groups are, and from version 1 on how far behind (KIP-932, KIP-1226).

A partition that the group never read has the start offset -1. No topics means all that the group has read.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess, refused
from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.nodes.node_messages import ShareOffset
from headwater.broker.topics.topic import Topic
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_OFFSET, LeaderEpoch, PartitionId
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    name="DescribeShareGroupOffsets",
    access=Access.by_handler(
        on_group(Operation.DESCRIBE, "groups[].group_id", refused_at="groups[].error_code"),
        on_topic(
            Operation.DESCRIBE,
            "groups[].topics[].topic_name",
            refused_at="groups[].topics[].partitions[].error_code",
            condition="left out if all topics are asked for",
        ),
    ),
    min_version=0,
    max_version=1,
)

NO_LAG = -1


async def handle(
    broker: "Broker", request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[await _describe(broker, context.access, asked) for asked in request.groups]
    )


async def _describe(
    broker: "Broker", access: ClientAccess, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id, topics=(), error_code=ErrorCode.NONE, error_message=None
    )
    try:
        access.require(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id)
        broker.groups.share_group(asked.group_id)
        found = {each.partition: each for each in await broker.share_admin.offsets(asked.group_id)}
    except RequestError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    wanted: dict[str, list[int]] = {}
    named = [topic.topic_name for topic in asked.topics or ()]
    if asked.topics is None:
        for partition in found:
            known = broker.catalog.find_id(partition.topic_id)
            if known is not None and access.shows(Operation.DESCRIBE, ResourceType.TOPIC, known.name):
                wanted.setdefault(known.name, []).append(partition.index)
    else:
        wanted = {topic.topic_name: list(topic.partitions) for topic in asked.topics}
    refusals = {name: refused(access, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in named}
    answer.topics = [
        _topic(broker, found, name, refusals.get(name), sorted(set(indexes))) for name, indexes in wanted.items()
    ]
    return answer


def _topic(
    broker: "Broker",
    found: Mapping[PartitionId, ShareOffset],
    name: str,
    refusal: RequestError | None,
    indexes: Iterable[int],
) -> DescribeShareGroupOffsetsResponseTopic:
    if refusal is not None:
        return DescribeShareGroupOffsetsResponseTopic(
            topic_name=name, partitions=[_unknown(index, refusal.code, refusal.message) for index in indexes]
        )
    topic = broker.catalog.find(name)
    partitions = [_partition(broker, found, topic, index) for index in indexes]
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=name, partitions=partitions)
    if topic is not None:
        answer.topic_id = topic.topic_id
    return answer


def _partition(
    broker: "Broker", found: Mapping[PartitionId, ShareOffset], topic: Topic | None, index: int
) -> DescribeShareGroupOffsetsResponsePartition:
    if topic is None or not topic.has(index):
        return _unknown(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
    answer = _unknown(index)
    partition = topic.partition_id(index)
    if partition in found:
        _, answer.start_offset, answer.lag, answer.leader_epoch = found[partition]
        return answer
    try:
        broker.share_admin.check_led(partition)
    except RequestError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


def _unknown(
    index: int, error_code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> DescribeShareGroupOffsetsResponsePartition:
    """A partition whose offset is not known, or not told."""
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=NO_OFFSET,
        leader_epoch=LeaderEpoch(0),
        lag=NO_LAG,
        error_code=error_code,
        error_message=message,
    )
