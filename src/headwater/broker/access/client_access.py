"""What the client of one connection may do, asked by dispatcher and handlers.

`allows` is for what the client asks to be done: a refusal is recorded. `shows` is for what it may see among other
things: what is refused is left out, and no record is made, as in Kafka. `grants` is for a check that another one may
stand in for, which alone is recorded then. All are a look into a dictionary where the connection has asked before.
Verdicts hold under one `version`: what is decided now and sent later compares it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from headwater.broker.access.declared_access import REFUSALS
from headwater.model.errors import RequestError
from headwater.security import acl_words
from headwater.security.access_codes import SUPPORTED_BITS, Operation, ResourceType
from headwater.security.acl_verdict import AclVerdict
from headwater.security.hosts import Host, host_of
from headwater.security.principal import CLUSTER_NAME, Principal
from headwater.security.verdict_cache import VerdictCache

if TYPE_CHECKING:
    from headwater.broker.access.acl_bindings import AclBindings

ANY_RESOURCE: Final = "(any)"
"""Stands for the name where any resource of the type would do. No topic can have it."""
UNRESTRICTED_VERSION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRefusal:
    """A request that was refused, or would have been if verdicts were in force."""

    principal: Principal
    host: Host
    listener: str
    client_id: str
    api: str
    operation: Operation
    resource_type: ResourceType
    name: str
    verdict: AclVerdict
    is_in_force: bool


class ClientAccess(Protocol):
    is_restricted: bool
    """Whether anything can be refused at all."""
    api: str
    """The API whose requests are under way, for the record: requests of two APIs are never at the same time."""
    shows_secrets: bool
    """Whether settings that are secrets are shown with their values, as gateways need them."""
    client_id: str
    """Of the latest of these requests, for the record."""

    @property
    def version(self) -> int: ...

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool: ...

    def shows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool: ...

    def grants(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether bindings allow it, also where they are only observed."""
        ...

    def allows_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is, or could be, a resource of the type on which the client may do it."""
        ...

    def grants_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """As `allows_on_any`, of what bindings allow."""
        ...

    def operations_on(self, resource_type: ResourceType, name: str) -> int:
        """Bit n stands for Kafka's operation n, of those that the type of resource supports."""
        ...

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raises RequestError."""
        ...

    def refusal(self, operation: Operation, resource_type: ResourceType, name: str) -> RequestError:
        """What the client is told of a name that it gave. It does not say whether there is such a resource."""
        ...


class UnrestrictedAccess:
    """Of all clients, where there is no authorization."""

    is_restricted = False
    api = ""
    client_id = ""
    version = UNRESTRICTED_VERSION

    def __init__(self, *, shows_secrets: bool) -> None:
        self.shows_secrets = shows_secrets

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return True

    def shows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return True

    def grants(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return True

    def allows_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return True

    def grants_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return True

    def operations_on(self, resource_type: ResourceType, name: str) -> int:
        return SUPPORTED_BITS[resource_type]

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        return

    def refusal(self, operation: Operation, resource_type: ResourceType, name: str) -> RequestError:
        raise AssertionError("nothing is refused to a client without restrictions")


UNRESTRICTED: Final = UnrestrictedAccess(shows_secrets=True)
UNRESTRICTED_WITHOUT_SECRETS: Final = UnrestrictedAccess(shows_secrets=False)


class GuardedAccess:
    __slots__ = (
        "_bindings", "_cache", "_host", "_is_in_force", "_listener", "_principal", "_record", "api", "client_id",
        "shows_secrets",
    )  # fmt: skip

    is_restricted = True

    def __init__(
        self,
        bindings: "AclBindings",
        principal: Principal,
        peer_host: str,
        *,
        listener: str = "",
        is_in_force: bool,
        record: Callable[[AccessRefusal], None],
        shows_secrets: bool = False,
    ) -> None:
        """`is_in_force`: otherwise what would be refused is recorded, and allowed."""
        self._bindings = bindings
        self._principal = principal
        self._listener = listener
        self._host = host_of(peer_host)
        self._cache = VerdictCache(principal, self._host)
        self._is_in_force = is_in_force
        self._record = record
        self.api = ""
        self.shows_secrets = shows_secrets
        self.client_id = ""

    @property
    def version(self) -> int:
        return self._bindings.index.version

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        verdict = self._cache.authorize(self._bindings.index, operation, resource_type, name)
        return verdict.is_allowed or self._refused(operation, resource_type, name, verdict)

    def shows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if not self._is_in_force:
            return True
        return self._cache.authorize(self._bindings.index, operation, resource_type, name).is_allowed

    def grants(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self._cache.authorize(self._bindings.index, operation, resource_type, name).is_allowed

    def allows_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        verdict = self._cache.authorize_by_type(self._bindings.index, operation, resource_type)
        return verdict.is_allowed or self._refused(operation, resource_type, ANY_RESOURCE, verdict)

    def grants_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return self._cache.authorize_by_type(self._bindings.index, operation, resource_type).is_allowed

    def operations_on(self, resource_type: ResourceType, name: str) -> int:
        if not self._is_in_force:
            return SUPPORTED_BITS[resource_type]
        return self._bindings.index.authorized_operations(self._principal, self._host, resource_type, name)

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        if not self.allows(operation, resource_type, name):
            raise self.refusal(operation, resource_type, name)

    def refusal(self, operation: Operation, resource_type: ResourceType, name: str) -> RequestError:
        return RequestError(REFUSALS[resource_type], acl_words.refusal(self._principal, operation, resource_type, name))

    def _refused(self, operation: Operation, resource_type: ResourceType, name: str, verdict: AclVerdict) -> bool:
        self._record(
            AccessRefusal(
                principal=self._principal, host=self._host, listener=self._listener, client_id=self.client_id,
                api=self.api, operation=operation, resource_type=resource_type, name=name, verdict=verdict,
                is_in_force=self._is_in_force,
            )
        )  # fmt: skip
        return not self._is_in_force


def refused(access: ClientAccess, operation: Operation, resource_type: ResourceType, name: str) -> RequestError | None:
    """The error of what is asked to be done; None where it is allowed."""
    if not access.is_restricted or access.allows(operation, resource_type, name):
        return None
    return access.refusal(operation, resource_type, name)


def may_on_cluster(access: ClientAccess, operation: Operation) -> bool:
    return access.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)
