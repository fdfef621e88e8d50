"""What a client may do with a cluster, a topic or a group, as bits of Kafka's operations, for clients that ask."""

from typing import Final

from headwater.broker.access.client_access import ClientAccess
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME

NOT_ASKED: Final = -(2**31)
"""The client did not ask, or there is an error instead."""
NOTHING: Final = 0


def operations_on_cluster(access: ClientAccess) -> int:
    """Nothing, for clients that may not describe the cluster, as in Kafka."""
    if not access.shows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return NOTHING
    return access.operations_on(ResourceType.CLUSTER, CLUSTER_NAME)


def operations_on_topic(access: ClientAccess, name: str) -> int:
    return access.operations_on(ResourceType.TOPIC, name)
