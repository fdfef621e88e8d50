"""What is asked of brokers about users, bindings and quotas, byte for byte, and what refusals become."""

from typing import Any

import pytest

from headwater.client.admin.acls import authorizer_settings, create_bindings, delete_bindings, list_bindings
from headwater.client.admin.quotas import alter_quotas, describe_quotas
from headwater.client.admin.users import NewPassword, describe_users, remove_password, set_password
from headwater.client.errors import BrokerRefused
from headwater.client.question import Question
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.acl_filter import AclFilter
from headwater.security.quota_entities import QuotaEntity
from headwater.security.scram import ScramCredential, ScramMechanism
from headwater.wire.typed.alter_client_quotas import AlterClientQuotasResponse, ResponseEntryData
from headwater.wire.typed.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headwater.wire.typed.create_acls import AclCreationResult, CreateAclsResponse
from headwater.wire.typed.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from headwater.wire.typed.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from headwater.wire.typed.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from headwater.wire.typed.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from headwater.wire.typed.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

BINDING = AclBinding(
    resource_type=ResourceType.TOPIC,
    pattern_type=PatternType.PREFIXED,
    name="orders",
    principal="User:alice",
    host="*",
    operation=Operation.WRITE,
    permission=Permission.ALLOW,
)
TWO_LEVELS = QuotaEntity.of([("user", "alice"), ("client-id", None)])


def request_of(question: Question[Any]) -> Any:
    return question.request


def test_a_password_is_sent_as_what_it_is_checked_by() -> None:
    new = NewPassword("alice", "hush", ScramMechanism.SCRAM_SHA_256, b"salt", 4096)
    (upsertion,) = request_of(set_password(new)).upsertions
    credential = ScramCredential.of_salted_password(
        ScramMechanism(upsertion.mechanism), upsertion.salted_password, upsertion.salt, upsertion.iterations
    )
    assert credential.is_of("hush") and not credential.is_of("Hush")
    assert upsertion.name == "alice" and "hush" not in repr(new)


def test_users_are_read_with_mechanisms_that_are_newer_than_this() -> None:
    question = describe_users(["alice"])
    assert [each.name for each in request_of(question).users] == ["alice"]
    infos = [CredentialInfo(mechanism=2, iterations=8192), CredentialInfo(mechanism=9, iterations=1)]
    result = DescribeUserScramCredentialsResult(user="alice", credential_infos=infos)
    (user,) = question.read(DescribeUserScramCredentialsResponse(results=[result]))
    assert user.iterations == {"SCRAM-SHA-512": 8192, "mechanism 9": 1}
    (deletion,) = request_of(remove_password("alice", "SCRAM-SHA-512")).deletions
    assert (deletion.name, deletion.mechanism) == ("alice", 2)


def test_bindings_go_there_and_come_back_as_they_are() -> None:
    (creation,) = request_of(create_bindings([BINDING])).creations
    made = (creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type)
    assert made == (2, 4, 4, 3) and (creation.resource_name, creation.principal) == ("orders", "User:alice")
    (deletion,) = request_of(delete_bindings([BINDING])).filters
    assert AclFilter.of_codes(
        resource_type=deletion.resource_type_filter,
        pattern_type=deletion.pattern_type_filter,
        name=deletion.resource_name_filter,
        principal=deletion.principal_filter,
        host=deletion.host_filter,
        operation=deletion.operation,
        permission=deletion.permission_type,
    ).matches(BINDING)
    acl = AclDescription(principal="User:alice", host="*", operation=4, permission_type=3)
    resource = DescribeAclsResource(resource_type=2, resource_name="orders", pattern_type=4, acls=[acl])
    assert list_bindings(AclFilter()).read(DescribeAclsResponse(resources=[resource])) == [BINDING]
    match = DeleteAclsMatchingAcl(
        resource_type=2,
        resource_name="orders",
        pattern_type=4,
        principal="User:alice",
        host="*",
        operation=4,
        permission_type=3,
    )
    response = DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(matching_acls=[match])])
    assert delete_bindings([BINDING]).read(response) == [BINDING]


def test_a_binding_that_is_newer_than_this_is_not_left_out() -> None:
    acl = AclDescription(principal="User:alice", host="*", operation=99, permission_type=2)
    resource = DescribeAclsResource(resource_type=2, resource_name="orders", pattern_type=3, acls=[acl])
    with pytest.raises(BrokerRefused, match="A binding that the broker has"):
        list_bindings(AclFilter()).read(DescribeAclsResponse(resources=[resource]))


def test_quotas_go_there_and_come_back_as_they_are() -> None:
    (entry,) = request_of(alter_quotas(TWO_LEVELS, {"producer_byte_rate": 5.0, "consumer_byte_rate": None})).entries
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", "alice"), ("client-id", None)]
    assert [(op.key, op.value, op.remove) for op in entry.ops] == [
        ("producer_byte_rate", 5.0, False),
        ("consumer_byte_rate", 0.0, True),
    ]
    question = describe_quotas(TWO_LEVELS)
    asked = [(each.entity_type, each.match_type, each.match) for each in request_of(question).components]
    assert asked == [("user", 0, "alice"), ("client-id", 1, None)] and request_of(question).strict
    parts = [EntityData(entity_type="user", entity_name="alice"), EntityData(entity_type="client-id")]
    answer = EntryData(entity=parts, values=[ValueData(key="newer_rate", value=2.5)])
    assert question.read(DescribeClientQuotasResponse(entries=[answer])) == [(TWO_LEVELS, {"newer_rate": 2.5})]
    assert request_of(describe_quotas()).components == () and not request_of(describe_quotas()).strict
    strange = EntryData(entity=[EntityData(entity_type="tenant", entity_name="x")], values=[])
    with pytest.raises(BrokerRefused, match="An entity that the broker has"):
        question.read(DescribeClientQuotasResponse(entries=[strange]))


NO: Any = {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "error_message": "no"}


@pytest.mark.parametrize(
    ("question", "response"),
    [
        (describe_users(), DescribeUserScramCredentialsResponse(**NO)),
        (describe_users(), DescribeUserScramCredentialsResponse(results=[DescribeUserScramCredentialsResult(**NO)])),
        (
            remove_password("a", "SCRAM-SHA-512"),
            AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(**NO)]),
        ),
        (list_bindings(AclFilter()), DescribeAclsResponse(**NO)),
        (create_bindings([BINDING]), CreateAclsResponse(results=[AclCreationResult(), AclCreationResult(**NO)])),
        (delete_bindings([BINDING]), DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(**NO)])),
        (
            delete_bindings([BINDING]),
            DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(matching_acls=[DeleteAclsMatchingAcl(**NO)])]),
        ),
        (authorizer_settings(1), DescribeConfigsResponse(results=[DescribeConfigsResult(**NO)])),
        (describe_quotas(), DescribeClientQuotasResponse(**NO)),
        (alter_quotas(TWO_LEVELS, {}), AlterClientQuotasResponse(entries=[ResponseEntryData(**NO)])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refusal_is_raised_from_wherever_it_stands(question: Question[Any], response: Any) -> None:
    with pytest.raises(BrokerRefused, match="no \\(CLUSTER_AUTHORIZATION_FAILED\\)"):
        question.read(response)
