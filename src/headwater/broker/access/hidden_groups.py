"""Groups that are not described to a client: a description names the topics that members read, so one topic that the
client may not describe hides the whole group."""

from collections.abc import Iterable

from headwater.broker.access.client_access import ClientAccess
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType


def check_topics_of_group(access: ClientAccess, names: Iterable[str]) -> None:
    """`names` of the topics that members read. Raises RequestError, which does not say which one was refused."""
    for name in dict.fromkeys(names):
        if not access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise RequestError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group reads a topic that the client may not describe: DESCRIBE on all of its topics is needed.",
            )
