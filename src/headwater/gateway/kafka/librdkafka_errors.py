"""What the error codes of librdkafka mean, as failures that callers can tell apart."""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from headwater.gateway.kafka.client_errors import MISSING_TOPIC
from headwater.gateway.kafka.errors import (
    ClusterError,
    ClusterNotReady,
    ClusterUnavailable,
    GroupInUse,
    InvalidRequest,
    KafkaFailure,
    NotAuthorized,
    RecordOverLimit,
    TopicExists,
    group_not_found,
    topic_not_found,
)
from headwater.model.errors import COORDINATOR_MOVES, ErrorCode

UNKNOWN_TOPIC: Final = frozenset({*MISSING_TOPIC, KafkaError._UNKNOWN_TOPIC})

FINAL: Final = MISSING_TOPIC | {ErrorCode.CORRUPT_MESSAGE}
"""Codes that Kafka's clients try again after, and HTTP does not: a topic that is missing, and a record that the broker
still finds damaged when librdkafka has sent it again."""

UNREACHABLE: Final = frozenset(
    (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._WAIT_COORD,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._DESTROY,
        KafkaError._FATAL,
        KafkaError._WAIT_CACHE,
        KafkaError.BROKER_NOT_AVAILABLE,  # tools alone are told so, in Kafka; here it is a node that stops
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,  # fatal for a producer, which is then replaced
        *(code for code in ErrorCode if code.is_retriable and code not in FINAL),
    )
)
"""No broker answers, or not now: a client may try again."""

NO_BROKER: Final = frozenset((KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE))

PASSING: Final = frozenset(
    (
        KafkaError._WAIT_COORD,
        KafkaError._NOENT,  # none of the partitions asked about has a leader
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        *COORDINATOR_MOVES,
    )
)
"""Leaders and coordinators move, or load what they need: librdkafka gives up at once. After other errors that pass it
has tried again itself, for as long as it was given."""

CLIENTS_FAULT: Final = frozenset(
    (
        KafkaError.INVALID_REQUEST,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REPLICA_ASSIGNMENT,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_ARG,
        KafkaError._UNKNOWN_PARTITION,
    )
)


def failure_of(error: KafkaError | KafkaException, *, topic: str = "", group: str = "") -> KafkaFailure:
    """What a KafkaError means, or the exception that carries one."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    code, why = error.code(), reason(error)
    if code in PASSING:
        return ClusterNotReady(f"The cluster is not ready to do it: {why}.")
    if code in NO_BROKER:
        return ClusterUnavailable(
            f"No broker answers this gateway: {why}. "
            "Is one running? `headwater cluster status` shows the nodes of a cluster."
        )
    if code in UNREACHABLE:
        return ClusterUnavailable(f"The cluster did not do it in time: {why}.")
    if code in UNKNOWN_TOPIC:
        return topic_not_found(topic)
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return TopicExists(f"Topic {topic} exists already.", topic=topic)
    if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return RecordOverLimit(f"The topic takes no record of this size: {why}.")
    if code == KafkaError.GROUP_ID_NOT_FOUND:
        return group_not_found(group)
    if code == KafkaError.NON_EMPTY_GROUP:
        return GroupInUse(f"Group {group} has members that are running. Stop them first.")
    if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        return NotAuthorized(f"The cluster does not allow it: {why}.")
    if code in CLIENTS_FAULT:
        return InvalidRequest(f"The cluster refuses it: {why}.")
    return ClusterError(f"The cluster answered: {why}.", code=error.name())


def reason(error: KafkaError) -> str:
    return f"{(error.str() or '').rstrip('.')} ({error.name()})"
