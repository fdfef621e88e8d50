"""The bindings on one type of resource, laid out for look-ups: principal, then host, then the name of the resource.

Patterns that fit one name are nested: its literal lies in the longest prefix that it begins with, that one in the next
shorter one, and the shortest in the literal `*`. So a look-up finds the innermost, which knows by two sets of bits what
all of them together allow and deny; only to tell which binding decided are the outer ones visited.

                 *  <-  ord  <-  orders.  <-  orders.eu (literal)

Nothing changes after it was built. Bindings come in their order (`in_order`), so that the first of several that would
decide is always the same.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from headwater.security.access_codes import Operation, PatternType, Permission
from headwater.security.acl import AclBinding
from headwater.security.acl_verdict import AclVerdict
from headwater.security.hosts import Host, host_of
from headwater.security.principal import EVERY_HOST, EVERY_RESOURCE, EVERY_USER, NODE, Principal

_EVERY_HOST: Final = Host(EVERY_HOST)
_DENIED_BITS: Final = {operation: 1 << operation for operation in Operation} | {Operation.ALL: -1}
_ALLOWED_BITS: Final = _DENIED_BITS | {
    operation: 1 << operation | 1 << implied
    for implied, by in {
        Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
        Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
    }.items()
    for operation in by
}


class Grants:
    """What one pattern and those around it say to one principal from one host. Bit n is the operation of number n."""

    __slots__ = ("_allows", "_around", "_denies", "allowed", "allowed_by_name", "denied")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0
        self.allowed_by_name = 0
        """By bindings that name this resource, and no other."""
        self._around: Grants | None = None
        self._allows: tuple[AclVerdict, ...] = ()
        self._denies: tuple[AclVerdict, ...] = ()

    def add(self, binding: AclBinding) -> None:
        """The first binding stands for those that differ in the spelling of the host alone."""
        operation = binding.operation
        if binding.permission is Permission.DENY:
            if all(each.operation is not operation for each in self._denies):
                self._denies += (AclVerdict.of(binding),)
                self.denied |= _DENIED_BITS[operation]
        elif all(each.operation is not operation for each in self._allows):
            self._allows += (AclVerdict.of(binding),)
            self.allowed |= _ALLOWED_BITS[operation]

    def lie_in(self, around: "Grants | None", is_literal: bool = False) -> None:
        """After all bindings were added, to this pattern and to that around it."""
        if is_literal:
            self.allowed_by_name = self.allowed
        self._around = around
        if around is not None:
            self.allowed |= around.allowed
            self.denied |= around.denied

    def denial(self, operation: Operation) -> AclVerdict:
        """Of an operation in `denied`, by the innermost pattern."""
        grants: Grants | None = self
        while grants is not None:
            for each in grants._denies:
                if _DENIED_BITS[each.operation] >> operation & 1:
                    return each
            grants = grants._around
        raise AssertionError("what is denied is denied by a binding")

    def allowance(self, operation: Operation) -> AclVerdict:
        """Of an operation in `allowed`, by the innermost pattern."""
        grants: Grants | None = self
        while grants is not None:
            for each in grants._allows:
                if _ALLOWED_BITS[each.operation] >> operation & 1:
                    return each
            grants = grants._around
        raise AssertionError("what is allowed is allowed by a binding")

    def named_allowance(self, operation: Operation) -> AclVerdict | None:
        """By this pattern, and by a binding that names the operation, or all: what is implied does not count."""
        for each in self._allows:
            if each.operation in (operation, Operation.ALL):
                return each
        return None


class PatternTable:
    """What the bindings of one principal and one host say, by pattern."""

    __slots__ = ("_around", "_prefix_grants", "_prefix_names", "every", "literals", "prefixes")

    def __init__(self) -> None:
        self.every: Grants | None = None
        """Of the literal `*`, which is not among the others."""
        self.literals: dict[str, Grants] = {}
        self.prefixes: dict[str, Grants] = {}
        self._prefix_names: list[str] = []
        self._prefix_grants: list[Grants] = []
        self._around: list[int] = []
        """In which of the prefixes each prefix lies; -1 for none."""

    def add(self, binding: AclBinding) -> None:
        if binding.pattern_type is PatternType.LITERAL and binding.name == EVERY_RESOURCE:
            if self.every is None:
                self.every = Grants()
            self.every.add(binding)
            return
        patterns = self.prefixes if binding.pattern_type is PatternType.PREFIXED else self.literals
        grants = patterns.get(binding.name)
        if grants is None:
            grants = patterns[binding.name] = Grants()
        grants.add(binding)

    def finish(self) -> None:
        """All bindings have been added: lay the patterns into one another."""
        for name, grants in sorted(self.prefixes.items(), key=itemgetter(0)):
            at = self._index_of_prefix(name)
            grants.lie_in(self._prefix_grants[at] if at >= 0 else self.every)
            self._prefix_names.append(name)
            self._prefix_grants.append(grants)
            self._around.append(at)
        for name, grants in self.literals.items():
            grants.lie_in(self.grants_by_prefix(name), is_literal=True)

    def grants(self, name: str) -> Grants | None:
        """What is said about the resource."""
        return self.literals.get(name) or self.grants_by_prefix(name)

    def grants_by_prefix(self, name: str) -> Grants | None:
        """What is said about every resource whose name begins so."""
        if not self._prefix_names:
            return self.every
        at = self._index_of_prefix(name)
        return self._prefix_grants[at] if at >= 0 else self.every

    def _index_of_prefix(self, name: str) -> int:
        """Of the longest prefix that the name begins with, or -1. Those that sort before the name and are prefixes of
        it are prefixes of the last that sorts before it, too."""
        at = bisect_right(self._prefix_names, name) - 1
        while at >= 0 and not name.startswith(self._prefix_names[at]):
            at = self._around[at]
        return at


class TypeTables:
    """All bindings on one type of resource."""

    __slots__ = ("_everyone", "_has_every", "_literals", "_prefixes", "_principals")

    def __init__(self, bindings: Sequence[AclBinding]) -> None:
        self._principals: dict[tuple[str, str], dict[Host, PatternTable]] = {}
        self._everyone: dict[Host, PatternTable] = {}
        self._fill(bindings)
        for by_host in (self._everyone, *self._principals.values()):
            for table in by_host.values():
                table.finish()
        self._literals = {each.name for each in bindings if each.pattern_type is PatternType.LITERAL}
        self._has_every = EVERY_RESOURCE in self._literals
        self._prefixes = _shortest({each.name for each in bindings if each.pattern_type is PatternType.PREFIXED})

    def tables(self, principal: Principal, host: Host) -> list[PatternTable]:
        """At most four: of the principal and of all users, from the host and from everywhere. None for a node."""
        tables: list[PatternTable] = []
        if principal.kind == NODE:
            return tables
        by_host = self._principals.get((principal.kind, principal.name))
        if by_host is not None:
            _append_tables(by_host, host, tables)
        if self._everyone:
            _append_tables(self._everyone, host, tables)
        return tables

    def has_binding(self, name: str) -> bool:
        """The resource has a binding, for some principal, operation and host."""
        if self._has_every or name in self._literals:
            return True
        at = bisect_right(self._prefixes, name) - 1
        return at >= 0 and name.startswith(self._prefixes[at])

    def _fill(self, bindings: Sequence[AclBinding]) -> None:
        hosts = {EVERY_HOST: _EVERY_HOST}
        for binding in bindings:
            host = hosts.get(binding.host)
            if host is None:
                host = hosts[binding.host] = host_of(binding.host)
            by_host = self._tables_of(binding.principal)
            table = by_host.get(host)
            if table is None:
                table = by_host[host] = PatternTable()
            table.add(binding)

    def _tables_of(self, principal_text: str) -> dict[Host, PatternTable]:
        if principal_text == EVERY_USER:
            return self._everyone
        principal = Principal.parse(principal_text)
        return self._principals.setdefault((principal.kind, principal.name), {})


def _append_tables(by_host: dict[Host, PatternTable], host: Host, to: list[PatternTable]) -> None:
    table = by_host.get(host)
    if table is not None:
        to.append(table)
    table = by_host.get(_EVERY_HOST)
    if table is not None:
        to.append(table)


def _shortest(prefixes: Iterable[str]) -> list[str]:
    """Sorted, without those that begin with another."""
    shortest: list[str] = []
    for prefix in sorted(prefixes):
        if not shortest or not prefix.startswith(shortest[-1]):
            shortest.append(prefix)
    return shortest
