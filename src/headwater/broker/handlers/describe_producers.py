"""DescribeProducers (61), version 0: which idempotent producers a partition remembers, and how far each has come."""

from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=61, name="DescribeProducers", min_version=0, max_version=0)


def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    return Message(
        topics=[
            Message(
                name=asked.name,
                partitions=[_describe(broker, asked.name, index) for index in asked.partition_indexes],
            )
            for asked in request.topics
        ]
    )


def _describe(broker: "Broker", topic: str, index: int) -> Message:
    try:
        partition = broker.catalog.topic(topic).partition(index)
    except RequestError as error:
        return Message(partition_index=index, error_code=error.code, error_message=error.message, active_producers=())
    return Message(
        partition_index=index,
        error_code=ErrorCode.NONE,
        error_message=None,
        active_producers=[
            Message(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_txn_start_offset,
            )
            for producer in partition.producers.describe()
        ],
    )
