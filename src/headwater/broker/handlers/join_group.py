"""JoinGroup (11): become, or stay, a member of the next generation. Versions 0 to 9.

1 a rebalance time-out of its own   4 MEMBER_ID_REQUIRED (KIP-394)   5 static members (KIP-345)
7 protocol type in the answer, null names in errors                  9 skip_assignment (KIP-814)
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group
from headwater.broker.api import Api, RequestContext
from headwater.groups.effects import JoinAnswer
from headwater.groups.members import MemberProtocol
from headwater.groups.requests import JoinRequest
from headwater.groups.settings import MAX_NAME_CHARS
from headwater.model.errors import RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.JOIN_GROUP, name="JoinGroup", access=Access.first(on_group(Operation.READ)), min_version=0, max_version=9
)


async def handle(broker: "Broker", request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    session_timeout_ms: int = request.session_timeout_ms
    join = JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id[:MAX_NAME_CHARS],
        client_host=context.client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in request.protocols),
        needs_known_id=context.api_version >= 4,
        can_skip_assignment=context.api_version >= 9,
    )
    access, version = context.access, context.access.version
    try:
        answer = await broker.groups.join(request.group_id, join)
        if access.version != version:  # this may have taken as long as a rebalance
            access.require(Operation.READ, ResourceType.GROUP, request.group_id)
    except RequestError as error:
        answer = JoinAnswer(error.code, request.member_id)
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol if context.api_version >= 7 else answer.protocol or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in answer.members
        ],
    )
