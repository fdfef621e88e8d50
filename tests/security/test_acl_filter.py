from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.acl_filter import AclFilter, InvalidAclFilter
from headwater.security.acl_index import AclIndex
from tests.security.acl_bindings import HOSTS, NAMES, OPERATIONS, TYPES, applicable, binding, binding_lists, index_of

T = ResourceType.TOPIC
BINDINGS = (
    binding(name="orders"),
    binding(name="orders", prefixed=True),
    binding(name="ord", prefixed=True),
    binding(name="orders.eu"),
    binding(name="*"),
    binding(name="*", prefixed=True),
)

filters = st.builds(
    AclFilter,
    resource_type=st.sampled_from([ResourceType.ANY, *TYPES]),
    pattern_type=st.sampled_from([each for each in PatternType if each]),
    name=st.sampled_from([None, None, *NAMES, "abcd", ""]),
    principal=st.sampled_from([None, None, "User:alice", "User:*", "alice"]),
    host=st.sampled_from([None, None, "*", *HOSTS]),
    operation=st.sampled_from([Operation.ANY, Operation.ANY, *OPERATIONS]),
    permission=st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY]),
)


def found(**fields: Any) -> list[AclBinding]:
    wanted = AclFilter(**fields)
    return [each for each in BINDINGS if wanted.matches(each)]


def test_an_empty_filter_finds_all() -> None:
    assert found() == list(BINDINGS)


def test_a_name_alone_is_equal_text_of_either_pattern() -> None:
    assert found(name="orders") == [binding(name="orders"), binding(name="orders", prefixed=True)]
    assert found(name="*") == [binding(name="*"), binding(name="*", prefixed=True)]


def test_a_name_with_a_pattern_is_that_pattern() -> None:
    assert found(name="orders", pattern_type=PatternType.PREFIXED) == [binding(name="orders", prefixed=True)]
    assert found(name="*", pattern_type=PatternType.LITERAL) == [binding(name="*")]
    assert found(pattern_type=PatternType.LITERAL) == [binding(name=name) for name in ("orders", "orders.eu", "*")]


def test_match_finds_what_decides_about_a_name() -> None:
    assert found(name="orders", pattern_type=PatternType.MATCH) == [
        binding(name="orders"),
        binding(name="orders", prefixed=True),
        binding(name="ord", prefixed=True),
        binding(name="*"),
    ]


def test_match_without_a_name_finds_all() -> None:
    assert found(pattern_type=PatternType.MATCH) == list(BINDINGS)


def test_hosts_and_principals_are_equal_text() -> None:
    each = binding(host="0:0:0:0:0:0:0:1")
    assert AclFilter(host="0:0:0:0:0:0:0:1").matches(each)
    assert not AclFilter(host="::1").matches(each)
    assert not AclFilter(principal="User:*").matches(each)
    assert not AclFilter(host="*").matches(each)


def test_all_operations_is_an_operation_of_its_own() -> None:
    assert not AclFilter(operation=Operation.ALL).matches(binding(operation=Operation.READ))
    assert not AclFilter(operation=Operation.READ).matches(binding(operation=Operation.ALL))


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
def test_a_number_that_no_version_knows_is_refused(field: str) -> None:
    codes: dict[str, Any] = {"resource_type": 1, "pattern_type": 1, "operation": 1, "permission": 1}
    texts: dict[str, Any] = {"name": None, "principal": None, "host": None}
    assert AclFilter.of_codes(**codes, **texts) == AclFilter()
    for number in (0, -1, 99):
        with pytest.raises(InvalidAclFilter):
            AclFilter.of_codes(**{**codes, field: number}, **texts)


@given(binding_lists, filters)
def test_an_index_finds_what_each_field_admits(bindings: Sequence[AclBinding], wanted: AclFilter) -> None:
    expected = {each for each in bindings if admits(wanted, each)}
    matches = AclIndex(bindings, version=1).matching(wanted)
    assert set(matches) == expected
    assert len(matches) == len(expected)


@given(binding_lists, st.sampled_from(TYPES), st.sampled_from(NAMES))
def test_match_finds_exactly_the_bindings_that_apply(
    bindings: Sequence[AclBinding], on: ResourceType, name: str
) -> None:
    wanted = AclFilter(resource_type=on, name=name, pattern_type=PatternType.MATCH)
    assert [each for each in bindings if wanted.matches(each)] == applicable(bindings, on, name)


@given(binding_lists, filters)
def test_what_is_found_stands_pattern_by_pattern(bindings: Sequence[AclBinding], wanted: AclFilter) -> None:
    found = [(each.resource_type, each.pattern_type, each.name) for each in index_of(*bindings).matching(wanted)]
    assert found == sorted(found)


@given(binding_lists)
def test_a_filter_of_all_seven_fields_finds_one_binding(bindings: Sequence[AclBinding]) -> None:
    for each in bindings:
        exact = AclFilter(
            resource_type=each.resource_type,
            pattern_type=each.pattern_type,
            name=each.name,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission=each.permission,
        )
        assert index_of(*bindings).matching(exact) == [each]
        assert index_of(*bindings).matching(replace(exact, name=f"{each.name}x")) == []


def admits(wanted: AclFilter, each: AclBinding) -> bool:
    if wanted.resource_type not in (ResourceType.ANY, each.resource_type):
        return False
    if wanted.operation not in (Operation.ANY, each.operation):
        return False
    if wanted.permission not in (Permission.ANY, each.permission):
        return False
    if wanted.principal is not None and wanted.principal != each.principal:
        return False
    if wanted.host is not None and wanted.host != each.host:
        return False
    if wanted.pattern_type is PatternType.MATCH:
        return wanted.name is None or each in applicable([each], each.resource_type, wanted.name)
    if wanted.pattern_type not in (PatternType.ANY, each.pattern_type):
        return False
    return wanted.name is None or wanted.name == each.name
