"""OffsetForLeaderEpoch (23), versions 2 to 4: where a leader epoch ended, by which a consumer finds out whether what
it has read was truncated (KIP-320). Here nothing that was readable ever is; the answers say so.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_cluster, on_topic
from headwater.broker.access.topic_access import topic_refusal
from headwater.broker.api import Api, RequestContext
from headwater.broker.log.leader_epochs import end_of_epoch
from headwater.broker.log.segment_chain import EpochStart
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_LEADER_EPOCH, NO_OFFSET, PartitionId
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    name="OffsetForLeaderEpoch",
    access=Access.by_handler(
        on_cluster(
            Operation.CLUSTER_ACTION,
            refused_at="topics[].partitions[].error_code",
            or_else=on_topic(Operation.DESCRIBE, "topics[].topic", refused_at="topics[].partitions[].error_code"),
        )
    ),
    min_version=2,
    max_version=4,
)


def handle(
    broker: "Broker", request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    # A partition may be asked about many times; its segments are looked through once.
    known: dict[PartitionId, list[EpochStart]] = {}
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=asked.topic,
                partitions=_answers(broker, context.access, asked, known),
            )
            for asked in request.topics
        ]
    )


def _answers(
    broker: "Broker",
    access: ClientAccess,
    asked: OffsetForLeaderTopic,
    known: dict[PartitionId, list[EpochStart]],
) -> list[EpochEndOffset]:
    refusal = None
    if not access.grants(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        refusal = topic_refusal(access, Operation.DESCRIBE, asked.topic)
    return [_answer(broker, asked.topic, partition, refusal, known) for partition in asked.partitions]


def _answer(
    broker: "Broker",
    topic: str,
    asked: OffsetForLeaderPartition,
    refusal: RequestError | None,
    known: dict[PartitionId, list[EpochStart]],
) -> EpochEndOffset:
    result = EpochEndOffset(
        partition=asked.partition, error_code=ErrorCode.NONE, leader_epoch=NO_LEADER_EPOCH, end_offset=NO_OFFSET
    )
    if refusal is not None:
        result.error_code = refusal.code
        return result
    try:
        partition = broker.catalog.topic(topic).partition(asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
    except RequestError as error:
        result.error_code = error.code
        return result
    starts = known.get(partition.id)
    if starts is None:
        starts = known[partition.id] = partition.register.chain.epochs()
    # The current epoch's end is what is committed: the rest could still be taken back.
    result.leader_epoch, result.end_offset = end_of_epoch(
        starts, partition.log_start, partition.high_watermark, asked.leader_epoch
    )
    return result
