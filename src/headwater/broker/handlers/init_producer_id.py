"""InitProducerId (22), versions 0 to 5: an id and an epoch for an idempotent or a transactional producer.

Ids come in blocks from a counter in the metadata store, so that none is given twice, whatever crashes.
A transactional producer gets the id that its transactional id has, with the next epoch: the producer with the
last epoch is fenced, and a transaction that it left open is aborted first.

    3 a producer says which epoch it had, and goes on from there (KIP-360)   4 PRODUCER_FENCED is understood
"""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_cluster, on_topic, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    name="InitProducerId",
    access=Access.by_handler(
        on_transactional_id(Operation.WRITE, condition="if there is one"),
        on_cluster(
            Operation.IDEMPOTENT_WRITE,
            or_else=on_topic(Operation.WRITE, refused_at="error_code", condition="any topic"),
            condition="without a transactional id",
        ),
    ),
    min_version=0,
    max_version=5,
)

FIRST_WITH_FENCED = 4


async def handle(broker: "Broker", request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    try:
        _check(context.access, request.transactional_id)
    except RequestError as error:
        return _refused(error.code, context.api_version)
    if request.transactional_id is None:
        return InitProducerIdResponse(
            error_code=ErrorCode.NONE, producer_id=await broker.producer_ids.next(), producer_epoch=0
        )
    try:
        answer = await broker.transactions.init_producer(
            request.transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
        )
    except RequestError as error:
        return _refused(error.code, context.api_version)
    if answer.error is not ErrorCode.NONE:
        return _refused(answer.error, context.api_version)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


def _check(access: ClientAccess, transactional_id: str | None) -> None:
    """Raises RequestError."""
    if transactional_id is not None:
        access.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not access.grants_on_any(Operation.WRITE, ResourceType.TOPIC):
        access.require(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)


def _refused(code: ErrorCode, version: int) -> InitProducerIdResponse:
    if code is ErrorCode.PRODUCER_FENCED and version < FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
