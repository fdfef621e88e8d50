"""Heartbeat (12): a member is alive, and learns whether to join again. Versions 0 to 4: static members from 3 on."""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group
from headwater.broker.api import Api, RequestContext
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.HEARTBEAT, name="Heartbeat", access=Access.first(on_group(Operation.READ)), min_version=0, max_version=4
)


def handle(broker: "Broker", request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    error = broker.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)
