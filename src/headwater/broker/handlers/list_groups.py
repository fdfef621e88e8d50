"""ListGroups (16): which groups there are. Versions 0 to 5: filters by state from 4 on, by type from 5 on."""

from typing import TYPE_CHECKING

from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode
from headwater.wire.message import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=16, name="ListGroups", min_version=0, max_version=5)


def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    return Message(
        error_code=ErrorCode.NONE,
        groups=[
            Message(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state.value,
                group_type=group.kind,
            )
            for group in broker.groups.views.listed()
            if (not states or group.state.value.lower() in states) and (not kinds or group.kind in kinds)
        ],
    )
