"""ShareGroupDescribe (77), version 1: members of share groups, what they subscribe to and what they read (KIP-932)."""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import DESCRIBED_GROUPS
from headwater.broker.api import Api, RequestContext
from headwater.broker.authorized_operations import NOT_ASKED, ON_GROUP
from headwater.broker.queues.share_assignment import assigned_topics
from headwater.groups.rebalance import GroupState
from headwater.groups.share import ShareGroup, ShareMember
from headwater.groups.share_assignor import NAME
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.SHARE_GROUP_DESCRIBE, name="ShareGroupDescribe", access=DESCRIBED_GROUPS, min_version=1, max_version=1
)


def handle(broker: "Broker", request: ShareGroupDescribeRequest, context: RequestContext) -> ShareGroupDescribeResponse:
    operations = ON_GROUP if request.include_authorized_operations else NOT_ASKED
    return ShareGroupDescribeResponse(
        groups=[_describe(broker, group_id, operations) for group_id in dict.fromkeys(request.group_ids)]
    )


def _describe(broker: "Broker", group_id: str, operations: int) -> DescribedGroup:
    answer = DescribedGroup(
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
        authorized_operations=NOT_ASKED,
    )
    try:
        if not group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID)
        group = broker.groups.share_group(group_id)
    except RequestError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    answer.group_state, answer.assignor_name = group.state.value, NAME
    answer.group_epoch = answer.assignment_epoch = group.epoch
    answer.authorized_operations = operations
    answer.members = [_member(broker, group, member) for member in group.members.values()]
    return answer


def _member(broker: "Broker", group: ShareGroup, member: ShareMember) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.stored.rack_id,
        member_epoch=member.epoch if member.epoch is not None else group.epoch,
        client_id=member.stored.client_id,
        client_host=member.stored.client_host,
        subscribed_topic_names=list(member.stored.topics),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=partitions)
                for topic, partitions in assigned_topics(broker.catalog, group.assigned(member.member_id))
            ]
        ),
    )
