"""TxnOffsetCommit (28): how far a group has read, to count when a producer's transaction commits. Versions 0 to 5:
leader epochs from 2 on, the reading member from 3 on (KIP-447), TRANSACTION_ABORTABLE from 4 on; with 5 the broker
itself makes the offsets part of the transaction (KIP-890), before that the producer has said AddOffsetsToTxn.

What cannot be committed says so for each partition; a refusal of the whole request is repeated for each of them. This
API has no words for some refusals, and old clients do not know others: they get those that make them do the same.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group, on_topic, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.groups.requests import CommitRequest, OffsetToCommit
from headwater.groups.shard import check_group_id
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation
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
    known = tuple(
        OffsetToCommit(
            topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
        )
        for topic in request.topics
        for partition in topic.partitions
        if _exists(broker, topic.name, partition.partition_index)
    )
    errors = await _commit(broker, request, known, context.api_version) if known else {}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=index, error_code=errors.get((topic.name, index), unknown)
                    )
                    for index in (partition.partition_index for partition in topic.partitions)
                ],
            )
            for topic in request.topics
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


def _exists(broker: "Broker", name: str, index: int) -> bool:
    topic = broker.catalog.find(name)
    return topic is not None and topic.has(index)
