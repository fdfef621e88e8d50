"""What a client may do with a cluster or a topic, as bits of Kafka's operations: everything, as in Kafka 4.3
without an authorizer."""

from typing import Final

from headwater.security.access_codes import SUPPORTED_BITS, ResourceType

NOT_ASKED: Final = -(2**31)
"""The client did not ask, or there is an error instead."""
ON_CLUSTER: Final = SUPPORTED_BITS[ResourceType.CLUSTER]
ON_TOPIC: Final = SUPPORTED_BITS[ResourceType.TOPIC]
