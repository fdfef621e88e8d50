"""LeaveGroup (13): members go, so that the others need not wait for their sessions to end. Versions 0 to 5: one member,
from 3 on many, named by member id or instance id; from 5 on with a reason.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group
from headwater.broker.api import Api, RequestContext
from headwater.groups.requests import LeaveRequest
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.LEAVE_GROUP,
    name="LeaveGroup",
    access=Access.first(on_group(Operation.READ)),
    min_version=0,
    max_version=5,
)


async def handle(broker: "Broker", request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    if context.api_version < 3:
        (answer,) = await broker.groups.leave(request.group_id, [LeaveRequest(request.member_id, None)])
        return LeaveGroupResponse(error_code=answer.error)
    leaving = [LeaveRequest(each.member_id, each.group_instance_id, each.reason) for each in request.members]
    answers = await broker.groups.leave(request.group_id, leaving)
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.instance_id, error_code=each.error)
            for each in answers
        ],
    )
