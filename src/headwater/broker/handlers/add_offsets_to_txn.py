"""AddOffsetsToTxn (25), versions 0 to 4: the offsets of a group become part of a transaction. From 2 on PRODUCER_FENCED
is understood. Clients of the newer protocol do without it: TxnOffsetCommit 5 says the same."""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_group, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.ADD_OFFSETS_TO_TXN,
    name="AddOffsetsToTxn",
    access=Access.first(on_transactional_id(Operation.WRITE), on_group(Operation.READ)),
    min_version=0,
    max_version=4,
)

FIRST_WITH_FENCED = 2


async def handle(broker: "Broker", request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    try:
        await broker.transactions.add_offsets(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            version=1,
            connection=context.connection.serial,
        )
    except RequestError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_WITH_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse(error_code=ErrorCode.NONE)
