"""What errors of our own client (`headwater.client`) mean, as failures that callers can tell apart."""

from typing import Final

from headwater.client.errors import BrokerRefused, ClientError
from headwater.gateway.kafka.errors import (
    ClusterNotReady,
    ClusterUnavailable,
    GroupInUse,
    GroupNotFound,
    InvalidRequest,
    KafkaFailure,
)
from headwater.model.errors import ErrorCode

MISSING_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Kafka's clients wait for such a topic; a request over HTTP is answered at once that it does not exist."""

CLIENTS_FAULT: Final = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.POLICY_VIOLATION,
    }
)


def failure_of_client(error: ClientError) -> KafkaFailure:
    if not isinstance(error, BrokerRefused):
        return ClusterNotReady(f"The cluster does not answer: {error}.")
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupNotFound(f"{error}.")
    if error.code == ErrorCode.NON_EMPTY_GROUP:
        return GroupInUse(f"{error}. Stop its members first, or wait until they have left.")
    if error.code in CLIENTS_FAULT:
        return InvalidRequest(f"{error}.")
    if error.is_retriable and error.code not in MISSING_TOPIC:
        return ClusterNotReady(f"{error}.")
    return ClusterUnavailable(f"{error}.")
