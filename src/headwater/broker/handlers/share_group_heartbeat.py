"""ShareGroupHeartbeat (76), version 1: a member of a share group joins (epoch 0), stays, or leaves (-1), and learns
what it reads (KIP-932). Version 0 was never stable and is not served.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.broker.queues.share_assignment import assigned_topics
from headwater.groups.share import JOIN_EPOCH, ShareHeartbeat
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.SHARE_GROUP_HEARTBEAT,
    name="ShareGroupHeartbeat",
    access=Access.first(
        on_group(Operation.READ),
        then=(on_topic(Operation.DESCRIBE, "subscribed_topic_names[]", refused_at="error_code"),),
    ),
    min_version=1,
    max_version=1,
)


async def handle(
    broker: "Broker", request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    if not request.group_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    topics, access = request.subscribed_topic_names, context.access
    if access.is_restricted:
        for name in topics or ():
            access.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
    heartbeat = ShareHeartbeat(
        request.member_id,
        request.member_epoch,
        request.rack_id,
        tuple(topics) if topics is not None else None,
        context.client_id,
        context.client_host,
    )
    if request.member_epoch == JOIN_EPOCH:
        await broker.group_configs.refresh_if_possible(request.group_id)
    settings = broker.group_configs.membership(request.group_id)
    answer = await broker.groups.share_heartbeat(request.group_id, heartbeat, settings)
    assignment = None
    if answer.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic.topic_id, partitions=partitions)
                for topic, partitions in assigned_topics(broker.catalog, answer.assignment)
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )
