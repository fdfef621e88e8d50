import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import (
    MAX_HOST_CHARS,
    MAX_NAME_CHARS,
    MAX_PRINCIPAL_CHARS,
    AclBinding,
    CorruptAclBinding,
    InvalidAclBinding,
)
from tests.security.acl_bindings import binding, some_bindings

VALID = binding("User:alice", Operation.WRITE, "ord", prefixed=True)
TEXTS = st.text(min_size=1, max_size=40)


# What may be created


@pytest.mark.parametrize("code", [ResourceType.UNKNOWN, ResourceType.ANY])
def test_a_binding_names_one_type_of_resource(code: ResourceType) -> None:
    with pytest.raises(InvalidAclBinding, match="one type of resource"):
        replace(VALID, resource_type=code)


@pytest.mark.parametrize("code", [PatternType.UNKNOWN, PatternType.ANY, PatternType.MATCH])
def test_a_pattern_is_literal_or_prefixed(code: PatternType) -> None:
    with pytest.raises(InvalidAclBinding, match="literal or prefixed"):
        replace(VALID, pattern_type=code)


@pytest.mark.parametrize("code", [Operation.UNKNOWN, Operation.ANY])
def test_a_binding_names_an_operation_or_all(code: Operation) -> None:
    with pytest.raises(InvalidAclBinding, match="one operation"):
        replace(VALID, operation=code)


@pytest.mark.parametrize("code", [Permission.UNKNOWN, Permission.ANY])
def test_a_binding_allows_or_denies(code: Permission) -> None:
    with pytest.raises(InvalidAclBinding, match="allows or denies"):
        replace(VALID, permission=code)


def test_the_name_of_a_resource_is_not_empty() -> None:
    with pytest.raises(InvalidAclBinding, match="empty"):
        binding(name="")


@pytest.mark.parametrize("principal", ["", "alice", ":alice"])
def test_a_principal_has_a_kind_and_a_colon(principal: str) -> None:
    with pytest.raises(InvalidAclBinding, match="User:alice"):
        binding(principal)


def test_a_node_has_no_binding() -> None:
    with pytest.raises(InvalidAclBinding, match="Nodes"):
        binding("Node:1")


@pytest.mark.parametrize("name", ["*", "cluster", "Kafka-Cluster"])
def test_the_cluster_has_one_name(name: str) -> None:
    with pytest.raises(InvalidAclBinding, match="kafka-cluster"):
        binding(name=name, on=ResourceType.CLUSTER)
    assert binding(name="kafka-cluster", on=ResourceType.CLUSTER)


def test_texts_have_a_length_that_is_told() -> None:
    longest = binding("User:".ljust(MAX_PRINCIPAL_CHARS, "a"), name="n" * MAX_NAME_CHARS, host="h" * MAX_HOST_CHARS)
    for field in ("name", "principal", "host"):
        change: dict[str, Any] = {field: getattr(longest, field) + "x"}
        with pytest.raises(InvalidAclBinding, match=f"{len(change[field])} characters"):
            replace(longest, **change)


@pytest.mark.parametrize("field", ["name", "principal", "host"])
def test_a_text_that_utf_8_cannot_write_is_refused(field: str) -> None:
    change: dict[str, Any] = {field: "User:\ud800"}
    with pytest.raises(InvalidAclBinding, match="Unicode"):
        replace(VALID, **change)


def test_any_operation_goes_with_any_type() -> None:
    for resource_type in list(ResourceType)[2:]:
        for operation in list(Operation)[2:]:
            assert binding(name="kafka-cluster", operation=operation, on=resource_type)


def test_numbers_of_a_request_that_no_version_knows_are_refused_as_unknown() -> None:
    codes: dict[str, Any] = {"resource_type": 2, "pattern_type": 4, "operation": 4, "permission": 3}
    texts: dict[str, Any] = {"name": "ord", "principal": "User:alice", "host": "*"}
    assert AclBinding.of_codes(**codes, **texts) == VALID
    for code in codes:
        for number in (-1, 0, 1, 99, 127):
            with pytest.raises(InvalidAclBinding):
                AclBinding.of_codes(**{**codes, code: number}, **texts)


# In the metadata store


def test_the_form_in_the_metadata_store() -> None:
    assert VALID.to_json() == (
        b'{"resource_type":"TOPIC","pattern_type":"PREFIXED","name":"ord","principal":"User:alice","host":"*",'
        b'"operation":"WRITE","permission":"ALLOW"}'
    )
    assert VALID.id == "ba0e1f3af16fbb54"


@given(some_bindings, TEXTS, TEXTS, TEXTS)
def test_a_binding_comes_back_as_it_was_written(each: AclBinding, name: str, user: str, host: str) -> None:
    written = replace(each, name=name, principal=f"User:{user}", host=host)
    read = AclBinding.from_json(written.to_json())
    assert (read, read.id) == (written, written.id)
    assert written.to_json().isascii()


@given(some_bindings, some_bindings)
def test_equal_bindings_have_equal_ids(one: AclBinding, other: AclBinding) -> None:
    assert (one == other) == (one.id == other.id)
    assert len(one.id) == 16
    assert int(one.id, 16) >= 0


def test_what_moves_from_one_text_into_the_next_changes_the_id() -> None:
    assert binding("User:a", name="bc").id != binding("User:ab", name="c").id
    assert binding("User:a", name='x","User:a').id != binding("User:a", name="x").id


def test_fields_of_a_later_version_are_passed_over() -> None:
    later = json.dumps({**json.loads(VALID.to_json()), "until_ms": 5, "tags": ["x"]}).encode()
    assert AclBinding.from_json(later) == VALID


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": "TOPICS"},
        {"resource_type": "topic"},
        {"resource_type": "ANY"},
        {"resource_type": 2},
        {"resource_type": ["TOPIC"]},
        {"pattern_type": "MATCH"},
        {"operation": "FLY"},
        {"permission": None},
        {"name": ""},
        {"name": 5},
        {"name": "\ud800"},
        {"name": "x" * (MAX_NAME_CHARS + 1)},
        {"principal": "alice"},
        {"principal": "Node:1"},
        {"principal": {}},
        {"host": None},
    ],
)
def test_a_damaged_field_is_not_guessed(change: dict[str, object]) -> None:
    with pytest.raises(CorruptAclBinding):
        AclBinding.from_json(json.dumps({**json.loads(VALID.to_json()), **change}).encode())


@pytest.mark.parametrize("field", json.loads(VALID.to_json()))
def test_a_missing_field_is_not_guessed(field: str) -> None:
    plain = json.loads(VALID.to_json())
    del plain[field]
    with pytest.raises(CorruptAclBinding):
        AclBinding.from_json(json.dumps(plain).encode())


@pytest.mark.parametrize(
    "data",
    [
        *[b"", b"null", b"[]", b"{}", b"5", b'"TOPIC"', b"\xff", b"[" * 100_000, b"9" * 10_000],
        *[VALID.to_json()[:-1], VALID.to_json() * 2, VALID.to_json().decode().encode("utf-16")],
    ],
)
def test_bytes_that_are_no_binding_are_told_as_such(data: bytes) -> None:
    with pytest.raises(CorruptAclBinding):
        AclBinding.from_json(data)


@given(st.integers(0, len(VALID.to_json()) - 1), st.integers(0, 255))
def test_a_changed_byte_makes_another_binding_or_none(at: int, byte: int) -> None:
    data = bytearray(VALID.to_json())
    data[at] = byte
    try:
        read = AclBinding.from_json(bytes(data))
    except CorruptAclBinding:
        return
    assert AclBinding.from_json(read.to_json()) == read
