"""An access control binding: on which resources who may, or may not, do what from where.

In the metadata store a binding is a JSON object of its seven fields, with Kafka's names for the codes:

    {"resource_type":"TOPIC","pattern_type":"PREFIXED","name":"ord","principal":"User:alice","host":"*",
     "operation":"WRITE","permission":"ALLOW"}

A field that this version does not know is ignored. The last part of the key is the binding's id, so that creating a
binding twice writes it once: the first 16 hexadecimal digits of the SHA-256 of the seven texts as a JSON list.

- A binding that exists is valid. Texts stay as they were sent, because a client finds its bindings again by equal text;
  that two spellings of an address are one host, the index knows.
- As in Kafka, any operation goes with any type of resource, and any text with `host`: one that is neither an address
  nor `*` matches no connection.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any, Final, Self, TypeVar

from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.principal import CLUSTER_NAME, NODE, MalformedPrincipal, Principal

MAX_BINDINGS: Final = 100_000
"""Of a cluster. What creates bindings keeps to it."""
MAX_NAME_CHARS: Final = 1_000
"""A topic's name has 249 at most; a longer name of a group is matched by a prefix or by `*`."""
MAX_PRINCIPAL_CHARS: Final = 256
MAX_HOST_CHARS: Final = 255
_MAX_SHOWN: Final = 100
_ID_DIGITS: Final = 16

_Code = TypeVar("_Code", bound=IntEnum)


class InvalidAclBinding(ValueError):
    """A binding that must not be created. The message is for people."""


class CorruptAclBinding(ValueError):
    """Bytes of the metadata store that are no binding, or one of a later version that this version cannot judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """Raises InvalidAclBinding where it is made."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    """As Kafka writes it, `User:alice`."""
    host: str
    operation: Operation
    permission: Permission

    def __post_init__(self) -> None:
        _check_codes(self)
        _check_texts(self)

    @classmethod
    def of_codes(
        cls,
        *,
        resource_type: int,
        pattern_type: int,
        name: str,
        principal: str,
        host: str,
        operation: int,
        permission: int,
    ) -> Self:
        """Of the numbers of a request. Raises InvalidAclBinding."""
        return cls(
            resource_type=code_of(ResourceType, resource_type),
            pattern_type=code_of(PatternType, pattern_type),
            name=name,
            principal=principal,
            host=host,
            operation=code_of(Operation, operation),
            permission=code_of(Permission, permission),
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Raises CorruptAclBinding. Leaving such a binding out may allow what it denies: that is for the caller to
        weigh."""
        try:
            plain = json.loads(data.decode())
            return cls(
                resource_type=ResourceType[plain["resource_type"]],
                pattern_type=PatternType[plain["pattern_type"]],
                name=_text(plain["name"]),
                principal=_text(plain["principal"]),
                host=_text(plain["host"]),
                operation=Operation[plain["operation"]],
                permission=Permission[plain["permission"]],
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptAclBinding(f"Not an access control binding: {data[:_MAX_SHOWN]!r} ({error!r:.200})") from error

    def to_json(self) -> bytes:
        return json.dumps(_texts(self), separators=(",", ":")).encode()

    @property
    def id(self) -> str:
        texts = json.dumps(list(_texts(self).values()), separators=(",", ":"))
        return hashlib.sha256(texts.encode()).hexdigest()[:_ID_DIGITS]


in_order: Final = attrgetter(
    "resource_type", "pattern_type", "name", "principal", "host", "operation", "permission"
)  # fmt: skip
"""The key that bindings are sorted by: those of one pattern stand together."""


def code_of(kind: type[_Code], number: int) -> _Code:
    """UNKNOWN for a number that this version has no name for, as Kafka does."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def _check_codes(binding: AclBinding) -> None:
    if binding.resource_type <= ResourceType.ANY:
        raise InvalidAclBinding(
            "A binding names one type of resource: topic, group, cluster, transactional id, delegation token or user."
        )
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidAclBinding("The pattern of a binding is literal or prefixed; any and match are for filters.")
    if binding.operation <= Operation.ANY:
        raise InvalidAclBinding("A binding names one operation, or all; unknown and any are for filters.")
    if binding.permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidAclBinding("A binding allows or denies; unknown and any are for filters.")


def _check_texts(binding: AclBinding) -> None:
    if not binding.name:
        raise InvalidAclBinding("A binding names a resource, or '*' for all of its type; the name is empty.")
    _check_length("name of the resource", binding.name, MAX_NAME_CHARS)
    _check_length("principal", binding.principal, MAX_PRINCIPAL_CHARS)
    _check_length("host", binding.host, MAX_HOST_CHARS)
    if binding.resource_type is ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        raise InvalidAclBinding(f"The one resource of type cluster is {CLUSTER_NAME!r}, not {_shown(binding.name)}.")
    try:
        principal = Principal.parse(binding.principal)
    except MalformedPrincipal as error:
        raise InvalidAclBinding(str(error)) from None
    if principal.kind == NODE:
        raise InvalidAclBinding("Nodes of the cluster need no binding, and can have none.")


def _check_length(what: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidAclBinding(f"The {what} has {len(text)} characters, which is more than {most}.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidAclBinding(f"The {what} is no Unicode text: {_shown(text)}.") from None


def _shown(text: str) -> str:
    return repr(text[:_MAX_SHOWN])


def _texts(binding: AclBinding) -> dict[str, str]:
    return {
        "resource_type": binding.resource_type.name,
        "pattern_type": binding.pattern_type.name,
        "name": binding.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission": binding.permission.name,
    }


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is no text.")
    return value
