"""ShareGroupDescribe (77), version 1: members of share groups, what they subscribe to and what they read (KIP-932)."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import DESCRIBED_GROUPS
from headwater.broker.access.hidden_groups import check_topics_of_group
from headwater.broker.api import Api, RequestContext
from headwater.broker.authorized_operations import NOT_ASKED
from headwater.broker.queues.share_assignment import assigned_topics
from headwater.groups.rebalance import GroupState
from headwater.groups.share import ShareGroup, ShareMember
from headwater.groups.share_assignor import NAME
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
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
    asks_operations: bool = request.include_authorized_operations
    return ShareGroupDescribeResponse(
        groups=[
            _describe(broker, context.access, group_id, asks_operations)
            for group_id in dict.fromkeys(request.group_ids)
        ]
    )


def _describe(broker: "Broker", access: ClientAccess, group_id: str, asks_operations: bool) -> DescribedGroup:
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
        access.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID)
        group = broker.groups.share_group(group_id)
        members = [_member(broker, group, member) for member in group.members.values()]
        if access.is_restricted:
            check_topics_of_group(access, (each.topic_name for each in _partitions(members)))
    except RequestError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    answer.group_state, answer.assignor_name = group.state.value, NAME
    answer.group_epoch = answer.assignment_epoch = group.epoch
    if asks_operations:
        answer.authorized_operations = access.operations_on(ResourceType.GROUP, group_id)
    answer.members = members
    return answer


def _partitions(members: Iterable[Member]) -> Iterator[TopicPartitions]:
    """That any of them reads."""
    for member in members:
        yield from member.assignment.topic_partitions


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
