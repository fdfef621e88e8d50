"""Which bindings a DescribeAcls or a DeleteAcls means.

Equal is equal text: a filter for `::1` does not find a binding for `0:0:0:0:0:0:0:1`, as in Kafka. A filter with the
pattern MATCH and a name finds what decides about the resource of that name.
"""

from dataclasses import dataclass
from typing import Self

from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding, code_of
from headwater.security.principal import EVERY_RESOURCE


class InvalidAclFilter(ValueError):
    """A filter with a number that this version does not know. The message is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """ANY and None match everything. Raises InvalidAclFilter where it is made."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def __post_init__(self) -> None:
        codes = {
            "type of resource": self.resource_type,
            "type of pattern": self.pattern_type,
            "operation": self.operation,
            "permission": self.permission,
        }
        for what, code in codes.items():
            if not code:
                raise InvalidAclFilter(f"The filter has a {what} that this broker does not know.")

    @classmethod
    def of_codes(
        cls,
        *,
        resource_type: int,
        pattern_type: int,
        name: str | None,
        principal: str | None,
        host: str | None,
        operation: int,
        permission: int,
    ) -> Self:
        """Of the numbers of a request. Raises InvalidAclFilter."""
        return cls(
            resource_type=code_of(ResourceType, resource_type),
            pattern_type=code_of(PatternType, pattern_type),
            name=name,
            principal=principal,
            host=host,
            operation=code_of(Operation, operation),
            permission=code_of(Permission, permission),
        )

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
            and self.pattern_type in (PatternType.ANY, PatternType.MATCH, binding.pattern_type)
            and (self.name is None or self._matches_name(self.name, binding))
        )

    def _matches_name(self, name: str, binding: AclBinding) -> bool:
        if self.pattern_type is not PatternType.MATCH:
            return name == binding.name
        if binding.pattern_type is PatternType.PREFIXED:
            return name.startswith(binding.name)
        return binding.name in (name, EVERY_RESOURCE)
