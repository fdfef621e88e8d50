"""ConsumerGroupHeartbeat (68): join, stay in, or leave a group that the broker assigns (KIP-848). Versions 0 and 1:
from 1 on clients make their own member ids, and may subscribe by pattern.

Two answers are milder than Kafka's, because clients end on Kafka's: a member of a group that is gone is told
UNKNOWN_MEMBER_ID and so joins again, and a static member that joins again under the id it has is let in.
"""

import uuid
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_group, on_topic
from headwater.broker.api import Api, RequestContext
from headwater.groups.assignment import Assignment, of_partitions
from headwater.groups.consumer_requests import JOIN_EPOCH, ConsumerHeartbeat
from headwater.groups.settings import MAX_NAME_CHARS
from headwater.groups.visible_topics import TopicRights
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.consumer_group_heartbeat import Assignment as MemberAssignment
from headwater.wire.typed.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
    name="ConsumerGroupHeartbeat",
    access=Access.first(
        on_group(Operation.READ),
        then=(on_topic(Operation.DESCRIBE, "subscribed_topic_names[]", refused_at="error_code"),),
    ),
    min_version=0,
    max_version=1,
)


async def handle(
    broker: "Broker", request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    member_id: str = request.member_id
    if context.api_version == 0 and request.member_epoch == JOIN_EPOCH and not member_id:
        member_id = str(uuid.uuid4())
    names, access = request.subscribed_topic_names, context.access
    if access.is_restricted:
        for name in names or ():
            access.require(Operation.DESCRIBE, ResourceType.TOPIC, name)
    heartbeat = ConsumerHeartbeat(
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        client_id=context.client_id[:MAX_NAME_CHARS],
        client_host=context.client_host,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(names))) if names is not None else None,
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=_owned(request),
        rights=_rights(access) if access.is_restricted else None,
    )
    if request.member_epoch == JOIN_EPOCH:
        await broker.group_configs.refresh_if_possible(request.group_id)
    try:
        answer = await broker.groups.consumer_heartbeat(request.group_id, heartbeat)
    except RequestError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=error.code, error_message=error.message, member_id=None, assignment=None
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=_assignment(answer.assigned) if answer.assigned is not None else None,
    )


def _rights(access: ClientAccess) -> TopicRights:
    """What the member may see of the topics that its pattern matches."""
    return TopicRights(access, access.version, lambda name: access.shows(Operation.DESCRIBE, ResourceType.TOPIC, name))


def _owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    if request.topic_partitions is None:
        return None
    return of_partitions((topic.topic_id, index) for topic in request.topic_partitions for index in topic.partitions)


def _assignment(assigned: Assignment) -> MemberAssignment:
    return MemberAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(indexes)) for topic_id, indexes in assigned.items()
        ]
    )
