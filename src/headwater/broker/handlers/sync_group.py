"""SyncGroup (14): the leader brings the assignment, everyone gets their part. Versions 0 to 5: static members from 3
on, and the protocol is named, and checked, from 5 on.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group
from headwater.broker.api import Api, RequestContext
from headwater.groups.effects import SyncAnswer
from headwater.groups.requests import SyncRequest
from headwater.model.errors import RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.SYNC_GROUP, name="SyncGroup", access=Access.first(on_group(Operation.READ)), min_version=0, max_version=5
)


async def handle(broker: "Broker", request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    sync = SyncRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    access, version = context.access, context.access.version
    try:
        answer = await broker.groups.sync(request.group_id, sync)
        if access.version != version:  # this may have taken as long as a rebalance
            access.require(Operation.READ, ResourceType.GROUP, request.group_id)
    except RequestError as error:
        answer = SyncAnswer(error.code)
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
