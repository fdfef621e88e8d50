"""What a produce may write: asked once for each topic of the request, and for its transactional id, before any batch is
looked at further. Where clients are not restricted, nothing of this is called.

As in Kafka it does not matter whether a producer is idempotent, and one transactional batch that is refused, refuses
the whole request.
"""

from headwater.broker.access.client_access import ClientAccess, refused
from headwater.broker.access.topic_access import refusal_by_id, topic_refusal
from headwater.broker.topics.catalog import Catalog
from headwater.model.errors import ErrorCode, RequestError
from headwater.records.batch import claims_transaction
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.produce import ProduceRequest, TopicData


def transaction_refusal(access: ClientAccess, request: ProduceRequest) -> RequestError | None:
    """Of the whole request."""
    for topic in request.topics:
        for data in topic.partitions:
            if claims_transaction(data.records):
                return _transaction_refusal(access, request.transactional_id)
    return None


def write_refusal(access: ClientAccess, catalog: Catalog, topic: TopicData) -> RequestError | None:
    """Of one topic. An id that is not known is left to those who look for the topic."""
    if topic.name is not None:
        return topic_refusal(access, Operation.WRITE, topic.name)
    known = catalog.find_id(topic.topic_id) if topic.topic_id is not None else None
    return refusal_by_id(access, Operation.WRITE, known.name) if known is not None else None


def _transaction_refusal(access: ClientAccess, transactional_id: str | None) -> RequestError | None:
    if transactional_id is None:
        return unnamed_transaction()
    return refused(access, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def unnamed_transaction() -> RequestError:
    return RequestError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "The request names no transactional id.")
