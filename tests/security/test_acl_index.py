from collections.abc import Sequence
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.security.access_codes import SUPPORTED_OPERATIONS, Operation, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.acl_index import AclIndex
from headwater.security.acl_verdict import DecidingRule
from headwater.security.hosts import host_of
from headwater.security.principal import Principal
from tests.security.acl_bindings import (
    ALICE,
    BOB,
    GUARDED,
    HERE,
    NODE,
    ROOT,
    THERE,
    Question,
    binding,
    binding_lists,
    decides,
    index_of,
    is_allowed,
    question_lists,
    some_bindings,
)
from tests.support.effort import amount

T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID


def allows(
    index: AclIndex,
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    principal: Principal = ALICE,
    host: str = HERE,
    on: ResourceType = T,
) -> bool:
    question = Question(principal=principal, host=host, operation=operation, resource_type=on, name=name)
    return question.ask(index).is_allowed


def allowed(*bindings: AclBinding) -> set[Operation]:
    """What alice may do with the topic orders."""
    index = index_of(*bindings)
    return {each for each in Operation if each > Operation.ALL and allows(index, each)}


# One oddity after the other


def test_a_super_user_may_do_what_is_denied() -> None:
    index = index_of(binding("User:*", Operation.ALL, "*", deny=True))
    assert Question(principal=ROOT).ask(index).rule is DecidingRule.SUPER_USER
    assert not allows(index, principal=BOB)


def test_denying_wins_over_allowing_however_narrow() -> None:
    assert not allows(index_of(binding(), binding(name="*", deny=True)))
    assert not allows(index_of(binding(host=HERE), binding("User:*", Operation.ALL, "o", prefixed=True, deny=True)))


def test_denying_implies_nothing() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        index = index_of(binding(operation=Operation.ALL), binding(operation=operation, deny=True))
        assert allows(index, Operation.DESCRIBE)
        assert not allows(index, operation)


def test_denying_to_alter_settings_does_not_deny_to_describe_them() -> None:
    index = index_of(binding(operation=Operation.ALL), binding(operation=Operation.ALTER_CONFIGS, deny=True))
    assert allows(index, Operation.DESCRIBE_CONFIGS)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_allowing_to_read_write_delete_or_alter_allows_to_describe(operation: Operation) -> None:
    assert allowed(binding(operation=operation)) == {operation, Operation.DESCRIBE}


def test_allowing_to_alter_settings_allows_to_describe_them() -> None:
    assert allowed(binding(operation=Operation.ALTER_CONFIGS)) == {Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS}


@pytest.mark.parametrize(
    "operation",
    [
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.IDEMPOTENT_WRITE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.TWO_PHASE_COMMIT,
    ],
)
def test_allowing_anything_else_implies_nothing(operation: Operation) -> None:
    assert allowed(binding(operation=operation)) == {operation}


def test_all_is_every_operation() -> None:
    assert allowed(binding(operation=Operation.ALL)) == {each for each in Operation if each > Operation.ALL}


def test_a_prefix_star_is_a_prefix_and_not_every_resource() -> None:
    index = index_of(binding(name="*", prefixed=True))
    assert not allows(index, name="orders")
    assert allows(index, name="*orders")
    assert allows(index, name="*")


def test_the_literal_star_is_every_resource_also_one_that_begins_with_a_star() -> None:
    index = index_of(binding(name="*", on=G), binding(name="*", on=G, operation=Operation.DELETE, deny=True))
    for name in ("orders", "*", "*orders", "__internal"):
        assert allows(index, name=name, on=G)
        assert not allows(index, Operation.DELETE, name, on=G)


def test_the_star_covers_internal_topics() -> None:
    assert allows(index_of(binding(name="*")), name="__consumer_offsets")
    assert allows(index_of(binding(name="__", prefixed=True)), name="__consumer_offsets")


def test_only_user_star_means_every_user() -> None:
    assert allows(index_of(binding("User:*")))
    for principal in ("User:a*", "User:ali", "Group:*", "*:*", "User:Alice", "user:alice"):
        assert not allows(index_of(binding(principal)))


def test_every_user_is_every_principal_but_nodes() -> None:
    index = index_of(binding("User:*"))
    for principal in ("User:ANONYMOUS", "Group:g", "User:*", "User:"):
        assert allows(index, principal=Principal.parse(principal))
    assert not allows(index, principal=NODE)


def test_nodes_match_no_binding_that_denies_either() -> None:
    index = index_of(binding("User:*", Operation.ALL, "*", deny=True))
    assert Question(principal=NODE).ask(index).rule is DecidingRule.NO_BINDING_MATCHES


def test_the_name_of_a_principal_may_have_colons() -> None:
    index = index_of(binding("User:CN=a:b,O=c"))
    assert allows(index, principal=Principal.user("CN=a:b,O=c"))
    assert not allows(index, principal=Principal("User:CN=a", "b,O=c"))


