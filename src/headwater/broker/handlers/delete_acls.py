"""DeleteAcls (31): the access control bindings that any of the filters means are deleted. Versions 1 to 3.

Each filter is answered with what it meant; a binding that two filters mean is in both answers, and deleted once. They
have no effect on this node any more when the response leaves, and on others within moments.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.acl_filter import AclFilter, InvalidAclFilter
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DELETE_ACLS,
    name="DeleteAcls",
    access=Access.by_handler(on_cluster(Operation.ALTER, refused_at="filter_results[].error_code")),
    min_version=1,
    max_version=3,
)

MAX_MATCHES = 200_000
"""Bindings in one response: all there can be, twice. A few bytes of request must not become an answer without end."""

Meant = list[AclBinding] | RequestError
"""What a filter means, or why it cannot be told."""


async def handle(broker: "Broker", request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    try:
        broker.authorizer.check_is_on()
        context.access.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    except RequestError as error:
        return DeleteAclsResponse(filter_results=[_result(error) for _ in request.filters])
    outcomes = _meant(broker, request)
    bindings = dict.fromkeys(binding for each in outcomes if isinstance(each, list) for binding in each)
    try:
        await broker.acl_bindings.delete(bindings)
    except RequestError as error:
        outcomes = [error if isinstance(each, list) else each for each in outcomes]
    return DeleteAclsResponse(filter_results=[_result(each) for each in outcomes])


def _meant(broker: "Broker", request: DeleteAclsRequest) -> list[Meant]:
    outcomes: list[Meant] = []
    room = MAX_MATCHES
    for each in request.filters:
        try:
            matches = broker.acl_bindings.matching(_filter(each))
            if len(matches) > room:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, f"The filters of one request mean more than {MAX_MATCHES} bindings."
                )
            room -= len(matches)
            outcomes.append(matches)
        except RequestError as error:
            outcomes.append(error)
    return outcomes


def _filter(each: DeleteAclsFilter) -> AclFilter:
    try:
        return AclFilter.of_codes(
            resource_type=each.resource_type_filter,
            pattern_type=each.pattern_type_filter,
            name=each.resource_name_filter,
            principal=each.principal_filter,
            host=each.host_filter,
            operation=each.operation,
            permission=each.permission_type,
        )
    except InvalidAclFilter as problem:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(problem)) from None


def _result(outcome: Meant) -> DeleteAclsFilterResult:
    if isinstance(outcome, RequestError):
        return DeleteAclsFilterResult(error_code=outcome.code, error_message=outcome.message, matching_acls=())
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=each.resource_type,
                resource_name=each.name,
                pattern_type=each.pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in outcome
        ],
    )
