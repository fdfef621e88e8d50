"""Who may do what: the rules of Kafka's StandardAuthorizer over all bindings of one moment, laid out for look-ups.

    a super user                                                        allowed, whatever is denied
    a binding of the principal or of all users, from the host or
    from everywhere, on a pattern that the resource fits, denies it     denied
    such a binding allows it                                            allowed
    no binding at all is on a pattern that the resource fits            as `allow_everyone_if_no_acl` says
    else                                                                denied

Denying implies nothing. Allowing READ, WRITE, DELETE or ALTER allows DESCRIBE, and ALTER_CONFIGS DESCRIBE_CONFIGS.
Names are compared as they are. The prefix `*` is a prefix like any other; the literal `*` is every resource, also one
whose own name begins with `*`, which Kafka leaves out.

- An index never changes: what changes is which index is asked. Verdicts may be kept as long as `version` is the same,
  so a process never gives one version to two indexes.
- Nodes are principals that no binding matches, not even one of all users.
- A *guarded* topic is allowed by a binding that names it, and by nothing less. What denies it need not name it. A super
  user may do everything there, too, unless it acts for others, who would all be super users there.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Final

from headwater.security.access_codes import SUPPORTED_BITS, Operation, ResourceType
from headwater.security.acl import AclBinding, in_order
from headwater.security.acl_filter import AclFilter
from headwater.security.acl_tables import Grants, PatternTable, TypeTables
from headwater.security.acl_verdict import (
    ALLOWED_WITHOUT_BINDING,
    DENIED_WITHOUT_BINDING,
    NO_BINDING_MATCHES,
    SUPER_USER,
    AclVerdict,
)
from headwater.security.hosts import Host
from headwater.security.principal import Principal

_SAMPLE_NAME: Final = "hardcode"
"""Kafka's, of the resource that is asked for first when any would do."""


