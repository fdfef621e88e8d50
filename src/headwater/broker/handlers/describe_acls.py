"""DescribeAcls (29): the access control bindings that a filter means. Versions 1 to 3: prefixed patterns in all of
them, resources of type user from 3 on."""

from itertools import groupby
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation
from headwater.security.acl import AclBinding
from headwater.security.acl_filter import AclFilter, InvalidAclFilter
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_ACLS,
    name="DescribeAcls",
    access=Access.first(on_cluster(Operation.DESCRIBE)),
    min_version=1,
    max_version=3,
)


def handle(broker: "Broker", request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    broker.authorizer.check_is_on()
    try:
        acl_filter = AclFilter.of_codes(
            resource_type=request.resource_type_filter,
            pattern_type=request.pattern_type_filter,
            name=request.resource_name_filter,
            principal=request.principal_filter,
            host=request.host_filter,
            operation=request.operation,
            permission=request.permission_type,
        )
    except InvalidAclFilter as problem:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(problem)) from None
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal=each.principal,
                        host=each.host,
                        operation=each.operation,
                        permission_type=each.permission,
                    )
                    for each in bindings
                ],
            )
            for (resource_type, pattern_type, name), bindings in groupby(
                broker.acl_bindings.matching(acl_filter), _pattern
            )
        ],
    )


def _pattern(binding: AclBinding) -> tuple[int, int, str]:
    return binding.resource_type, binding.pattern_type, binding.name
