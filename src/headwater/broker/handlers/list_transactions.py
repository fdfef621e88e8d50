"""ListTransactions (66), versions 0 to 2: transactional ids and their states. Filters by state and producer id, from 1
on by how long a transaction runs, from 2 on by a pattern (RE2, which takes linear time whatever is asked for)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import LEFT_OUT, Access, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.groups.topic_patterns import TopicPattern
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.transactions.transaction import Transaction, TransactionState
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headwater.wire.typed.list_transactions import TransactionState as ListedTransaction

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.LIST_TRANSACTIONS,
    name="ListTransactions",
    access=Access.by_handler(on_transactional_id(Operation.DESCRIBE, "", refused_at=LEFT_OUT)),
    min_version=0,
    max_version=2,
)


def handle(broker: "Broker", request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    access = context.access
    known = {state.value for state in TransactionState}
    wanted = _filter(broker, request)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[name for name in request.state_filters if name not in known],
        transaction_states=[
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.value,
            )
            for transaction in broker.transactions.listed()
            if wanted(transaction)
            and access.shows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
        ],
    )


def _filter(broker: "Broker", request: ListTransactionsRequest) -> Callable[[Transaction], bool]:
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    started_before = broker.clock.now_ms() - request.duration_filter if request.duration_filter >= 0 else None
    pattern = TopicPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def is_wanted(transaction: Transaction) -> bool:
        return (
            (not states or transaction.state.value in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (started_before is None or 0 <= transaction.started_ms < started_before)
            and (pattern is None or pattern.matches(transaction.transactional_id))
        )

    return is_wanted
