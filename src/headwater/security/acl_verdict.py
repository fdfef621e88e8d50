"""What the bindings say to one operation of one client on one resource, and which rule decided."""

import enum
from dataclasses import dataclass
from typing import Final

from headwater.security.access_codes import Operation, Permission
from headwater.security.acl import AclBinding


class DecidingRule(enum.Enum):
    SUPER_USER = enum.auto()
    BINDING = enum.auto()
    NO_BINDING_MATCHES = enum.auto()
    """The resource has bindings, of others or for other things: denied."""
    NO_BINDING_AT_ALL = enum.auto()
    """The resource has none: denied, unless the cluster allows everything on such resources."""


@dataclass(frozen=True, slots=True)
class AclVerdict:
    """Made once, where the index is made: a check hands out what exists. It is true where it allows."""

    is_allowed: bool
    rule: DecidingRule
    binding: AclBinding | None = None

    @classmethod
    def of(cls, binding: AclBinding) -> "AclVerdict":
        return cls(binding.permission is Permission.ALLOW, DecidingRule.BINDING, binding)

    @property
    def operation(self) -> Operation:
        """What the binding that decided names."""
        assert self.binding is not None, "asked of verdicts of bindings alone"
        return self.binding.operation

    def __bool__(self) -> bool:
        return self.is_allowed


SUPER_USER: Final = AclVerdict(True, DecidingRule.SUPER_USER)
NO_BINDING_MATCHES: Final = AclVerdict(False, DecidingRule.NO_BINDING_MATCHES)
ALLOWED_WITHOUT_BINDING: Final = AclVerdict(True, DecidingRule.NO_BINDING_AT_ALL)
DENIED_WITHOUT_BINDING: Final = AclVerdict(False, DecidingRule.NO_BINDING_AT_ALL)
