"""Bindings and verdicts in sentences for people, and the command that would allow what was denied.

    User:alice may write topics that begin with 'ord' (from any address)
    headwater acl allow alice write topic orders

Names come from clients. What cannot be printed is escaped; and there is no command for a name that would say more than
it shows: an administrator who copies the command for a topic that a client called `*` would allow all topics.
"""

import shlex
from typing import Final

from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.acl_verdict import AclVerdict, DecidingRule
from headwater.security.hosts import is_address
from headwater.security.principal import EVERY_HOST, EVERY_RESOURCE, EVERY_USER, NODE, USER, Principal

_VERBS: Final = {
    Operation.ALL: "do everything with",
    Operation.CLUSTER_ACTION: "act as a node of",
    Operation.DESCRIBE_CONFIGS: "describe the settings of",
    Operation.ALTER_CONFIGS: "alter the settings of",
    Operation.IDEMPOTENT_WRITE: "write idempotently to",
    Operation.CREATE_TOKENS: "create delegation tokens of",
    Operation.DESCRIBE_TOKENS: "describe delegation tokens of",
    Operation.TWO_PHASE_COMMIT: "prepare transactions of",
}
"""Where the word of the command line is no verb."""
_MAX_SHOWN: Final = 100
_NOUNS: Final = {
    ResourceType.TOPIC: ("topic", "topics"),
    ResourceType.GROUP: ("group", "groups"),
    ResourceType.CLUSTER: ("the cluster", "the cluster"),
    ResourceType.TRANSACTIONAL_ID: ("transactional id", "transactional ids"),
    ResourceType.DELEGATION_TOKEN: ("delegation token", "delegation tokens"),
    ResourceType.USER: ("user", "users"),
}


def sentence(binding: AclBinding) -> str:
    """What a binding says, and for which addresses."""
    may = "may" if binding.permission is Permission.ALLOW else "may not"
    return f"{_who(binding.principal)} {may} {_verb(binding.operation)} {_resources(binding)} ({_from(binding.host)})"


def explanation(verdict: AclVerdict) -> str:
    """Whether it allows, and why."""
    if verdict.binding is not None:
        return f"{_outcome(verdict)}: {sentence(verdict.binding)}"
    reasons = {
        DecidingRule.SUPER_USER: "a super user may do everything",
        DecidingRule.NO_BINDING_MATCHES: "of the resource's bindings, none allows it",
        DecidingRule.NO_BINDING_AT_ALL: (
            "the resource has no bindings, and the cluster allows everything on such resources"
            if verdict.is_allowed
            else "the resource has no bindings"
        ),
    }
    return f"{_outcome(verdict)}: {reasons[verdict.rule]}"


def allowing_command(principal: Principal, operation: Operation, resource_type: ResourceType, name: str) -> str | None:
    """The command that allows the principal the operation on this resource alone, if no binding denies it. None if
    there is no such command, as for a resource called `*`."""
    who = principal.name if principal.kind == USER and ":" not in principal.name else str(principal)
    is_misleading = name == EVERY_RESOURCE or str(principal) == EVERY_USER or principal.kind == NODE
    if is_misleading or not who or not name or not (who + name).isprintable():
        return None
    words = [who, operation_word(operation), type_word(resource_type)]
    if resource_type is not ResourceType.CLUSTER:
        words.append(name)
    end_of_options = ["--"] if any(word.startswith("-") for word in words) else []
    return shlex.join(["headwater", "acl", "allow", *end_of_options, *words])


def refusal(principal: Principal, operation: Operation, resource_type: ResourceType, name: str) -> str:
    """What the client that asked is told."""
    one, _ = _NOUNS[resource_type]
    what = one if resource_type is ResourceType.CLUSTER else f"{one} {name[:_MAX_SHOWN]!r}"
    return f"{_printable(str(principal))} may not {_verb(operation)} {what}."


def operation_word(operation: Operation) -> str:
    """As commands write it, `describe-configs`."""
    return operation.name.lower().replace("_", "-")


def type_word(resource_type: ResourceType) -> str:
    """As commands write it, `transactional-id`."""
    return resource_type.name.lower().replace("_", "-")


def _outcome(verdict: AclVerdict) -> str:
    return "allowed" if verdict.is_allowed else "denied"


def _who(principal: str) -> str:
    return "every user" if principal == EVERY_USER else _printable(principal)


def _verb(operation: Operation) -> str:
    return _VERBS.get(operation) or operation_word(operation)


def _resources(binding: AclBinding) -> str:
    one, many = _NOUNS[binding.resource_type]
    if binding.resource_type is ResourceType.CLUSTER:
        return one
    if binding.pattern_type is PatternType.PREFIXED:
        return f"{many} that begin with {binding.name!r}"
    return f"all {many}" if binding.name == EVERY_RESOURCE else f"{one} {binding.name!r}"


def _from(host: str) -> str:
    if host == EVERY_HOST:
        return "from any address"
    return f"from {_printable(host)}" if is_address(host) else f"from {host!r}, which is no address: it matches nothing"


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)
