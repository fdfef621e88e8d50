"""WriteTxnMarkers (27), versions 1 and 2: end a transaction in the partitions that this broker leads.

Coordinators on other nodes send it, and administrators who abort a transaction that its coordinator forgot.
"""

from typing import TYPE_CHECKING

from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.message import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=27, name="WriteTxnMarkers", min_version=1, max_version=2)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    return Message(
        markers=[
            Message(
                producer_id=marker.producer_id,
                topics=[
                    Message(
                        name=topic.name,
                        partitions=[
                            Message(partition_index=index, error_code=await _write(broker, marker, topic.name, index))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


async def _write(broker: "Broker", marker: Message, topic: str, index: int) -> ErrorCode:
    try:
        await broker.transactions.markers.write(
            broker.catalog.topic(topic).partition(index).id,
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
        )
    except RequestError as error:
        return error.code
    return ErrorCode.NONE
