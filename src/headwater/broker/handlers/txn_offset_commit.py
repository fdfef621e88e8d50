"""TxnOffsetCommit (28): how far a group has read, to count when a producer's transaction commits. Versions 0 to 5:
leader epochs from 2 on, the reading member from 3 on (KIP-447), TRANSACTION_ABORTABLE from 4 on; with 5 the broker
itself makes the offsets part of the transaction (KIP-890), before that the producer has said AddOffsetsToTxn.

What cannot be committed says so for each partition; a refusal of the whole request is repeated for each of them. This
API has no words for some refusals, and old clients do not know others: they get those that make them do the same.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_group, on_topic, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.broker.topics.allowed_topics import allowed_topic, error_in
from headwater.broker.topics.topic import Topic
from headwater.groups.requests import CommitRequest, OffsetToCommit
from headwater.groups.shard import check_group_id
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.TXN_OFFSET_COMMIT,
    name="TxnOffsetCommit",
    access=Access.by_handler(
        on_transactional_id(Operation.WRITE, refused_at="topics[].partitions[].error_code"),
        on_group(Operation.READ, refused_at="topics[].partitions[].error_code"),
        on_topic(Operation.READ, "topics[].name", refused_at="topics[].partitions[].error_code"),
    ),
    min_version=0,
    max_version=5,
)

FIRST_THAT_KNOWS_LOADING = 2
FIRST_WITH_ABORTABLE = 4
FIRST_THAT_ADDS = 5


async def handle(broker: "Broker", request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    refusal = _refusal(context.access, request)
    if refusal is not None:
        return _response(request, [refusal] * len(request.topics), {})
    found = [allowed_topic(broker.catalog, context.access, Operation.READ, topic.name) for topic in request.topics]
    known = tuple(
        OffsetToCommit(
            asked.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
        )
        for topic, asked in zip(found, request.topics, strict=True)
        for partition in asked.partitions
        if isinstance(topic, Topic) and topic.has(partition.partition_index)
    )
    errors = await _commit(broker, request, known, context.api_version) if known else {}
    return _response(request, found, errors)


def _refusal(access: ClientAccess, request: TxnOffsetCommitRequest) -> ErrorCode | None:
    """Of the whole request."""
    if not access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not access.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def _response(
    request: TxnOffsetCommitRequest,
    found: Sequence[Topic | ErrorCode],
    errors: Mapping[tuple[str, int], ErrorCode],
) -> TxnOffsetCommitResponse:
    """`found` has the topics of the request, or why nothing is committed there."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=asked.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=error_in(topic, index, errors))
                    for index in (partition.partition_index for partition in asked.partitions)
                ],
            )
            for topic, asked in zip(found, request.topics, strict=True)
        ]
    )


async def _commit(
    broker: "Broker", request: TxnOffsetCommitRequest, offsets: tuple[OffsetToCommit, ...], version: int
) -> dict[tuple[str, int], ErrorCode]:
    commit = CommitRequest(request.member_id, request.group_instance_id, request.generation_id, offsets)
    group_id: str = request.group_id
    producer = (request.producer_id, request.producer_epoch)
    try:
        check_group_id(group_id)
        protocol = 2 if version >= FIRST_THAT_ADDS else 1
        with broker.groups.announced(*producer, version=protocol) as announced:
            await broker.admissions.admit_offsets(request.transactional_id, *producer, group_id, protocol)
            answers = await broker.groups.commit_in_transaction(group_id, commit, *producer, announced)
    except RequestError as error:
        return {(each.topic, each.partition): _translated(error.code, version) for each in offsets}
    return {(answer.topic, answer.partition): answer.error for answer in answers}


def _translated(code: ErrorCode, version: int) -> ErrorCode:
    match code:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.STALE_MEMBER_EPOCH:
            return ErrorCode.ILLEGAL_GENERATION
        case ErrorCode.INVALID_TXN_STATE if version >= FIRST_WITH_ABORTABLE:
            return ErrorCode.TRANSACTION_ABORTABLE
        case ErrorCode.CONCURRENT_TRANSACTIONS if version < FIRST_THAT_ADDS:
            return _translated(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version)
        case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version < FIRST_THAT_KNOWS_LOADING:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
