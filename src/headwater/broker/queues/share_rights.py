"""What the client of one share fetch or acknowledgement may read, by the bindings of the moment.

A fetch may wait for long, and bindings change meanwhile: verdicts are kept under one version of them, and asked for
again under the next. A group that may no longer be read refuses each of its partitions.
"""

from headwater.broker.access.client_access import ClientAccess, refused
from headwater.broker.topics.catalog import Catalog
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import TopicId
from headwater.security.access_codes import Operation, ResourceType


class ShareRights:
    def __init__(self, catalog: Catalog, access: ClientAccess, group_id: str) -> None:
        """The group may be read now: that was checked before the request began."""
        self._catalog = catalog
        self._access = access
        self._group_id = group_id
        self._version = access.version
        self._group_refusal: RequestError | None = None
        self._refusals: dict[TopicId, RequestError | None] = {}

    def refusal(self, topic_id: TopicId) -> RequestError | None:
        """None: the client may read the topic, or there is no such topic."""
        self._follow()
        if self._group_refusal is not None:
            return self._group_refusal
        if topic_id not in self._refusals:
            topic = self._catalog.find_id(topic_id)
            if topic is None:
                return None
            is_allowed = self._access.allows(Operation.READ, ResourceType.TOPIC, topic.name)
            self._refusals[topic_id] = None if is_allowed else _refusal_of_topic()
        return self._refusals[topic_id]

    def error(self, topic_id: TopicId) -> ErrorCode:
        refusal = self.refusal(topic_id)
        return refusal.code if refusal is not None else ErrorCode.NONE

    def check_group(self) -> None:
        """Raises RequestError."""
        self._follow()
        if self._group_refusal is not None:
            raise self._group_refusal

    def _follow(self) -> None:
        version = self._access.version
        if version != self._version:
            self._version = version
            self._refusals.clear()
            self._group_refusal = refused(self._access, Operation.READ, ResourceType.GROUP, self._group_id)


def _refusal_of_topic() -> RequestError:
    """Without the topic's name: the client gave the id, and may not learn the name."""
    return RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The client may not read the topic of this id.")


def share_rights(catalog: Catalog, access: ClientAccess, group_id: str) -> ShareRights | None:
    """None: the client may read everything."""
    return ShareRights(catalog, access, group_id) if access.is_restricted else None
