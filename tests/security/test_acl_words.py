import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.access_codes import Operation, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.acl_words import allowing_command, explanation, operation_word, sentence, type_word
from headwater.security.principal import ANONYMOUS, Principal
from tests.security.acl_bindings import ALICE, NODE, ROOT, Question, binding, index_of, some_bindings

T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (
            binding(ALICE, Operation.WRITE, "ord", prefixed=True),
            "User:alice may write topics that begin with 'ord' (from any address)",
        ),
        (
            binding("User:*", Operation.READ, "orders", host="10.0.0.7"),
            "every user may read topic 'orders' (from 10.0.0.7)",
        ),
        (
            binding("User:mallory", Operation.ALL, "*", deny=True),
            "User:mallory may not do everything with all topics (from any address)",
        ),
        (
            binding(ALICE, Operation.ALTER_CONFIGS, "packers", on=G),
            "User:alice may alter the settings of group 'packers' (from any address)",
        ),
        (
            binding(ALICE, Operation.IDEMPOTENT_WRITE, "kafka-cluster", on=C),
            "User:alice may write idempotently to the cluster (from any address)",
        ),
        (
            binding(ALICE, Operation.WRITE, "*", prefixed=True, on=X),
            "User:alice may write transactional ids that begin with '*' (from any address)",
        ),
        (
            binding(ALICE, Operation.READ, "orders", host="10.0.0.0/8"),
            "User:alice may read topic 'orders' (from '10.0.0.0/8', which is no address: it matches nothing)",
        ),
    ],
)
def test_a_binding_in_a_sentence(each: AclBinding, expected: str) -> None:
    assert sentence(each) == expected


def test_a_verdict_says_why() -> None:
    grant = binding(ALICE, Operation.WRITE, "ord", prefixed=True)
    index = index_of(grant)
    assert explanation(Question(operation=Operation.WRITE).ask(index)) == f"allowed: {sentence(grant)}"
    assert explanation(Question(principal=ROOT).ask(index)) == "allowed: a super user may do everything"
    assert explanation(Question().ask(index)) == "denied: of the resource's bindings, none allows it"
    assert explanation(Question(name="x").ask(index)) == "denied: the resource has no bindings"
    assert explanation(Question(name="x").ask(index_of(everyone=True))).startswith("allowed: the resource has no")
    denial = binding("User:*", Operation.ALL, "*", deny=True)
    assert explanation(Question().ask(index_of(denial))) == f"denied: {sentence(denial)}"


@pytest.mark.parametrize(
    ("principal", "operation", "on", "name", "expected"),
    [
        (ALICE, Operation.WRITE, T, "orders", "headwater acl allow alice write topic orders"),
        (ALICE, Operation.DESCRIBE_CONFIGS, G, "a b", "headwater acl allow alice describe-configs group 'a b'"),
        (ALICE, Operation.ALTER, C, "kafka-cluster", "headwater acl allow alice alter cluster"),
        (ALICE, Operation.WRITE, X, "$(id)", "headwater acl allow alice write transactional-id '$(id)'"),
        (ANONYMOUS, Operation.READ, T, "t", "headwater acl allow ANONYMOUS read topic t"),
        (Principal("Group", "g"), Operation.READ, T, "t", "headwater acl allow Group:g read topic t"),
        (Principal.user("Group:g"), Operation.READ, T, "t", "headwater acl allow User:Group:g read topic t"),
        (ALICE, Operation.READ, T, "-t", "headwater acl allow -- alice read topic -t"),
        (Principal.user("--host=x"), Operation.READ, T, "t", "headwater acl allow -- --host=x read topic t"),
    ],
)
def test_the_command_that_would_allow_it(
    principal: Principal, operation: Operation, on: ResourceType, name: str, expected: str
) -> None:
    assert allowing_command(principal, operation, on, name) == expected


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        (ALICE, "*"),
        (Principal.user("*"), "orders"),
        (ALICE, "orders\nrm"),
        (ALICE, "\x1b[2Korders"),
        (ALICE, "orders\u202etxt"),
        (ALICE, ""),
        (Principal.user(""), "orders"),
        (NODE, "orders"),
    ],
)
def test_there_is_no_command_that_would_say_more_than_it_shows(principal: Principal, name: str) -> None:
    assert allowing_command(principal, Operation.READ, T, name) is None


@given(some_bindings, st.text(max_size=20), st.text(max_size=20), st.text(min_size=1, max_size=20))
def test_names_of_clients_put_nothing_on_a_terminal(each: AclBinding, user: str, host: str, name: str) -> None:
    hostile = binding(f"User:{user}", each.operation, name, host=host, on=each.resource_type)
    assert sentence(hostile).isprintable()
    command = allowing_command(Principal.user(user), each.operation, each.resource_type, name)
    if command is not None:
        assert command.isprintable()
        assert shlex.split(command)[-1] == name


def test_a_zone_puts_nothing_on_a_terminal() -> None:
    assert sentence(binding(host="fe80::1%\x1b[2J")).isprintable()


def test_every_operation_and_type_has_a_word_and_a_sentence() -> None:
    for on in list(ResourceType)[2:]:
        for operation in list(Operation)[2:]:
            assert sentence(binding(ALICE, operation, "kafka-cluster", on=on))
            assert f"{operation_word(operation)} {type_word(on)}".replace("-", "").replace(" ", "").isalpha()
