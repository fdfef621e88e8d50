"""ShareAcknowledge (79): a member of a share group has dealt with records, or gives them back (KIP-932). Versions 1 and
2: from 2 on a lease can be renewed (KIP-1222).

An accepted record is on disk as such before the answer leaves. The final epoch ends the session, and gives back what
the member still holds.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.queues.share_acknowledging import Acknowledging
from headwater.broker.queues.share_rights import share_rights
from headwater.broker.queues.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, checked_names
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import LeaderEpoch, PartitionId, TopicId
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.share_acknowledge import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.SHARE_ACKNOWLEDGE,
    name="ShareAcknowledge",
    access=Access.first(
        on_group(Operation.READ),
        then=(on_topic(Operation.READ, "topics[].topic_id", refused_at="responses[].partitions[].error_code"),),
    ),
    min_version=1,
    max_version=2,
)


async def handle(
    broker: "Broker", request: ShareAcknowledgeRequest, context: RequestContext
) -> ShareAcknowledgeResponse:
    group_id, member_id = checked_names(request.group_id, request.member_id)
    if request.share_session_epoch == INITIAL_EPOCH:
        raise RequestError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = broker.shares.sessions.use(group_id, member_id, request.share_session_epoch)
    rights = share_rights(broker.catalog, context.access, group_id)
    acknowledging = Acknowledging(broker.shares, group_id, member_id, rights, may_renew=request.is_renew_ack)
    acknowledging.decide(request.topics)
    if request.share_session_epoch == FINAL_EPOCH:
        broker.shares.close_session(session)
        context.connection.when_closed.pop(session.key, None)
    errors = await acknowledging.errors()
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        acquisition_lock_timeout_ms=broker.group_configs.settings(group_id).record_lock_duration_ms,
        responses=_topics(broker, errors),
        node_endpoints=(),
    )


def _topics(broker: "Broker", errors: dict[PartitionId, ErrorCode]) -> list[ShareAcknowledgeTopicResponse]:
    topics: dict[TopicId, list[PartitionData]] = {}
    for partition, code in errors.items():
        if code:
            broker.metrics.error(API.name, code)
        answer = PartitionData(
            partition_index=partition.index,
            error_code=code,
            error_message=None,
            current_leader=LeaderIdAndEpoch(leader_id=broker.config.node_id, leader_epoch=LeaderEpoch(0)),
        )
        topics.setdefault(partition.topic_id, []).append(answer)
    return [
        ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in topics.items()
    ]
