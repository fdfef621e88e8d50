"""Access control bindings: which there are, making them, and removing what filters mean."""

from collections.abc import Iterable, Sequence

from headwater.client.errors import BrokerRefused, check
from headwater.client.question import Question, question
from headwater.model.errors import ErrorCode
from headwater.security.acl import AclBinding, InvalidAclBinding
from headwater.security.acl_filter import AclFilter
from headwater.wire.typed.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from headwater.wire.typed.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from headwater.wire.typed.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headwater.wire.typed.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

BROKER_RESOURCE = 4
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"


def list_bindings(acl_filter: AclFilter) -> Question[list[AclBinding]]:
    """The code is SECURITY_DISABLED where bindings have no meaning."""

    def read(response: DescribeAclsResponse) -> list[AclBinding]:
        check(response.error_code, response.error_message, "The list of access control bindings")
        return [
            _binding(
                resource_type=resource.resource_type,
                pattern_type=resource.pattern_type,
                name=resource.resource_name,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission=each.permission_type,
            )
            for resource in response.resources
            for each in resource.acls
        ]

    request = DescribeAclsRequest(
        resource_type_filter=acl_filter.resource_type,
        resource_name_filter=acl_filter.name,
        pattern_type_filter=acl_filter.pattern_type,
        principal_filter=acl_filter.principal,
        host_filter=acl_filter.host,
        operation=acl_filter.operation,
        permission_type=acl_filter.permission,
    )
    return question(request, read)


def create_bindings(bindings: Sequence[AclBinding]) -> Question[None]:
    """One that exists counts as made. If one is refused, others may have been made."""

    def read(response: CreateAclsResponse) -> None:
        for result in response.results:
            check(result.error_code, result.error_message, "The access control binding")

    creations = [
        AclCreation(
            resource_type=each.resource_type,
            resource_name=each.name,
            resource_pattern_type=each.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in bindings
    ]
    return question(CreateAclsRequest(creations=creations), read)


def delete_bindings(bindings: Iterable[AclBinding]) -> Question[list[AclBinding]]:
    """These, and no others: what was deleted."""

    def read(response: DeleteAclsResponse) -> list[AclBinding]:
        deleted = []
        for result in response.filter_results:
            check(result.error_code, result.error_message, "The access control binding")
            for each in result.matching_acls:
                check(each.error_code, each.error_message, "The access control binding")
                deleted.append(
                    _binding(
                        resource_type=each.resource_type,
                        pattern_type=each.pattern_type,
                        name=each.resource_name,
                        principal=each.principal,
                        host=each.host,
                        operation=each.operation,
                        permission=each.permission_type,
                    )
                )
        return deleted

    filters = [
        DeleteAclsFilter(
            resource_type_filter=each.resource_type,
            resource_name_filter=each.name,
            pattern_type_filter=each.pattern_type,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in bindings
    ]
    return question(DeleteAclsRequest(filters=filters), read)


def authorizer_settings(node_id: int) -> Question[dict[str, str]]:
    """`super.users` and `allow.everyone.if.no.acl.found` of a broker, as far as it tells them."""

    def read(response: DescribeConfigsResponse) -> dict[str, str]:
        (result,) = response.results
        check(result.error_code, result.error_message, f"Broker {node_id}")
        return {each.name: each.value for each in result.configs if each.value is not None}

    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=[SUPER_USERS, ALLOW_EVERYONE]
    )
    return question(DescribeConfigsRequest(resources=[resource]), read)


def _binding(**codes: int | str) -> AclBinding:
    """Of a response. A binding with a code that this version has no name for cannot be judged, nor left out."""
    try:
        return AclBinding.of_codes(**codes)  # type: ignore[arg-type]
    except InvalidAclBinding as error:
        raise BrokerRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error), "A binding that the broker has") from error
