"""What an API asks of a client: declared beside the handler of every API, without a default, so that none is forgotten.

A check names an operation on a resource, where the request names the resource, and where the response has the error of
one that is refused. Places are written as paths, `topics[].partitions[].error_code`. Checks *at once* are made by the
dispatcher, before the handler is called: they ask for one resource that is named at the top of the request, and their
error stands at the top of the response. All others are made by the handler.

The table in docs/security.md, and the tests that send every request without each of its grants, are made from this.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME

if TYPE_CHECKING:
    from headwater.broker.access.client_access import ClientAccess
    from headwater.wire.message import Message

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
LEFT_OUT: Final = ""
"""The place of a refusal that is no error: what is refused is not in the response."""
ANY_VERSION: Final = range(100)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCheck:
    operation: Operation
    resource_type: ResourceType
    named_at: str = ""
    """Where the request has the name; empty for the cluster, and for `any topic`."""
    refused_at: str = "error_code"
    or_else: "AccessCheck | None" = None
    """Another grant that does as well."""
    versions: range = ANY_VERSION
    condition: str = ""
    """For people: when the check is made, if that is not always."""


def on_cluster(
    operation: Operation,
    *,
    refused_at: str = "error_code",
    or_else: AccessCheck | None = None,
    versions: range = ANY_VERSION,
    condition: str = "",
) -> AccessCheck:
    return AccessCheck(
        operation=operation, resource_type=ResourceType.CLUSTER, refused_at=refused_at, or_else=or_else,
        versions=versions, condition=condition,
    )  # fmt: skip


def on_topic(
    operation: Operation,
    named_at: str = "",
    *,
    refused_at: str,
    or_else: AccessCheck | None = None,
    versions: range = ANY_VERSION,
    condition: str = "",
) -> AccessCheck:
    return AccessCheck(
        operation=operation, resource_type=ResourceType.TOPIC, named_at=named_at, refused_at=refused_at,
        or_else=or_else, versions=versions, condition=condition,
    )  # fmt: skip


def on_group(
    operation: Operation,
    named_at: str = "group_id",
    *,
    refused_at: str = "error_code",
    or_else: AccessCheck | None = None,
    versions: range = ANY_VERSION,
    condition: str = "",
) -> AccessCheck:
    return AccessCheck(
        operation=operation, resource_type=ResourceType.GROUP, named_at=named_at, refused_at=refused_at,
        or_else=or_else, versions=versions, condition=condition,
    )  # fmt: skip


def on_transactional_id(
    operation: Operation,
    named_at: str = "transactional_id",
    *,
    refused_at: str = "error_code",
    versions: range = ANY_VERSION,
    condition: str = "",
) -> AccessCheck:
    return AccessCheck(
        operation=operation, resource_type=ResourceType.TRANSACTIONAL_ID, named_at=named_at, refused_at=refused_at,
        versions=versions, condition=condition,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Access:
    at_once: tuple[AccessCheck, ...] = ()
    in_handler: tuple[AccessCheck, ...] = ()
    open_because: str = ""

    def __post_init__(self) -> None:
        assert bool(self.checks) != bool(self.open_because), "an API has checks, or says why it has none"
        for check in self.at_once:
            is_simple = "[" not in check.named_at and check.refused_at == "error_code" and check.or_else is None
            assert is_simple and check.versions is ANY_VERSION, f"{check} is for the handler"
            assert bool(check.named_at) != (check.resource_type is ResourceType.CLUSTER), f"{check} names what it asks"

    @classmethod
    def first(cls, *checks: AccessCheck, then: tuple[AccessCheck, ...] = ()) -> "Access":
        """Checks that the dispatcher makes, and those that are left to the handler."""
        return cls(checks, then)

    @classmethod
    def by_handler(cls, *checks: AccessCheck) -> "Access":
        return cls((), checks)

    @classmethod
    def open(cls, reason: str) -> "Access":
        """Every client may ask."""
        return cls(open_because=reason)

    def check_at_once(self, request: "Message", access: "ClientAccess") -> None:
        """Raises RequestError. A name that is null is judged as an empty one: the handler then says what is missing."""
        for check in self.at_once:
            name = getattr(request, check.named_at) or "" if check.named_at else CLUSTER_NAME
            access.require(check.operation, check.resource_type, name)

    @property
    def checks(self) -> tuple[AccessCheck, ...]:
        return self.at_once + self.in_handler


ALTERED_CONFIGS: Final = Access.by_handler(
    on_topic(
        Operation.ALTER_CONFIGS, "resources[].resource_name", refused_at="responses[].error_code", condition="of topics"
    ),
    on_group(
        Operation.ALTER_CONFIGS, "resources[].resource_name", refused_at="responses[].error_code", condition="of groups"
    ),
    on_cluster(
        Operation.ALTER_CONFIGS,
        refused_at="responses[].error_code",
        condition="of brokers, their loggers, and client metrics",
    ),
)
"""Of both APIs that alter settings."""
DESCRIBED_GROUPS: Final = Access.by_handler(
    on_group(Operation.DESCRIBE, "group_ids[]", refused_at="groups[].error_code"),
    on_topic(
        Operation.DESCRIBE,
        refused_at="groups[].error_code",
        condition="of every topic that members are assigned; one that is refused hides the whole group",
    ),
)
"""Of groups of the newer protocols."""
