"""What a request to the cluster can fail with. Messages are sentences for people; HTTP answers them as they are
(http/kafka_problems.py).

They come from librdkafka's errors (librdkafka_errors.py) and from those of our own client (client_errors.py)."""


class KafkaFailure(Exception):
    """`about` names what the failure concerns: a topic, a group, the error code of the cluster."""

    def __init__(self, message: str, **about: str) -> None:
        super().__init__(message)
        self.about = about


class ClusterNotReady(KafkaFailure):
    """Leaders and coordinators move, or load what they need: the same request succeeds soon (until_ready.py)."""


class ClusterUnavailable(KafkaFailure):
    """The cluster does not answer, or the client is closed."""


class ClientBusy(KafkaFailure):
    """A limit of the client is reached, not one of the cluster."""


class InvalidRequest(KafkaFailure):
    """The cluster, or the client before it, rejects what was asked for."""


class TopicNotFound(KafkaFailure):
    """The topic does not exist."""


class TopicExists(KafkaFailure):
    """The topic to be created exists."""


class GroupNotFound(KafkaFailure):
    """The group does not exist."""


class GroupInUse(KafkaFailure):
    """The group has members, and is changed or deleted only without them."""


class RecordOverLimit(KafkaFailure):
    """The topic does not accept a record of this size."""


class NotAuthorized(KafkaFailure):
    """The cluster does not allow this client to do it."""


class ClusterError(KafkaFailure):
    """Any other error of the cluster."""


def topic_not_found(topic: str) -> TopicNotFound:
    return TopicNotFound(f"There is no topic {topic}.", topic=topic)


def group_not_found(group: str) -> GroupNotFound:
    return GroupNotFound(f"There is no group {group}.", group=group)
