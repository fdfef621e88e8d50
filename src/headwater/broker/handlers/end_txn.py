"""EndTxn (26), versions 0 to 5: commit or abort. Answered as soon as the decision is on disk; markers follow.

2 PRODUCER_FENCED is understood   5 the epoch grows with each transaction, and the answer tells it (KIP-890)
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headwater.broker.access.declared_access import Access, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation
from headwater.transactions.effects import EndAnswer
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.END_TXN,
    name="EndTxn",
    access=Access.first(on_transactional_id(Operation.WRITE)),
    min_version=0,
    max_version=5,
)

FIRST_WITH_FENCED = 2
FIRST_WITH_EPOCHS = 5


def handle(
    broker: "Broker", request: EndTxnRequest, context: RequestContext
) -> EndTxnResponse | Coroutine[Any, Any, EndTxnResponse]:
    """At once if the decision is on disk at once."""
    try:
        answered = broker.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            is_commit=request.committed,
            version=2 if context.api_version >= FIRST_WITH_EPOCHS else 1,
            connection=context.connection.serial,
        )
        if not answered.done():
            return _respond_later(answered, context)
        answer = answered.result()
    except RequestError as error:
        answer = EndAnswer(error.code)
    return _response(answer, context)


async def _respond_later(answered: "asyncio.Future[EndAnswer]", context: RequestContext) -> EndTxnResponse:
    try:
        answer = await answered
    except RequestError as error:
        answer = EndAnswer(error.code)
    return _response(answer, context)


def _response(answer: EndAnswer, context: RequestContext) -> EndTxnResponse:
    code = answer.error
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=code, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)
