"""Bindings for tests, and the rules in the plainest words: all bindings are looked at, one after the other."""

import ipaddress
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.acl_index import AclIndex
from headwater.security.acl_verdict import AclVerdict
from headwater.security.hosts import host_of
from headwater.security.principal import Principal

ALICE, BOB, ROOT, NODE = (Principal.parse(text) for text in ("User:alice", "User:bob", "User:root", "Node:1"))
HERE, THERE = "10.0.0.7", "10.0.0.8"
GUARDED = "guarded"


def binding(
    principal: Principal | str = ALICE,
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    prefixed: bool = False,
    deny: bool = False,
    host: str = "*",
    on: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(
        resource_type=on,
        pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        name=name,
        principal=str(principal),
        host=host,
        operation=operation,
        permission=Permission.DENY if deny else Permission.ALLOW,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    principal: Principal = ALICE
    host: str = HERE
    operation: Operation = Operation.READ
    resource_type: ResourceType = ResourceType.TOPIC
    name: str = "orders"

    def ask(self, index: AclIndex) -> AclVerdict:
        return index.authorize(self.principal, host_of(self.host), self.operation, self.resource_type, self.name)

    def ask_by_type(self, index: AclIndex) -> AclVerdict:
        return index.authorize_by_type(self.principal, host_of(self.host), self.operation, self.resource_type)


def index_of(*bindings: AclBinding, everyone: bool = False) -> AclIndex:
    return AclIndex(
        bindings, version=1, super_users=[ROOT], allow_everyone_if_no_acl=everyone, guarded_topics=[GUARDED]
    )


# The rules, over all bindings


def is_allowed(bindings: Collection[AclBinding], question: Question, everyone: bool = False) -> bool:
    if question.principal == ROOT:
        return True
    if any(decides(each, question) for each in bindings if each.permission is Permission.DENY):
        return False
    allowing = [each for each in bindings if each.permission is Permission.ALLOW and decides(each, question)]
    is_guarded = question.resource_type is ResourceType.TOPIC and question.name == GUARDED
    if is_guarded:
        return any(each.pattern_type is PatternType.LITERAL and each.name == GUARDED for each in allowing)
    return bool(allowing) or (everyone and not applicable(bindings, question.resource_type, question.name))


def decides(each: AclBinding, question: Question) -> bool:
    operations = {each.operation}
    if each.permission is Permission.ALLOW:
        if each.operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
            operations.add(Operation.DESCRIBE)
        if each.operation is Operation.ALTER_CONFIGS:
            operations.add(Operation.DESCRIBE_CONFIGS)
    return (
        bool(applicable([each], question.resource_type, question.name))
        and question.principal.kind != "Node"
        and is_for(each, question)
        and (each.operation is Operation.ALL or question.operation in operations)
    )


def applicable(bindings: Iterable[AclBinding], resource_type: ResourceType, name: str) -> list[AclBinding]:
    return [
        each
        for each in bindings
        if each.resource_type is resource_type
        and (name.startswith(each.name) if each.pattern_type is PatternType.PREFIXED else each.name in (name, "*"))
    ]


def is_for(each: AclBinding, question: Question) -> bool:
    """The principal and the host."""
    is_host = each.host == "*" or place_of(each.host) == place_of(question.host)
    return is_host and each.principal in (str(question.principal), "User:*")


def place_of(host: str) -> object:
    """IPv4 addresses where IPv6 maps them."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return int(address) if address.version == 6 else int(address) + 0xFFFF_0000_0000


# Bindings and questions that meet often

TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
NAMES = ("a", "ab", "abc", "abd", "b", "*", "*a", "hardcode", "h", GUARDED, "guard")
HOSTS = (HERE, f"::ffff:{HERE}", "::1", "0:0:0:0:0:0:0:1", "nowhere")
OPERATIONS = tuple(each for each in Operation if each > Operation.ANY)
_COMMON = (Operation.READ, Operation.WRITE, Operation.ALL)

some_bindings = st.builds(
    binding,
    st.sampled_from([ALICE, ALICE, ALICE, ALICE, "User:*", "User:*", BOB, "User:a*", "Group:g"]),
    st.sampled_from([*OPERATIONS, *_COMMON * 10]),
    st.sampled_from([*NAMES, *NAMES[:3], "*"]),
    prefixed=st.booleans(),
    deny=st.sampled_from([True, False, False, False]),
    host=st.sampled_from(["*"] * 8 + [*HOSTS]),
    on=st.sampled_from([*TYPES, *[ResourceType.TOPIC] * 4]),
)
binding_lists: st.SearchStrategy[Sequence[AclBinding]] = st.lists(some_bindings, min_size=6, max_size=16)
questions = st.builds(
    Question,
    principal=st.sampled_from([ALICE, ALICE, BOB, ROOT, NODE, Principal("Group", "g"), Principal.user("a*")]),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from(OPERATIONS),
    resource_type=st.sampled_from(TYPES),
    name=st.sampled_from([*NAMES, "abcd", "zz"]),
)
_ALICES = [
    Question(operation=operation, name=name)
    for operation in (Operation.READ, Operation.DESCRIBE)
    for name in (*NAMES, "abcd", "zz")
]
question_lists = st.lists(questions, max_size=10).map(lambda more: [*_ALICES, *more])
"""All that alice may be asked about reading topics, and some more: two bindings seldom meet at one random question."""
