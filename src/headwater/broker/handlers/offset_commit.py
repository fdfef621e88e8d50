"""OffsetCommit (8): how far a group has read. Versions 2 to 10: the client's own retention in 2 to 4, leader epochs
from 6 on, static members from 7 on, epochs of members of the new protocol from 9 on, topic ids instead of names in 10.

What cannot be committed says so for each partition; a refusal of the whole request is repeated for each of them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.topics.allowed_topics import allowed_topic, allowed_topic_by_id, error_in
from headwater.broker.topics.topic import Topic
from headwater.groups.requests import CommitRequest, OffsetToCommit
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.OFFSET_COMMIT,
    name="OffsetCommit",
    access=Access.by_handler(
        on_group(Operation.READ, refused_at="topics[].partitions[].error_code"),
        on_topic(Operation.READ, "topics[].name", refused_at="topics[].partitions[].error_code"),
    ),
    min_version=2,
    max_version=10,
)

LAST_WITH_RETENTION = 4
FIRST_WITH_MEMBER_EPOCHS = 9
FIRST_WITH_TOPIC_IDS = 10


async def handle(broker: "Broker", request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    has_ids = context.api_version >= FIRST_WITH_TOPIC_IDS
    access, catalog = context.access, broker.catalog
    if access.is_restricted and not access.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _response(request, [ErrorCode.GROUP_AUTHORIZATION_FAILED] * len(request.topics), {}, has_ids)
    found = [
        allowed_topic_by_id(catalog, access, Operation.READ, topic.topic_id)
        if has_ids
        else allowed_topic(catalog, access, Operation.READ, topic.name)
        for topic in request.topics
    ]
    known = tuple(
        OffsetToCommit(
            topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
        )
        for topic, asked in zip(found, request.topics, strict=True)
        for partition in asked.partitions
        if isinstance(topic, Topic) and topic.has(partition.partition_index)
    )
    commit = CommitRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        offsets=known,
        retention_ms=_retention_ms(request, context.api_version),
        knows_member_epochs=context.api_version >= FIRST_WITH_MEMBER_EPOCHS,
    )
    try:
        answers = await broker.groups.commit(request.group_id, commit)
        errors = {(answer.topic, answer.partition): answer.error for answer in answers}
    except RequestError as error:
        errors = {(each.topic, each.partition): error.code for each in known}
    return _response(request, found, errors, has_ids)


def _response(
    request: OffsetCommitRequest,
    found: Sequence[Topic | ErrorCode],
    errors: Mapping[tuple[str, int], ErrorCode],
    has_ids: bool,
) -> OffsetCommitResponse:
    """`found` has the topics of the request, or why nothing is committed there."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="" if has_ids else asked.name,
                topic_id=asked.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=error_in(topic, index, errors))
                    for index in (partition.partition_index for partition in asked.partitions)
                ],
            )
            for topic, asked in zip(found, request.topics, strict=True)
        ]
    )


def _retention_ms(request: OffsetCommitRequest, version: int) -> int | None:
    if version > LAST_WITH_RETENTION or request.retention_time_ms < 0:
        return None
    retention_ms: int = request.retention_time_ms
    return retention_ms
