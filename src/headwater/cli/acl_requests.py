"""Access control bindings as the commands ask for them, and the index that decides as the brokers do."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.gateway_user import GATEWAY_USER
from headwater.model.cluster import AUDIT_TOPIC
from headwater.security.acl import AclBinding
from headwater.security.acl_filter import AclFilter
from headwater.security.acl_index import AclIndex
from headwater.security.principal import MalformedPrincipal, Principal

if TYPE_CHECKING:
    from headwater.client.blocking_cluster import BlockingCluster

AT_ONCE = 100
"""Bindings in one request."""


def matching(cluster: "BlockingCluster", acl_filter: AclFilter) -> list[AclBinding]:
    from headwater.client.admin.acls import list_bindings

    return cluster.answer(list_bindings(acl_filter))


def bindings_of_user(cluster: "BlockingCluster", user: str) -> list[AclBinding] | None:
    """None if the cluster holds no client to bindings."""
    from headwater.client.errors import BrokerRefused
    from headwater.model.errors import ErrorCode

    try:
        return matching(cluster, AclFilter(principal=str(Principal.user(user))))
    except BrokerRefused as error:
        if error.code == ErrorCode.SECURITY_DISABLED:
            return None
        raise


def create_bindings(cluster: "BlockingCluster", bindings: Sequence[AclBinding]) -> None:
    from headwater.client.admin import acls

    for first in range(0, len(bindings), AT_ONCE):
        cluster.answer(acls.create_bindings(bindings[first : first + AT_ONCE]))


def delete_bindings(cluster: "BlockingCluster", bindings: Sequence[AclBinding]) -> int:
    """How many were there."""
    from headwater.client.admin import acls

    return sum(
        len(cluster.answer(acls.delete_bindings(bindings[first : first + AT_ONCE])))
        for first in range(0, len(bindings), AT_ONCE)
    )


def allows_without_bindings(cluster: "BlockingCluster") -> bool | None:
    """Whether every user may do everything with what no binding is about; None if the broker does not tell."""
    from headwater.client.admin.acls import ALLOW_EVERYONE

    value = _settings(cluster).get(ALLOW_EVERYONE)
    return None if value is None else value == "true"


def index_of(cluster: "BlockingCluster", bindings: Iterable[AclBinding]) -> tuple[AclIndex, bool]:
    """What decides, and whether super users and the rule without bindings are known: not every user may see them."""
    from headwater.client.admin.acls import ALLOW_EVERYONE, SUPER_USERS

    settings = _settings(cluster)
    index = AclIndex(
        bindings,
        version=1,
        super_users=_principals(settings.get(SUPER_USERS, "")),
        allow_everyone_if_no_acl=settings.get(ALLOW_EVERYONE) == "true",
        guarded_topics=[AUDIT_TOPIC],
        agents=[Principal.user(GATEWAY_USER)],
    )
    return index, ALLOW_EVERYONE in settings


def _settings(cluster: "BlockingCluster") -> dict[str, str]:
    """Empty if the user may not see them."""
    from headwater.client.admin.acls import authorizer_settings
    from headwater.client.errors import BrokerRefused

    cluster.topics([])
    node_id = min(cluster.view.nodes, default=None)
    if node_id is None:
        return {}
    try:
        return cluster.answer_at(cluster.view.nodes[node_id], authorizer_settings(node_id))
    except BrokerRefused:
        return {}


def _principals(text: str) -> list[Principal]:
    principals = []
    for each in filter(None, (part.strip() for part in text.split(";"))):
        try:
            principals.append(Principal.parse(each))
        except MalformedPrincipal:
            continue
    return principals
