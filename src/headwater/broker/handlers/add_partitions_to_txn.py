"""AddPartitionsToTxn (24): partitions become part of a transaction, before the first record is written there.

Versions 0 to 3 come from clients of the older protocol: one transaction, all or nothing. Versions 4 and 5 carry
several, and may ask to look only (KIP-890). From 2 on PRODUCER_FENCED is understood.
"""

from typing import TYPE_CHECKING

from headwater.broker.dispatch import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.transactions.requests import AddPartitions
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=24, name="AddPartitionsToTxn", min_version=0, max_version=5)

FIRST_WITH_FENCED = 2
FIRST_BATCHED = 4


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    if context.api_version >= FIRST_BATCHED:
        return Message(
            error_code=ErrorCode.NONE,
            results_by_transaction=[
                Message(
                    transactional_id=each.transactional_id,
                    topic_results=await _add(
                        broker,
                        context,
                        each.transactional_id,
                        each.producer_id,
                        each.producer_epoch,
                        each.topics,
                        is_verify_only=each.verify_only,
                    ),
                )
                for each in request.transactions
            ],
        )
    return Message(
        results_by_topic_v3_and_below=await _add(
            broker,
            context,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            request.v3_and_below_topics,
            is_verify_only=False,
        )
    )


async def _add(
    broker: "Broker",
    context: RequestContext,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    topics: list[Message],
    *,
    is_verify_only: bool,
) -> list[Message]:
    """The answer for each partition, in the shape that all versions share."""
    found = {(topic.name, index): _find(broker, topic.name, index) for topic in topics for index in topic.partitions}
    errors = {name: each for name, each in found.items() if isinstance(each, ErrorCode)}
    if errors:
        # One that cannot be added spoils the others: the client mends its request and sends it again.
        errors = {name: errors.get(name, ErrorCode.OPERATION_NOT_ATTEMPTED) for name in found}
    else:
        known = {name: each for name, each in found.items() if isinstance(each, PartitionId)}
        add = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=frozenset(known.values()),
            is_verify_only=is_verify_only,
            version=1,
            connection=context.connection.serial if context.api_version < FIRST_BATCHED else 0,
        )
        refused = await _ask(broker, add)
        errors = {name: refused.get(partition, ErrorCode.NONE) for name, partition in known.items()}
        if is_verify_only:
            errors = _replaced(errors, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    if context.api_version < FIRST_WITH_FENCED:
        errors = _replaced(errors, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    return [
        Message(
            name=topic.name,
            results_by_partition=[
                Message(partition_index=index, partition_error_code=errors[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


async def _ask(broker: "Broker", add: AddPartitions) -> dict[PartitionId, ErrorCode]:
    try:
        return (await broker.transactions.add_partitions(add)).errors(add.partitions)
    except RequestError as error:
        return dict.fromkeys(add.partitions, error.code)


def _replaced(
    errors: dict[tuple[str, int], ErrorCode], old: ErrorCode, new: ErrorCode
) -> dict[tuple[str, int], ErrorCode]:
    return {name: new if code is old else code for name, code in errors.items()}


def _find(broker: "Broker", name: str, index: int) -> PartitionId | ErrorCode:
    topic = broker.catalog.find(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.is_internal:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return topic.partitions[index].id
