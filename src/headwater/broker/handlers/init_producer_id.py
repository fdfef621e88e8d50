"""InitProducerId (22), versions 0 to 5: an id for an idempotent producer.

Ids come in blocks from a counter in the metadata store, so that none is given twice, whoever asks and whatever crashes.
Transactions are not served yet: a transactional id is refused for good, so that no client keeps trying.
"""

from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=22, name="InitProducerId", min_version=0, max_version=5)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST if not request.transactional_id else ErrorCode.UNSUPPORTED_VERSION
        raise RequestError(code, "Transactions are not supported yet.")
    return Message(error_code=ErrorCode.NONE, producer_id=await broker.producer_ids.next(), producer_epoch=0)
