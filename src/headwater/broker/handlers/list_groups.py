"""ListGroups (16): which groups there are. Versions 0 to 5: filters by state from 4 on, by type from 5 on."""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import LEFT_OUT, Access, on_cluster, on_group
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.LIST_GROUPS,
    name="ListGroups",
    access=Access.by_handler(
        on_cluster(
            Operation.DESCRIBE, refused_at=LEFT_OUT, or_else=on_group(Operation.DESCRIBE, "", refused_at=LEFT_OUT)
        )
    ),
    min_version=0,
    max_version=5,
)


def handle(broker: "Broker", request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    access = context.access
    shows_all = _shows_all(access)
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        error_code=ErrorCode.NONE,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state.value,
                group_type=group.kind,
            )
            for group in broker.groups.views.listed()
            if (not states or group.state.value.lower() in states)
            and (not kinds or group.kind in kinds)
            and (shows_all or access.shows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        ],
    )


def _shows_all(access: ClientAccess) -> bool:
    return not access.is_restricted or access.shows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