class AclIndex:
    __slots__ = ("_agents", "_guarded", "_super_users", "_types", "allow_everyone_if_no_acl", "bindings", "version")

    def __init__(
        self,
        bindings: Iterable[AclBinding] = (),
        *,
        version: int,
        super_users: Iterable[Principal] = (),
        allow_everyone_if_no_acl: bool = False,
        guarded_topics: Iterable[str] = (),
        agents: Iterable[Principal] = (),
    ) -> None:
        """`agents` act for others."""
        self.version: Final = version
        self.bindings: Final = frozenset(bindings)
        self.allow_everyone_if_no_acl: Final = allow_everyone_if_no_acl
        self._super_users = frozenset((each.kind, each.name) for each in super_users)
        self._guarded = frozenset(guarded_topics)
        self._agents = frozenset((each.kind, each.name) for each in agents)
        types = groupby(sorted(self.bindings, key=in_order), attrgetter("resource_type"))
        self._types: Mapping[ResourceType, TypeTables] = {each: TypeTables(tuple(group)) for each, group in types}

    def with_changes(self, added: Iterable[AclBinding] = (), removed: Iterable[AclBinding] = ()) -> "AclIndex":
        """The index of the next version. What is both added and removed is there."""
        return AclIndex(
            (self.bindings - frozenset(removed)).union(added),
            version=self.version + 1,
            super_users=[Principal(*each) for each in self._super_users],
            allow_everyone_if_no_acl=self.allow_everyone_if_no_acl,
            guarded_topics=self._guarded,
            agents=[Principal(*each) for each in self._agents],
        )

    def matching(self, acl_filter: AclFilter) -> list[AclBinding]:
        """In their order, so that those of one pattern stand together."""
        return sorted(filter(acl_filter.matches, self.bindings), key=in_order)

    def is_super_user(self, principal: Principal) -> bool:
        return (principal.kind, principal.name) in self._super_users

    def authorize(
        self, principal: Principal, host: Host, operation: Operation, resource_type: ResourceType, name: str
    ) -> AclVerdict:
        if (principal.kind, principal.name) in self._super_users and self._is_free(principal, resource_type, name):
            return SUPER_USER
        types = self._types.get(resource_type)
        allowing: Grants | None = None
        has_binding = False
        if types is not None:
            bit = 1 << operation
            for table in types.tables(principal, host):
                grants = table.grants(name)
                if grants is None:
                    continue
                has_binding = True
                if grants.denied & bit:
                    return grants.denial(operation)
                if allowing is None and self._allowed(grants, resource_type, name) & bit:
                    allowing = grants
        if allowing is not None:
            return allowing.allowance(operation)
        return NO_BINDING_MATCHES if has_binding else self._without_grants(types, resource_type, name)

    def authorize_by_type(
        self, principal: Principal, host: Host, operation: Operation, resource_type: ResourceType
    ) -> AclVerdict:
        """Whether some resource exists, or could, on which the operation is allowed. As in Kafka, DESCRIBE does not
        follow here from what implies it."""
        sample = self.authorize(principal, host, operation, resource_type, _SAMPLE_NAME)
        types = self._types.get(resource_type)
        if sample or types is None:
            return sample
        bit = 1 << operation
        tables = types.tables(principal, host)
        for table in tables:
            if table.every is not None and table.every.denied & bit:
                return table.every.denial(operation)
        for table in tables:
            if table.every is not None and (verdict := table.every.named_allowance(operation)) is not None:
                return verdict
        for table in tables:
            if (verdict := _undenied(table, tables, operation)) is not None:
                return verdict
        return NO_BINDING_MATCHES

    def authorized_operations(self, principal: Principal, host: Host, resource_type: ResourceType, name: str) -> int:
        """Bit n stands for the operation of number n, of those that the type of resource supports."""
        supported = SUPPORTED_BITS.get(resource_type, 0)
        if self.is_super_user(principal) and self._is_free(principal, resource_type, name):
            return supported
        types = self._types.get(resource_type)
        allowed = denied = 0
        has_binding = False
        for table in types.tables(principal, host) if types is not None else ():
            grants = table.grants(name)
            if grants is not None:
                has_binding = True
                denied |= grants.denied
                allowed |= self._allowed(grants, resource_type, name)
        if not has_binding and self._without_grants(types, resource_type, name):
            return supported
        return allowed & ~denied & supported

    def _is_free(self, principal: Principal, resource_type: ResourceType, name: str) -> bool:
        """Whether a super user may do everything with it."""
        return not (self._is_guarded(resource_type, name) and (principal.kind, principal.name) in self._agents)

    def _is_guarded(self, resource_type: ResourceType, name: str) -> bool:
        return name in self._guarded and resource_type is ResourceType.TOPIC

    def _allowed(self, grants: Grants, resource_type: ResourceType, name: str) -> int:
        if self._is_guarded(resource_type, name):
            return grants.allowed_by_name
        return grants.allowed

    def _without_grants(self, types: TypeTables | None, resource_type: ResourceType, name: str) -> AclVerdict:
        """Nothing is said to the principal about the resource."""
        if types is not None and types.has_binding(name):
            return NO_BINDING_MATCHES
        if self.allow_everyone_if_no_acl and not self._is_guarded(resource_type, name):
            return ALLOWED_WITHOUT_BINDING
        return DENIED_WITHOUT_BINDING


def _undenied(table: PatternTable, tables: list[PatternTable], operation: Operation) -> AclVerdict | None:
    """What allows a pattern of which not every resource is denied by another pattern."""
    for name, grants in table.literals.items():
        verdict = grants.named_allowance(operation)
        if verdict is not None and not any(_denies(each.grants(name), operation) for each in tables):
            return verdict
    for name, grants in table.prefixes.items():
        verdict = grants.named_allowance(operation)
        if verdict is not None and not any(_denies(each.grants_by_prefix(name), operation) for each in tables):
            return verdict
    return None


def _denies(grants: Grants | None, operation: Operation) -> bool:
    return grants is not None and bool(grants.denied >> operation & 1)
