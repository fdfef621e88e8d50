"""Whose settings a request is about, and what a client must be allowed to describe or alter them."""

from collections.abc import Mapping
from typing import Final

from headwater.broker.access.client_access import ClientAccess, refused
from headwater.broker.settings.config_resources import ConfigResourceType
from headwater.model.errors import RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME

_NAMED: Final[Mapping[int, ResourceType]] = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.GROUP: ResourceType.GROUP,
}
_OF_CLUSTER: Final = frozenset(
    (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS)
)


def config_refusal(access: ClientAccess, operation: Operation, config_type: int, name: str) -> RequestError | None:
    """None where it is allowed, and for types that nothing has: they are refused for what they are."""
    resource_type = _NAMED.get(config_type)
    if resource_type is not None:
        return refused(access, operation, resource_type, name)
    if config_type in _OF_CLUSTER:
        return refused(access, operation, ResourceType.CLUSTER, CLUSTER_NAME)
    return None
