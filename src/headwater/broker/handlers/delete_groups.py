"""DeleteGroups (42): forget groups without members, and what they committed. Versions 0 to 2.

A group that is an explicit subscription ends with it, also if it was not used yet.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_group
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DELETE_GROUPS,
    name="DeleteGroups",
    access=Access.by_handler(on_group(Operation.DELETE, "groups_names[]", refused_at="results[].error_code")),
    min_version=0,
    max_version=2,
)


async def handle(broker: "Broker", request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[await _delete(broker, context.access, group_id) for group_id in dict.fromkeys(request.groups_names)]
    )


async def _delete(broker: "Broker", access: ClientAccess, group_id: str) -> DeletableGroupResult:
    try:
        access.require(Operation.DELETE, ResourceType.GROUP, group_id)
        await _forget(broker, group_id)
    except RequestError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
    return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)


async def _forget(broker: "Broker", group_id: str) -> None:
    await broker.group_configs.refresh(group_id)
    if _has_queues(broker, group_id):
        await broker.share_admin.forget(group_id)
    try:
        await broker.groups.delete_group(group_id)
    except RequestError as error:
        is_subscription = broker.group_configs.subscription(group_id).is_explicit
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND or not is_subscription:
            raise
    await broker.group_configs.unsubscribe(group_id)


def _has_queues(broker: "Broker", group_id: str) -> bool:
    """Other nodes serve them, and may not answer: so they go before the group does. Raises RequestError if the group is
    in use."""
    try:
        broker.groups.check_share_group_is_empty(group_id)
    except RequestError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return broker.group_configs.subscription(group_id).is_queue
    return True
