"""DescribeTransactions (65), version 0: in which state transactions are, and which partitions they touch."""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import LEFT_OUT, Access, on_topic, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_TRANSACTIONS,
    name="DescribeTransactions",
    access=Access.by_handler(
        on_transactional_id(Operation.DESCRIBE, "transactional_ids[]", refused_at="transaction_states[].error_code"),
        on_topic(Operation.DESCRIBE, refused_at=LEFT_OUT, condition="of the topics of a transaction"),
    ),
    min_version=0,
    max_version=0,
)


def handle(
    broker: "Broker", request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    ids = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(
        transaction_states=[_describe(broker, context.access, transactional_id) for transactional_id in ids]
    )


def _describe(broker: "Broker", access: ClientAccess, transactional_id: str) -> TransactionState:
    try:
        access.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "A transactional id is not empty.")
        transaction = broker.transactions.described(transactional_id)
    except RequestError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    topics: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions, key=lambda each: (str(each.topic_id), each.index)):
        topic = broker.catalog.find_id(partition.topic_id)
        if topic is not None and access.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics.setdefault(topic.name, []).append(partition.index)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )
