"""What is allowed on at least one resource of a type: as Kafka's own tests have it, and soundly."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.acl_verdict import DecidingRule
from tests.security.acl_bindings import (
    BOB,
    HERE,
    NODE,
    ROOT,
    THERE,
    Question,
    binding,
    binding_lists,
    index_of,
    is_allowed,
    is_for,
    question_lists,
)

READ, WRITE, ALL = Operation.READ, Operation.WRITE, Operation.ALL
T, G = ResourceType.TOPIC, ResourceType.GROUP


def may(bindings: Sequence[AclBinding], operation: Operation = READ, on: ResourceType = T, **fields: str) -> bool:
    question = Question(operation=operation, resource_type=on, host=fields.get("host", HERE))
    return question.ask_by_type(index_of(*bindings)).is_allowed


# As Kafka


def test_one_resource_is_enough_as_long_as_it_is_not_denied() -> None:
    allow, deny = binding(host=HERE), binding(host=HERE, deny=True)
    assert not may([])
    assert may([allow])
    assert not may([allow, deny])
    assert not may([deny])


def test_denials_of_others_elsewhere_and_of_other_types_do_not_matter() -> None:
    bindings = [
        binding(host=HERE, deny=True),
        binding(BOB, host=HERE, deny=True),
        binding(operation=WRITE, host=THERE, deny=True),
        binding(BOB, host=THERE, deny=True),
        binding(host=THERE),
        binding(name="other", host=THERE, deny=True),
        binding(name="o", prefixed=True, host=THERE, deny=True, on=G),
    ]
    assert may(bindings, host=THERE)
    assert not may(bindings)
    assert not may(bindings, on=G)
    assert not may(bindings, on=ResourceType.TRANSACTIONAL_ID)
    assert not may(bindings, on=ResourceType.CLUSTER)


def test_a_prefix_is_denied_by_what_it_begins_with_and_not_by_what_is_longer() -> None:
    steps = [("abcde", False, True), ("abcd", True, False), ("abc", False, True), ("a", True, False)]
    bindings: list[AclBinding] = []
    for name, deny, expected in [*steps, ("ab", False, False)]:
        bindings.append(binding(name=name, prefixed=True, deny=deny, on=G))
        assert may(bindings, on=G) == expected


def test_a_prefix_is_denied_by_itself_and_a_literal_by_both() -> None:
    assert not may([binding(name="ab", prefixed=True), binding(name="ab", prefixed=True, deny=True)])
    assert may([binding(name="ab", prefixed=True), binding(name="ab", deny=True)])
    assert not may([binding(name="ab"), binding(name="ab", deny=True)])
    assert not may([binding(name="ab"), binding(name="a", prefixed=True, deny=True)])


def test_denying_every_resource_leaves_none() -> None:
    bindings = [binding(operation=WRITE, name="hello", prefixed=True, on=G)]
    assert may(bindings, WRITE, G)
    bindings.append(binding(operation=WRITE, name="*", deny=True, on=G))
    assert not may(bindings, WRITE, G)
    bindings.append(binding(operation=WRITE, name="*", on=G))
    assert not may(bindings, WRITE, G)
    bindings.append(binding(operation=WRITE, name="aloha", on=G))
    assert not may(bindings, WRITE, G)


def test_all_allows_what_is_not_denied_and_denies_everything() -> None:
    bindings = [binding(operation=ALL), binding(operation=WRITE, deny=True)]
    assert may(bindings)
    assert not may(bindings, WRITE)
    assert not may([*bindings, binding(operation=ALL, deny=True)])


def test_what_is_denied_from_everywhere_is_denied_from_each_address() -> None:
    bindings = [binding(name="one", host=HERE)]
    assert may(bindings)
    bindings.append(binding(name="one", deny=True))
    assert not may(bindings)
    bindings.append(binding(name="two", host=HERE, deny=True))
    assert not may(bindings, host=THERE)
    bindings.append(binding(name="two"))
    assert may(bindings, host=THERE)
    assert not may(bindings)
    bindings.append(binding(name="two", deny=True))
    assert not may(bindings, host=THERE)


def test_what_is_denied_to_every_user_is_denied_to_each() -> None:
    bindings = [binding(name="one"), binding("User:*", name="one", deny=True)]
    assert not may(bindings)
    bindings.append(binding("User:*", name="two"))
    assert may(bindings)
    assert not may([*bindings, binding(name="two", deny=True)])
    assert not may([*bindings, binding("User:*", name="two", deny=True)])


def test_a_super_user_needs_nothing() -> None:
    index = index_of(*(binding("User:*", ALL, "*", deny=True, on=each) for each in (T, G)))
    for each in (T, G, ResourceType.CLUSTER):
        assert Question(principal=ROOT, resource_type=each).ask_by_type(index).rule is DecidingRule.SUPER_USER


# Of our own


def test_to_describe_does_not_follow_from_what_implies_it() -> None:
    assert not may([binding()], Operation.DESCRIBE)
    assert may([binding(name="*")], Operation.DESCRIBE)


def test_a_node_may_not() -> None:
    assert not Question(principal=NODE).ask_by_type(index_of(binding("User:*", ALL, "*")))


def test_without_any_binding_the_cluster_says() -> None:
    assert Question().ask_by_type(index_of(everyone=True))
    assert not Question().ask_by_type(index_of())


def test_the_binding_that_decided_is_told() -> None:
    prefix, every = binding(name="ab", prefixed=True), binding(name="*", deny=True)
    assert Question().ask_by_type(index_of(prefix)).binding == prefix
    assert Question().ask_by_type(index_of(prefix, every)).binding == every


@given(binding_lists, question_lists, st.booleans())
def test_yes_means_that_a_name_exists(
    bindings: Sequence[AclBinding], questions: Sequence[Question], everyone: bool
) -> None:
    index = index_of(*bindings, everyone=everyone)
    names = {"hardcode", "\u2603", *(each.name for each in bindings), *(f"{each.name}\u2603" for each in bindings)}
    for each in {replace(each, name="") for each in questions}:
        if each.ask_by_type(index):
            assert any(is_allowed(bindings, replace(each, name=name), everyone) for name in names)


@given(binding_lists, question_lists, st.booleans())
def test_the_answer_is_that_of_the_rule_over_all_bindings(
    bindings: Sequence[AclBinding], questions: Sequence[Question], everyone: bool
) -> None:
    index = index_of(*bindings, everyone=everyone)
    for each in {replace(each, name="") for each in questions}:
        assert each.ask_by_type(index).is_allowed == is_allowed_by_type(bindings, each, everyone)


def is_allowed_by_type(bindings: Sequence[AclBinding], question: Question, everyone: bool) -> bool:
    if is_allowed(bindings, replace(question, name="hardcode"), everyone):
        return True
    if question.principal == NODE:
        return False
    patterns = [
        (each.permission, each.pattern_type, each.name)
        for each in bindings
        if each.resource_type is question.resource_type
        and is_for(each, question)
        and each.operation in (question.operation, ALL)
    ]
    denied = {pattern[1:] for pattern in patterns if pattern[0] is Permission.DENY}
    allowed = {pattern[1:] for pattern in patterns if pattern[0] is Permission.ALLOW}
    every = (PatternType.LITERAL, "*")
    if every in denied:
        return False
    return every in allowed or any(
        pattern not in denied
        and not any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
        for pattern in allowed
        for name in [pattern[1]]
    )
