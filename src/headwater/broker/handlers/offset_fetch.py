"""OffsetFetch (9): where a group goes on reading. Versions 1 to 10: null topics mean all from 2 on, many groups from 8
on, epochs of members of the new protocol from 9 on, topic ids instead of names in 10.

What a transaction has committed is not seen before its end. Who asks for stable offsets (from 7 on, KIP-447) gets
UNSTABLE_OFFSET_COMMIT where such an end may still change the answer, and asks again; also, unlike in Kafka, when it
asks for all partitions and there is nothing but what is pending.

A group that is not known has committed nothing, which is no error: its offsets are -1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.topics.allowed_topics import allowed_topic_by_id
from headwater.broker.topics.topic import Topic
from headwater.groups.events import CommittedOffset
from headwater.groups.offset_table import FoundOffset
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_LEADER_EPOCH, NO_OFFSET
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.schema import NULL_UUID
from headwater.wire.typed.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.OFFSET_FETCH,
    name="OffsetFetch",
    access=Access.by_handler(
        on_group(Operation.DESCRIBE, refused_at="topics[].partitions[].error_code", versions=range(2)),
        on_group(Operation.DESCRIBE, versions=range(2, 8)),
        on_group(Operation.DESCRIBE, "groups[].group_id", refused_at="groups[].error_code", versions=range(8, 100)),
        on_topic(
            Operation.DESCRIBE,
            "topics[].name",
            refused_at="topics[].partitions[].error_code",
            versions=range(8),
            condition="left out if all topics are asked for",
        ),
        on_topic(
            Operation.DESCRIBE,
            "groups[].topics[].name",
            refused_at="groups[].topics[].partitions[].error_code",
            versions=range(8, 100),
            condition="left out if all topics are asked for",
        ),
    ),
    min_version=1,
    max_version=10,
)

FIRST_WITH_GROUPS = 8
FIRST_WITH_TOPIC_IDS = 10
NOTHING = CommittedOffset(offset=NO_OFFSET, leader_epoch=NO_LEADER_EPOCH, metadata="", commit_timestamp_ms=-1)


async def handle(broker: "Broker", request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version < FIRST_WITH_GROUPS:
        group = _only_group(request)
        fetched = await _fetch(broker, context.access, group, False, request.require_stable)
        if context.api_version == 1 and fetched.error_code:
            # There is no other place for the error in this version.
            fetched.topics = _failed(group.topics or (), fetched.error_code)
        return _only_answer(fetched)
    # Once for each group, so that naming one again and again cannot make an answer larger than memory.
    asked = {group.group_id: group for group in request.groups}
    has_ids = context.api_version >= FIRST_WITH_TOPIC_IDS
    return OffsetFetchResponse(
        groups=[
            await _fetch(broker, context.access, group, has_ids, request.require_stable) for group in asked.values()
        ]
    )


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The group of a version that has one, in the shape of those that have many."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


async def _fetch(
    broker: "Broker", access: ClientAccess, group: OffsetFetchRequestGroup, has_ids: bool, requires_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        access.require(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        if group.topics is None:
            topics = await _all(broker, access, group, has_ids, requires_stable)
        elif has_ids:
            topics = await _by_id(broker, access, group, group.topics, requires_stable)
        else:
            topics = await _by_name(broker, access, group, group.topics, requires_stable)
    except RequestError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code, topics=())
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.NONE, topics=topics)


async def _all(
    broker: "Broker", access: ClientAccess, group: OffsetFetchRequestGroup, has_ids: bool, requires_stable: bool
) -> list[OffsetFetchResponseTopics]:
    by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for each in await broker.groups.committed(group.group_id, None, group.member_id, group.member_epoch):
        if requires_stable or each.committed is not None:
            by_topic.setdefault(each.topic, []).append(_found(each, requires_stable))
    topics = []
    for name, partitions in by_topic.items():
        topic = broker.catalog.find(name) if has_ids else None
        is_known = not has_ids or topic is not None
        if is_known and access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            topic_id = topic.topic_id if topic is not None else NULL_UUID
            topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
    return topics


async def _by_name(
    broker: "Broker",
    access: ClientAccess,
    group: OffsetFetchRequestGroup,
    topics: Sequence[OffsetFetchRequestTopics],
    requires_stable: bool,
) -> list[OffsetFetchResponseTopics]:
    by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {topic.name: [] for topic in topics}
    refused = {name for name in by_topic if not access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)}
    wanted = [(topic.name, index) for topic in topics for index in topic.partition_indexes if topic.name not in refused]
    for each in await broker.groups.committed(group.group_id, wanted, group.member_id, group.member_epoch):
        by_topic[each.topic].append(_found(each, requires_stable))
    for topic in topics:
        if topic.name in refused:
            by_topic[topic.name] += _nothing(topic.partition_indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return [OffsetFetchResponseTopics(name=name, partitions=partitions) for name, partitions in by_topic.items()]


async def _by_id(
    broker: "Broker",
    access: ClientAccess,
    group: OffsetFetchRequestGroup,
    topics: Sequence[OffsetFetchRequestTopics],
    requires_stable: bool,
) -> list[OffsetFetchResponseTopics]:
    found = [
        (allowed_topic_by_id(broker.catalog, access, Operation.DESCRIBE, asked.topic_id), asked) for asked in topics
    ]
    wanted = [
        (topic.name, index) for topic, asked in found if isinstance(topic, Topic) for index in asked.partition_indexes
    ]
    answers = await broker.groups.committed(group.group_id, wanted, group.member_id, group.member_epoch)
    committed = {(each.topic, each.partition): _found(each, requires_stable) for each in answers}
    return [
        OffsetFetchResponseTopics(
            topic_id=asked.topic_id,
            partitions=[committed[topic.name, index] for index in asked.partition_indexes]
            if isinstance(topic, Topic)
            else _nothing(asked.partition_indexes, topic),
        )
        for topic, asked in found
    ]


def _found(found: FoundOffset, requires_stable: bool) -> OffsetFetchResponsePartitions:
    if requires_stable and found.is_pending:
        return _partition(found.partition, NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return _partition(found.partition, found.committed or NOTHING, ErrorCode.NONE)


def _failed(topics: Sequence[OffsetFetchRequestTopics], error_code: int) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(name=topic.name, partitions=_nothing(topic.partition_indexes, error_code))
        for topic in topics
    ]


def _nothing(indexes: Sequence[int], error_code: int) -> list[OffsetFetchResponsePartitions]:
    return [_partition(index, NOTHING, error_code) for index in indexes]


def _partition(index: int, committed: CommittedOffset, error_code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error_code,
    )


def _only_answer(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
