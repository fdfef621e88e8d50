"""DescribeProducers (61), version 0: which producers a partition remembers, how far each has come, and since which
offset its transaction is open."""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_topic
from headwater.broker.access.topic_access import topic_refusal
from headwater.broker.api import Api, RequestContext
from headwater.broker.settings.topic_name import check_topic_name
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation
from headwater.transactions.producer_state import ProducerDescription
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_PRODUCERS,
    name="DescribeProducers",
    access=Access.by_handler(on_topic(Operation.READ, "topics[].name", refused_at="topics[].partitions[].error_code")),
    min_version=0,
    max_version=0,
)


MAX_PRODUCERS = 100_000
"""In one response. A few bytes of request must not become an answer without end."""


def handle(broker: "Broker", request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    topics = []
    described: set[tuple[str, int]] = set()
    room = MAX_PRODUCERS
    for asked in request.topics:
        partitions = []
        refusal = _refusal(context.access, asked.name)
        for index in asked.partition_indexes:
            answer = PartitionResponse(
                partition_index=index, error_code=ErrorCode.NONE, error_message=None, active_producers=()
            )
            try:
                if refusal is not None:
                    raise RequestError(refusal.code, refusal.message)
                if (asked.name, index) in described:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
                described.add((asked.name, index))
                producers = broker.catalog.topic(asked.name).partition(index).producers
                if len(producers) > room:
                    raise RequestError(
                        ErrorCode.INVALID_REQUEST, "Too many producers at once; ask for fewer partitions."
                    )
                room -= len(producers)
                answer.active_producers = [_describe(producer) for producer in producers.describe()]
            except RequestError as error:
                answer.error_code, answer.error_message = error.code, error.message
            partitions.append(answer)
        topics.append(TopicResponse(name=asked.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _refusal(access: ClientAccess, name: str) -> RequestError | None:
    """What cannot be a topic is no secret."""
    try:
        check_topic_name(name)
    except RequestError as error:
        return error
    return topic_refusal(access, Operation.READ, name)


def _describe(producer: ProducerDescription) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_txn_start_offset,
    )
