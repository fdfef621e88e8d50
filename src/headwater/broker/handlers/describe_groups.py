"""DescribeGroups (15): members of groups, what they subscribe to and what they were assigned. Versions 0 to 6.

A group that is not known is dead; from version 6 on that is the error GROUP_ID_NOT_FOUND (KIP-1043).
"""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_group
from headwater.broker.api import Api, RequestContext
from headwater.broker.authorized_operations import NOT_ASKED
from headwater.groups.rebalance import GroupState
from headwater.groups.views import DescribedMember
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_GROUPS,
    name="DescribeGroups",
    access=Access.by_handler(on_group(Operation.DESCRIBE, "groups[]", refused_at="groups[].error_code")),
    min_version=0,
    max_version=6,
)


def handle(broker: "Broker", request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    asks_operations: bool = request.include_authorized_operations
    return DescribeGroupsResponse(
        groups=[
            _describe(broker, context.access, group_id, asks_operations, context.api_version)
            for group_id in dict.fromkeys(request.groups)
        ]
    )


def _describe(
    broker: "Broker", access: ClientAccess, group_id: str, asks_operations: bool, version: int
) -> DescribedGroup:
    answer = DescribedGroup(
        error_code=ErrorCode.NONE,
        error_message=None,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=NOT_ASKED,
    )
    try:
        access.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = broker.groups.views.described(group_id)
    except RequestError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    if group.state is GroupState.DEAD and version >= 6:
        answer.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        answer.error_message = f"Group {group_id} not found."
    elif asks_operations:
        answer.authorized_operations = access.operations_on(ResourceType.GROUP, group_id)
    answer.group_state = group.state.value
    answer.protocol_type, answer.protocol_data = group.protocol_type, group.protocol
    answer.members = [_member(member) for member in group.members]
    return answer


def _member(member: DescribedMember) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
