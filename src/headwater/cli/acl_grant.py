"""What the words of `headwater acl` mean: `alice read,write topic orders --group packers` as bindings and filters.

A role stands for the operations of a kind of program: produce and consume, work (of a queue), admin. `--prefix` holds
for all names of the command.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headwater.cli.output import CommandFailed
from headwater.security.access_codes import SUPPORTED_OPERATIONS, Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding, InvalidAclBinding
from headwater.security.acl_filter import AclFilter
from headwater.security.acl_words import operation_word, type_word
from headwater.security.hosts import is_address
from headwater.security.principal import CLUSTER_NAME, EVERY_HOST, NODE, MalformedPrincipal, Principal

TYPES: Final = {type_word(each): each for each in SUPPORTED_OPERATIONS}
OPERATIONS: Final = {operation_word(each): each for each in Operation if each > Operation.ANY}
_OF_PROGRAMS: Final = frozenset(
    {
        Operation.READ,
        Operation.WRITE,
        Operation.CLUSTER_ACTION,
        Operation.IDEMPOTENT_WRITE,
        Operation.TWO_PHASE_COMMIT,
    }
)
PRODUCE, CONSUME, WORK, ADMIN, ANY = "produce", "consume", "work", "admin", "any"
ROLES: Final = {PRODUCE: Operation.WRITE, CONSUME: Operation.READ, WORK: Operation.READ}
"""On topics, with the operation that each stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """As they were typed."""

    who: str
    operations: str
    resource_type: str
    name: str | None = None
    is_prefix: bool = False
    group: str | None = None
    transactional_id: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceOperation:
    """One operation on one resource, or on a pattern of them."""

    operation: Operation
    resource_type: ResourceType
    name: str


def principal_of(who: str) -> Principal:
    """`User:` is implied. Raises CommandFailed."""
    try:
        principal = Principal.parse(who) if ":" in who else Principal.user(who)
    except MalformedPrincipal as error:
        raise _mistake(str(error)) from None
    if not principal.name or principal.kind == NODE:
        raise _mistake(f"{who!r} is no user. Write alice or User:alice, and '*' for every user.")
    return principal


def resource_of(word: str, name: str | None) -> tuple[ResourceType, str]:
    """Raises CommandFailed."""
    resource_type = TYPES.get(word.lower().replace("_", "-"))
    if resource_type is None:
        raise _mistake(f"{word!r} is no type of resource.", f"Use one of: {', '.join(TYPES)}.")
    if resource_type is ResourceType.CLUSTER:
        if name not in (None, "", CLUSTER_NAME):
            raise _mistake("There is one cluster, which needs no name.")
        return resource_type, CLUSTER_NAME
    if not name:
        raise _mistake(f"Which {word}? Write its name, or '*' for all.")
    return resource_type, name


def resource_operations(words: Words) -> list[ResourceOperation]:
    """All that the words stand for. Raises CommandFailed."""
    resource_type, name = resource_of(words.resource_type, words.name)
    texts = [each.strip().lower().replace("_", "-") for each in words.operations.split(",")]
    codes = [each for text in texts for each in _operations(text, resource_type)]
    operations = [ResourceOperation(each, resource_type, name) for each in codes]
    operations += _of_group(words, texts) + _of_transactions(words, texts)
    return list(dict.fromkeys(operations))


def bindings_of(words: Words, permission: Permission) -> list[AclBinding]:
    """Raises CommandFailed."""
    principal = principal_of(words.who)
    if words.host not in (None, EVERY_HOST) and not is_address(words.host or ""):
        raise _mistake(f"--from {words.host!r} is no IP address.", "Networks and host names are not known to bindings.")
    pattern = PatternType.PREFIXED if words.is_prefix else PatternType.LITERAL
    try:
        return [
            AclBinding(
                resource_type=each.resource_type,
                pattern_type=PatternType.LITERAL if each.resource_type is ResourceType.CLUSTER else pattern,
                name=each.name,
                principal=str(principal),
                host=words.host or EVERY_HOST,
                operation=each.operation,
                permission=permission,
            )
            for each in resource_operations(words)
        ]
    except InvalidAclBinding as error:
        raise _mistake(str(error)) from None


def filters_of(words: Words, permission: Permission) -> Iterator[AclFilter]:
    """What the bindings of the same words are found by. `any` stands for every operation, and without an address it is
    the same from where. Raises CommandFailed."""
    principal = str(principal_of(words.who))
    pattern = PatternType.PREFIXED if words.is_prefix else PatternType.LITERAL
    if words.operations.strip().lower() == ANY:
        resource_type, name = resource_of(words.resource_type, words.name)
        operations = [ResourceOperation(Operation.ANY, resource_type, name)]
    else:
        operations = resource_operations(words)
    for each in operations:
        yield AclFilter(
            resource_type=each.resource_type,
            pattern_type=PatternType.LITERAL if each.resource_type is ResourceType.CLUSTER else pattern,
            name=each.name,
            principal=principal,
            host=words.host,
            operation=each.operation,
            permission=permission,
        )


def _operations(text: str, resource_type: ResourceType) -> list[Operation]:
    supported = SUPPORTED_OPERATIONS[resource_type]
    if text in ROLES:
        if resource_type is not ResourceType.TOPIC:
            raise _mistake(f"{text} is for topics.")
        return [ROLES[text]]
    if text == ADMIN:
        return [each for each in supported if each not in _OF_PROGRAMS]
    operation = OPERATIONS.get(text)
    if operation is None:
        known = [*OPERATIONS, *ROLES, ADMIN]
        raise _mistake(f"{text!r} is no operation.", f"Use some of these, with commas between: {', '.join(known)}.")
    if operation is not Operation.ALL and operation not in supported:
        words = ", ".join(map(operation_word, supported))
        raise _mistake(f"{text} means nothing for a {type_word(resource_type)}.", f"Use all, or some of: {words}.")
    return [operation]


def _of_group(words: Words, texts: list[str]) -> list[ResourceOperation]:
    if words.group is None:
        if WORK in texts:
            raise _mistake("Workers of a queue are a group.", "Name it with --group.")
        return []
    reads = [each for each in texts if each in ("all", "read", CONSUME, WORK)]
    if not reads or words.resource_type != "topic" or not words.group:
        raise _mistake("--group NAME goes with a topic and with read, consume, work or all.")
    return [ResourceOperation(Operation.ALL if "all" in reads else Operation.READ, ResourceType.GROUP, words.group)]


def _of_transactions(words: Words, texts: list[str]) -> list[ResourceOperation]:
    if words.transactional_id is None:
        return []
    writes = [each for each in texts if each in ("all", "write", PRODUCE)]
    if not writes or words.resource_type != "topic" or not words.transactional_id:
        raise _mistake("--transactional-id ID goes with a topic and with write, produce or all.")
    operation = Operation.ALL if "all" in writes else Operation.WRITE
    return [ResourceOperation(operation, ResourceType.TRANSACTIONAL_ID, words.transactional_id)]


def _mistake(what: str, advice: str = "") -> CommandFailed:
    return CommandFailed(what, advice, exit_code=2)
