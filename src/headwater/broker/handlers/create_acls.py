"""CreateAcls (30): access control bindings are added. Versions 1 to 3, as DescribeAcls.

Those that are valid are written, also where others in the request are not; one that is there already counts as created.
They are in force on this node when the response leaves, and on others within moments.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.acl import MAX_BINDINGS, AclBinding, InvalidAclBinding
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.CREATE_ACLS,
    name="CreateAcls",
    access=Access.by_handler(on_cluster(Operation.ALTER, refused_at="results[].error_code")),
    min_version=1,
    max_version=3,
)


async def handle(broker: "Broker", request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    try:
        broker.authorizer.check_is_on()
        context.access.require(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    except RequestError as error:
        return CreateAclsResponse(results=[_result(error) for _ in request.creations])
    outcomes = [_binding(creation) for creation in request.creations]
    bindings = list(dict.fromkeys(each for each in outcomes if isinstance(each, AclBinding)))
    failure = await _create(broker, bindings)
    return CreateAclsResponse(
        results=[_result(each if isinstance(each, RequestError) else failure) for each in outcomes]
    )


def _binding(creation: AclCreation) -> AclBinding | RequestError:
    try:
        return AclBinding.of_codes(
            resource_type=creation.resource_type,
            pattern_type=creation.resource_pattern_type,
            name=creation.resource_name,
            principal=creation.principal,
            host=creation.host,
            operation=creation.operation,
            permission=creation.permission_type,
        )
    except InvalidAclBinding as problem:
        return RequestError(ErrorCode.INVALID_REQUEST, str(problem))


async def _create(broker: "Broker", bindings: list[AclBinding]) -> RequestError | None:
    """None if all are in force. Those that are known here are written, too: another node may have just deleted them."""
    known = broker.acl_bindings.index.bindings
    if sum(binding not in known for binding in bindings) > broker.acl_bindings.room():
        return RequestError(ErrorCode.POLICY_VIOLATION, f"A cluster has {MAX_BINDINGS} bindings at most.")
    try:
        await broker.acl_bindings.create(bindings)
    except RequestError as error:
        return error
    return None


def _result(error: RequestError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
    return AclCreationResult(error_code=error.code, error_message=error.message)
