"""`headwater acl`: what its words mean, and what a broker makes of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.cli.acl_grant import Words, bindings_of, filters_of, principal_of, resource_operations
from headwater.cli.output import CommandFailed
from headwater.security.access_codes import SUPPORTED_OPERATIONS, Operation, PatternType, Permission, ResourceType
from headwater.security.acl_words import sentence
from tests.support.secured import Secured, secured_broker


def words(who: str, operations: str, resource_type: str, name: str | None = None, **more: Any) -> Words:
    return Words(who=who, operations=operations, resource_type=resource_type, name=name, **more)


def said(*args: Any, **more: Any) -> list[str]:
    return [sentence(each) for each in bindings_of(words(*args, **more), Permission.ALLOW)]


def test_words_mean_bindings() -> None:
    assert said("alice", "write", "topic", "orders") == ["User:alice may write topic 'orders' (from any address)"]
    assert said("alice", "read,write", "topic", "*", host="10.0.0.7") == [
        "User:alice may read all topics (from 10.0.0.7)",
        "User:alice may write all topics (from 10.0.0.7)",
    ]
    assert said("alice", "read", "topic", "orders.", is_prefix=True, group="packers") == [
        "User:alice may read topics that begin with 'orders.' (from any address)",
        "User:alice may read groups that begin with 'packers' (from any address)",
    ]
    assert said("billing", "produce", "topic", "invoices", transactional_id="billing-") == [
        "User:billing may write topic 'invoices' (from any address)",
        "User:billing may write transactional id 'billing-' (from any address)",
    ]
    assert said("w", "work", "topic", "jobs", group="jobs") == [
        "User:w may read topic 'jobs' (from any address)",
        "User:w may read group 'jobs' (from any address)",
    ]
    assert said("*", "ALL", "group", "g") == ["every user may do everything with group 'g' (from any address)"]
    assert said("x", "describe_configs,alter", "Cluster", is_prefix=True) == [
        "User:x may describe the settings of the cluster (from any address)",
        "User:x may alter the cluster (from any address)",
    ]


@pytest.mark.parametrize("resource_type", SUPPORTED_OPERATIONS)
def test_administrators_are_given_what_programs_do_not_need(resource_type: ResourceType) -> None:
    name = None if resource_type is ResourceType.CLUSTER else "n"
    operations = {each.operation for each in resource_operations(words("a", "admin", resource_type.name, name))}
    programs = {Operation.READ, Operation.WRITE, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE}
    assert operations and not operations & programs
    assert operations <= set(SUPPORTED_OPERATIONS[resource_type])


def test_users_are_meant_unless_the_kind_is_given() -> None:
    assert str(principal_of("alice")) == str(principal_of("User:alice")) == "User:alice"
    assert str(principal_of("User:CN=a:b")) == "User:CN=a:b"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (words("a", "write", "table", "x"), "no type of resource. Use one of: topic, group, cluster, transactional-id"),
        (words("a", "write", "topic"), "Which topic?"),
        (words("a", "alter", "cluster", "mine"), "one cluster"),
        (words("a", "wirte", "topic", "x"), "'wirte' is no operation. Use some of these"),
        (words("a", "write", "group", "x"), "write means nothing for a group. Use all, or some of: read, delete"),
        (words("a", "produce", "group", "x"), "produce is for topics"),
        (words("a", "work", "topic", "x"), "Name it with --group"),
        (words("a", "write", "topic", "x", group="g"), "--group NAME goes with"),
        (words("a", "read", "topic", "x", transactional_id="t"), "--transactional-id ID goes with"),
        (words("a", "read", "topic", "x", host="db.example.com"), "no IP address"),
        (words("Node:1", "read", "topic", "x"), "is no user"),
        (words(":a", "read", "topic", "x"), "User:alice"),
        (words("", "read", "topic", "x"), "is no user"),
        (words("a", "read", "topic", "x" * 2000), "2000 characters"),
    ],
)
def test_words_that_mean_nothing_are_refused_with_those_that_do(given: Words, told: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        bindings_of(given, Permission.ALLOW)
    assert told in str(refused.value) and refused.value.exit_code == 2


def test_the_same_words_find_what_they_made() -> None:
    given = words("a", "read,write", "topic", "o", is_prefix=True, group="g", host="10.0.0.1")
    made = bindings_of(given, Permission.ALLOW)
    found = list(filters_of(given, Permission.ALLOW))
    assert all(acl_filter.matches(binding) for acl_filter, binding in zip(found, made, strict=True))
    elsewhere = bindings_of(words("a", "read,write", "topic", "o", is_prefix=True, group="g"), Permission.ALLOW)
    assert not any(acl_filter.matches(each) for acl_filter in found for each in elsewhere)
    (every,) = filters_of(words("a", "any", "topic", "o", is_prefix=True), Permission.ALLOW)
    assert [every.matches(each) for each in made] == [True, True, False]
    assert every.operation is Operation.ANY and every.pattern_type is PatternType.PREFIXED and every.host is None


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    trusted = ["User:alice", "User:ANONYMOUS"]
    with secured_broker(
        tmp_path_factory.mktemp("secured"),
        authorization="on",
        super_users=trusted,
        allow_everyone_if_no_acl=True,
        insecure=True,
    ) as broker:
        yield broker


@pytest.fixture
def admin(cli_at: Callable[[str], Any], secured: Secured, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HEADWATER_CLIENT", str(secured.client_file("SASL_PLAINTEXT")))
    return cli_at(secured.addresses["SASL_PLAINTEXT"])


def test_what_is_allowed_is_listed_tested_and_taken_back(admin: Any, name: str) -> None:
    user = f"u-{name}"
    allowed = admin("acl", "allow", user, "write", "topic", name[:-2], "--prefix")
    assert allowed.stdout == f"User:{user} may write topics that begin with '{name[:-2]}' (from any address)\n"
    tested = admin("acl", "test", user, "write", "topic", name)
    assert (tested.exit_code, tested.stdout) == (
        0,
        f"allowed: User:{user} may write topics that begin with '{name[:-2]}' (from any address)\n",
    )
    denied = admin("acl", "test", user, "read,write", "topic", name, "--from", "10.0.0.7")
    assert denied.exit_code == 1
    assert denied.stdout.splitlines()[1] == f"  headwater acl allow {user} read topic {name}"
    assert admin.json("acl", "list", "--on", "topic", name) == []
    (listed,) = admin.json("acl", "list", "--on", "topic", name, "--matching", "--of", user)
    assert listed["principal"] == f"User:{user}" and listed["pattern_type"] == "PREFIXED"
    assert user in admin.ok("acl", "list")
    assert admin("acl", "remove", user, "write", "topic", name[:-2], "--prefix").exit_code == 2  # nobody is asked
    removed = admin("acl", "remove", user, "any", "topic", name[:-2], "--prefix", "--yes")
    assert "may write topics" in removed.stdout and "Removed 1 binding." in removed.stderr
    assert admin.json("acl", "list", "--of", user) == []
    assert "No binding says that" in admin("acl", "remove", user, "write", "topic", name, "--yes").stderr


def test_the_command_that_a_refusal_names_ends_it(admin: Any, name: str) -> None:
    user = f"u-{name}"
    admin.ok("acl", "allow", "other", "read", "topic", name)
    (command,) = admin("acl", "test", user, "read", "topic", name).stdout.splitlines()[1:]
    admin.ok(*command.split()[1:])
    admin.ok("acl", "test", user, "read", "topic", name)


def test_a_denial_wins_and_is_explained_and_taken_back_as_one(admin: Any, name: str) -> None:
    user = f"u-{name}"
    admin.ok("acl", "allow", user, "all", "topic", name)
    admin.ok("acl", "deny", user, "write", "topic", name, "--from", "10.0.0.7")
    admin.ok("acl", "test", user, "write", "topic", name)
    told = admin("acl", "test", user, "write", "topic", name, "--from", "10.0.0.7")
    assert told.exit_code == 1 and f"denied: User:{user} may not write topic '{name}' (from 10.0.0.7)" in told.stdout
    assert "`headwater acl remove --denial`" in told.stdout
    explained = admin.ok("acl", "explain", user, "write", "topic", name, "--from", "10.0.0.7")
    assert explained.startswith("denied: ") and f"  User:{user} may do everything with topic" in explained
    assert admin("acl", "remove", user, "write", "topic", name, "--yes").exit_code == 1
    admin.ok("acl", "remove", user, "write", "topic", name, "--denial", "--yes")
    assert admin.json("acl", "test", user, "write", "topic", name, "--from", "10.0.0.7")[0]["is_allowed"]


def test_super_users_and_open_resources_are_known(admin: Any, name: str) -> None:
    assert "allowed: a super user may do everything" in admin.ok("acl", "test", "alice", "delete", "topic", name)
    free = admin.ok("acl", "test", "bob", "delete", "topic", name)
    assert "the resource has no bindings, and the cluster allows everything on such resources" in free


def test_the_first_binding_on_an_open_resource_is_warned_of(admin: Any, name: str) -> None:
    first = admin("acl", "allow", "bob", "read", "topic", name, "--group", name)
    assert first.exit_code == 0
    assert f"Until now every user may do everything with topic '{name}'" in first.stderr
    assert f"Until now every user may do everything with group '{name}'" in first.stderr
    assert "Until now" not in admin("acl", "allow", "bob", "write", "topic", name).stderr
    prefixed = admin("acl", "allow", "bob", "read", "topic", f"{name}-", "--prefix")
    assert f"topics that begin with '{name}-'" in prefixed.stderr


def test_what_a_verdict_says_is_what_the_broker_does(admin: Any, secured: Secured, name: str) -> None:
    """The broker decides at the same questions, which are asked of it as that user."""
    password = admin.ok("user", "create", name).strip()
    login = ("--client", str(secured.client_file("SASL_PLAINTEXT", sasl_username=name, sasl_password=password)))
    admin.ok("acl", "allow", "alice", "all", "cluster")  # what no binding is about is open to all
    asking = ("acl", "test", name, "describe", "cluster")
    assert admin(*asking).exit_code == 1
    refused = admin("acl", "list", *login)
    assert refused.exit_code == 1 and f"{name} may not do that (CLUSTER_AUTHORIZATION_FAILED)" in refused.stderr
    admin.ok("acl", "allow", name, "describe", "cluster")
    assert admin(*asking).exit_code == 0
    admin.ok("acl", "list", *login)


def test_where_bindings_have_no_meaning_that_is_said(cli: Any) -> None:
    told = cli("acl", "list")
    assert told.exit_code == 1 and 'authorization = "on"' in told.stderr
    assert cli("acl", "list", "--matching").exit_code == 2
