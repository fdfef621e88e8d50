"""ConsumerGroupDescribe (69): members of groups of the new protocol, what they have and what they are to have.

Versions 0 and 1: from 1 on with the protocol that a member speaks.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import DESCRIBED_GROUPS
from headwater.broker.access.hidden_groups import check_topics_of_group
from headwater.broker.api import Api, RequestContext
from headwater.broker.authorized_operations import NOT_ASKED
from headwater.groups.views import DescribedConsumer, DescribedConsumerGroup, DescribedPartitions
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    name="ConsumerGroupDescribe",
    access=DESCRIBED_GROUPS,
    min_version=0,
    max_version=1,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def handle(
    broker: "Broker", request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    asks_operations: bool = request.include_authorized_operations
    return ConsumerGroupDescribeResponse(
        groups=[
            _describe(broker, context.access, group_id, asks_operations)
            for group_id in dict.fromkeys(request.group_ids)
        ]
    )


def _describe(broker: "Broker", access: ClientAccess, group_id: str, asks_operations: bool) -> DescribedGroup:
    try:
        access.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = broker.groups.views.described_consumer(group_id)
        if access.is_restricted:
            check_topics_of_group(access, _topics(group))
    except RequestError as error:
        return DescribedGroup(
            error_code=error.code,
            error_message=error.message,
            group_id=group_id,
            group_state="",
            assignor_name="",
            members=(),
            authorized_operations=NOT_ASKED,
        )
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(member) for member in group.members],
        authorized_operations=access.operations_on(ResourceType.GROUP, group_id) if asks_operations else NOT_ASKED,
    )


def _topics(group: DescribedConsumerGroup) -> Iterator[str]:
    """That a member reads, or is to read."""
    for member in group.members:
        for each in (*member.assigned, *member.target):
            yield each.topic


def _member(member: DescribedConsumer) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        subscribed_topic_regex=member.topic_regex or "",
        assignment=_partitions(member.assigned),
        target_assignment=_partitions(member.target),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _partitions(partitions: Sequence[DescribedPartitions]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=each.topic_id, topic_name=each.topic, partitions=each.indexes)
            for each in partitions
        ]
    )
