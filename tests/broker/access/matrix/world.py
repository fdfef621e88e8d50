"""A server with two users: an administrator who may do everything, and a stranger who may do what bindings allow."""

import uuid
from collections.abc import Iterable
from typing import Any, Self

from headwater.security.access_codes import Operation, PatternType, Permission, ResourceType
from headwater.security.acl import AclBinding
from headwater.security.principal import EVERY_HOST
from tests.support.eventually import until
from tests.support.messages import nested
from tests.support.user_client import Exchange, UserClient

ADMIN, STRANGER = "admin", "mallory"
VALUE = "-value"
"""The end of every record's value, behind its topic's name."""
OTHER = "User:of-the-matrix"
"""Whom requests of the matrix itself make bindings for."""
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_CLUSTER = 29, 30, 31, 60


class World:
    def __init__(self, address: tuple[str, int], admin: UserClient, stranger: UserClient, node_id: int) -> None:
        self._address = address
        self.admin = admin
        self._stranger = stranger
        self.node_id = node_id
        self.mark = f"secret-{uuid.uuid4().hex[:8]}"
        """What the stranger must not see begins so."""
        self.hidden: dict[bytes, tuple[ResourceType, str]] = {}
        """And what else it must not see, ids that the server made, unless it may describe the resource."""
        self._bindings: frozenset[AclBinding] = frozenset()
        self._scenes = 0

    @classmethod
    async def enter(cls, address: tuple[str, int]) -> Self:
        admin = await UserClient.log_in(address, ADMIN)
        stranger = await UserClient.log_in(address, STRANGER)
        cluster = await admin.ask(DESCRIBE_CLUSTER, 0)
        return cls(address, admin, stranger, cluster.brokers[0].broker_id)

    def close(self) -> None:
        self.admin.close()
        self._stranger.close()

    def next_name(self) -> str:
        self._scenes += 1
        return f"{self.mark}-{self._scenes}"

    async def send(self, user: str, api_key: int, version: int, fields: dict[str, Any]) -> Exchange:
        client = self.admin if user == ADMIN else self._stranger
        wants_response = fields.get("acks") != 0
        exchange = await (client.exchange if wants_response else client.tell)(api_key, version, fields)
        if exchange.is_closed:
            assert user == STRANGER, f"the administrator's connection was closed by API {api_key}, version {version}"
            self._stranger.close()
            self._stranger = await UserClient.log_in(self._address, STRANGER)
        return exchange

    async def bind(self, bindings: Iterable[AclBinding]) -> None:
        """These bindings, and no others, are in force."""
        wanted = frozenset(bindings)
        created, deleted = wanted - self._bindings, self._bindings - wanted
        if created:
            answer = await self.admin.ask(CREATE_ACLS, 3, creations=[_creation(each) for each in created])
            assert not any(each.error_code for each in answer.results), answer
        if deleted:
            answer = await self.admin.ask(DELETE_ACLS, 3, filters=[_filter(each) for each in deleted])
            assert all(each.error_code == 0 and len(each.matching_acls) == 1 for each in answer.filter_results), answer
        self._bindings = wanted
        if created or deleted:
            await self._in_force()

    async def _in_force(self) -> None:
        """At once, of ours: it has acknowledged them."""

    async def described_bindings(self) -> frozenset[AclBinding]:
        answer = await self.admin.ask(
            DESCRIBE_ACLS, 3, resource_type_filter=ResourceType.ANY, pattern_type_filter=PatternType.ANY,
            resource_name_filter=None, principal_filter=None, host_filter=None, operation=Operation.ANY,
            permission_type=Permission.ANY,
        )  # fmt: skip
        assert answer.error_code == 0, answer.error_message
        return frozenset(
            AclBinding.of_codes(
                resource_type=resource.resource_type, pattern_type=resource.pattern_type, name=resource.resource_name,
                principal=acl.principal, host=acl.host, operation=acl.operation, permission=acl.permission_type,
            )
            for resource in answer.resources
            for acl in resource.acls
        )  # fmt: skip


class SlowWorld(World):
    """Of a server that acknowledges bindings before they are in force."""

    async def _in_force(self) -> None:
        async def is_in_force() -> bool:
            described = await self.described_bindings()
            return frozenset(each for each in described if each.principal != OTHER) == self._bindings

        await until(is_in_force, "the bindings are in force")


def binding(
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    pattern_type: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    principal: str = f"User:{STRANGER}",
    host: str = EVERY_HOST,
) -> AclBinding:
    return AclBinding(
        resource_type=resource_type, pattern_type=pattern_type, name=name, principal=principal, host=host,
        operation=operation, permission=permission,
    )  # fmt: skip


def _creation(each: AclBinding) -> dict[str, Any]:
    return nested(
        resource_type=each.resource_type, resource_name=each.name, resource_pattern_type=each.pattern_type,
        principal=each.principal, host=each.host, operation=each.operation, permission_type=each.permission,
    )  # fmt: skip


def _filter(each: AclBinding) -> dict[str, Any]:
    return nested(
        resource_type_filter=each.resource_type, resource_name_filter=each.name, pattern_type_filter=each.pattern_type,
        principal_filter=each.principal, host_filter=each.host, operation=each.operation,
        permission_type=each.permission,
    )  # fmt: skip