def test_names_are_compared_as_they_are() -> None:
    index = index_of(binding(name="Orders"), binding(name="caf\u00e9", prefixed=True))
    assert not allows(index, name="orders")
    assert not allows(index, name="cafe\u0301")
    assert not allows(index, name="orders.")
    assert allows(index, name="caf\u00e9.eu")


def test_a_literal_is_no_prefix() -> None:
    assert not allows(index_of(binding(name="ord")))
    assert not allows(index_of(binding(name="orders.eu", prefixed=True)))


def test_types_are_apart() -> None:
    index = index_of(binding(name="*"))
    assert not any(allows(index, on=each) for each in (G, X, ResourceType.USER, ResourceType.ANY))


def test_a_binding_for_a_host_is_for_that_address_in_any_spelling() -> None:
    for one, other in (("::1", "0:0:0:0:0:0:0:1"), (HERE, f"::ffff:{HERE}")):
        for bound, connected in ((one, other), (other, one)):
            assert allows(index_of(binding(host=bound)), host=connected)
            assert not allows(index_of(binding(), binding(host=bound, deny=True)), host=connected)
    assert not allows(index_of(binding(host=THERE)))


def test_there_are_no_networks_and_no_names_of_hosts() -> None:
    for host in ("10.0.0.0/8", "10.0.0.*", "localhost", ""):
        assert not allows(index_of(binding(host=host)))


def test_a_resource_without_bindings_is_for_everyone_where_the_cluster_says_so() -> None:
    verdict = Question().ask(index_of(everyone=True))
    assert verdict.is_allowed
    assert verdict.rule is DecidingRule.NO_BINDING_AT_ALL
    assert Question().ask(index_of()).rule is DecidingRule.NO_BINDING_AT_ALL
    assert not Question().ask(index_of())


@pytest.mark.parametrize(
    "other",
    [
        binding(BOB),
        binding(BOB, Operation.CREATE, "ord", prefixed=True, host=THERE),
        binding(BOB, deny=True),
        binding("Group:g", name="*"),
    ],
)
def test_the_first_binding_of_anyone_locks_everyone_else_out(other: AclBinding) -> None:
    verdict = Question().ask(index_of(other, everyone=True))
    assert not verdict.is_allowed
    assert verdict.rule is DecidingRule.NO_BINDING_MATCHES


def test_bindings_elsewhere_lock_out_from_nothing() -> None:
    elsewhere = (binding(BOB, name="order"), binding(BOB, name="orders.", prefixed=True), binding(BOB, on=G))
    assert allows(index_of(*elsewhere, everyone=True))


def test_a_guarded_topic_is_allowed_by_its_name_alone() -> None:
    wide = (binding(name="*"), binding(name="guard", prefixed=True), binding(name=GUARDED, prefixed=True))
    assert not allows(index_of(*wide), name=GUARDED)
    assert not allows(index_of(everyone=True), name=GUARDED)
    assert allows(index_of(binding(name=GUARDED)), name=GUARDED)
    assert allows(index_of(), name=GUARDED, principal=ROOT)
    assert allows(index_of(binding(name="*", on=G)), name=GUARDED, on=G)
    assert not allows(index_of(binding(name=GUARDED), binding(name="g", prefixed=True, deny=True)), name=GUARDED)


def test_a_super_user_who_acts_for_others_is_allowed_a_guarded_topic_by_its_name_alone() -> None:
    agent = Principal.user("agent")
    wide = binding(str(agent), name="*", operation=Operation.ALL)

    def index(*bindings: AclBinding) -> AclIndex:
        return AclIndex(bindings, version=1, super_users=[agent], guarded_topics=[GUARDED], agents=[agent])

    for unnamed in (index(), index(wide), index().with_changes(added=[wide])):
        assert not allows(unnamed, name=GUARDED, principal=agent)
        assert not unnamed.authorized_operations(agent, host_of("10.0.0.1"), ResourceType.TOPIC, GUARDED)
        assert allows(unnamed, name="orders", principal=agent) and allows(unnamed, name=GUARDED, principal=agent, on=G)
    named = index(binding(str(agent), name=GUARDED))
    assert allows(named, name=GUARDED, principal=agent)


def test_a_verdict_is_true_where_it_allows() -> None:
    index = index_of(binding())
    assert Question().ask(index)
    assert not Question(name="invoices").ask(index)


def test_the_innermost_pattern_decides_and_denials_are_told_first() -> None:
    inner, outer, every = binding(), binding(name="ord", prefixed=True), binding(name="*")
    assert Question().ask(index_of(every, outer, inner)).binding == inner
    assert Question(name="order").ask(index_of(every, outer, inner)).binding == outer
    assert Question(name="x").ask(index_of(every, outer, inner)).binding == every
    denial = binding("User:*", name="*", deny=True)
    assert Question().ask(index_of(every, outer, inner, denial)).binding == denial


