"""What the error codes of librdkafka mean, as failures that callers can tell apart."""

from confluent_kafka import KafkaError, KafkaException

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

UNREACHABLE = frozenset(
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
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
)
"""No broker answers, or not now: a client may try again."""

NO_BROKER = frozenset((KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE))

PASSING = frozenset(
    (
        KafkaError._WAIT_COORD,
        KafkaError._NOENT,  # none of the partitions asked about has a leader
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
    )
)
"""Leaders and coordinators move, or load what they need."""

UNKNOWN_TOPIC = frozenset((KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID))

CLIENTS_FAULT = frozenset(
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
