"""What clients may do with topics: the checks that more than one API makes.

A check comes before the question whether there is such a topic, so a refusal does not answer it. A topic that is asked
for by an id has a name only if it exists: its id is no secret, as in Kafka, and its name is.
"""

from headwater.broker.access.client_access import ClientAccess, refused
from headwater.model.errors import RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.acl_words import operation_word
from headwater.security.principal import CLUSTER_NAME


def topic_refusal(access: ClientAccess, operation: Operation, topic: str) -> RequestError | None:
    """None where it is allowed."""
    return refused(access, operation, ResourceType.TOPIC, topic)


def refusal_by_id(access: ClientAccess, operation: Operation, topic: str) -> RequestError | None:
    """Of the topic that has the id: the error names it to clients that may describe it."""
    refusal = topic_refusal(access, operation, topic)
    if refusal is None or access.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic):
        return refusal
    return RequestError(refusal.code, f"The client may not {operation_word(operation)} the topic of this id.")


def creation_refusal(access: ClientAccess, topic: str) -> RequestError | None:
    """None for clients that may create every topic, or this one."""
    if access.grants(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    return topic_refusal(access, Operation.CREATE, topic)