def test_a_thousand_prefixes_within_each_other_are_no_stack() -> None:
    nested = [binding(BOB, name="x" * length, prefixed=True) for length in range(1, 1_000)]
    index = index_of(*nested, binding(BOB, Operation.WRITE, "x", prefixed=True, deny=True))
    name = "x" * 1_000
    assert Question(principal=BOB, name=name).ask(index).binding == nested[-1]
    assert not Question(principal=BOB, operation=Operation.WRITE, name=name).ask(index)
    assert not Question(principal=BOB, name="y").ask(index)


@given(st.sets(st.text("ab", min_size=1, max_size=4), max_size=10))
@settings(max_examples=amount(200, 50))
def test_the_longest_prefix_that_fits_decides(prefixes: set[str]) -> None:
    index = index_of(*(binding(name=prefix, prefixed=True) for prefix in prefixes))
    for name in ("a", "b", *("".join(letters) for letters in product("abc", repeat=4))):
        fitting = [prefix for prefix in prefixes if name.startswith(prefix)]
        verdict = Question(name=name).ask(index)
        assert (verdict.binding and verdict.binding.name) == max(fitting, key=len, default=None)
        rule = DecidingRule.NO_BINDING_MATCHES if fitting else DecidingRule.NO_BINDING_AT_ALL
        assert Question(name=name, principal=BOB).ask(index).rule is rule


# Bits


def test_the_bits_of_a_super_user_are_what_a_type_supports() -> None:
    bits = {each: index_of().authorized_operations(ROOT, host_of(HERE), each, "n") for each in ResourceType}
    assert {each: bits[each] for each in (T, G, C, X)} == {T: 3576, G: 3400, C: 8096, X: 1 << 4 | 1 << 8 | 1 << 15}
    assert bits[ResourceType.USER] == 0


@settings(max_examples=amount(200, 50))
@given(binding_lists, question_lists, st.booleans())
def test_the_bits_are_what_each_question_alone_is_answered(
    bindings: Sequence[AclBinding], questions: Sequence[Question], everyone: bool
) -> None:
    index = index_of(*bindings, everyone=everyone)
    for each in questions:
        host = host_of(each.host)
        operations = [
            operation
            for operation in SUPPORTED_OPERATIONS[each.resource_type]
            if index.authorize(each.principal, host, operation, each.resource_type, each.name)
        ]
        bits = index.authorized_operations(each.principal, host, each.resource_type, each.name)
        assert bits == sum(1 << operation for operation in operations)


# Against the rules over all bindings


@given(binding_lists, question_lists, st.booleans())
def test_an_index_says_what_all_bindings_say(
    bindings: Sequence[AclBinding], questions: Sequence[Question], everyone: bool
) -> None:
    index = index_of(*bindings, everyone=everyone)
    for each in questions:
        verdict = each.ask(index)
        assert verdict.is_allowed == is_allowed(bindings, each, everyone)
        if verdict.binding is not None:
            assert verdict.binding in bindings
            assert decides(verdict.binding, each)


@settings(max_examples=amount(200, 50))
@given(binding_lists, question_lists, st.randoms(use_true_random=False))
def test_the_order_of_bindings_changes_nothing(
    bindings: Sequence[AclBinding], questions: Sequence[Question], random: Random
) -> None:
    shuffled = [*bindings, *bindings]
    random.shuffle(shuffled)
    one, other = index_of(*bindings), index_of(*shuffled)
    assert [each.ask(one) for each in questions] == [each.ask(other) for each in questions]


@settings(max_examples=amount(200, 50))
@given(binding_lists, some_bindings, question_lists, st.booleans())
def test_one_more_denial_allows_nothing(
    bindings: Sequence[AclBinding], more: AclBinding, questions: Sequence[Question], everyone: bool
) -> None:
    denial = binding(more.principal, more.operation, more.name, deny=True, host=more.host, on=more.resource_type)
    before, after = index_of(*bindings, everyone=everyone), index_of(*bindings, denial, everyone=everyone)
    for each in questions:
        assert each.ask(before).is_allowed or not each.ask(after).is_allowed
        assert each.ask_by_type(before).is_allowed or not each.ask_by_type(after).is_allowed


@settings(max_examples=amount(200, 50))
@given(binding_lists, binding_lists, question_lists, st.booleans())
def test_a_binding_that_was_deleted_was_never_there(
    kept: Sequence[AclBinding], deleted: Sequence[AclBinding], questions: Sequence[Question], everyone: bool
) -> None:
    never = index_of(*kept, everyone=everyone)
    gone = set(deleted) - set(kept)
    changed = index_of(*kept[::2], everyone=everyone).with_changes(added=deleted).with_changes(kept, gone)
    assert changed.bindings == never.bindings
    assert changed.version == never.version + 2
    assert [each.ask(changed) for each in questions] == [each.ask(never) for each in questions]
    assert [each.ask_by_type(changed) for each in questions] == [each.ask_by_type(never) for each in questions]
