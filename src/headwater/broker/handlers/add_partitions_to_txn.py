"""AddPartitionsToTxn (24): partitions become part of a transaction, before the first record is written there.

Versions 0 to 3 come from clients of the older protocol: one transaction, all or nothing. Versions 4 and 5 carry
several, and may ask to look only (KIP-890). From 2 on PRODUCER_FENCED is understood.
"""

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_cluster, on_topic, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.broker.transactions.partition_addition import PartitionAddition, replaced
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.ADD_PARTITIONS_TO_TXN,
    name="AddPartitionsToTxn",
    access=Access.by_handler(
        on_transactional_id(
            Operation.WRITE,
            "v3_and_below_transactional_id",
            refused_at="results_by_topic_v3_and_below[].results_by_partition[].partition_error_code",
            versions=range(4),
        ),
        on_topic(
            Operation.WRITE,
            "v3_and_below_topics[].name",
            refused_at="results_by_topic_v3_and_below[].results_by_partition[].partition_error_code",
            versions=range(4),
        ),
        on_cluster(Operation.CLUSTER_ACTION, versions=range(4, 100)),
    ),
    min_version=0,
    max_version=5,
)

FIRST_WITH_FENCED = 2
FIRST_BATCHED = 4


def handle(
    broker: "Broker", request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Coroutine[Any, Any, AddPartitionsToTxnResponse]:
    """At once if the coordinator's event is on disk at once."""
    if context.api_version >= FIRST_BATCHED:
        context.access.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        return _add_batched(broker, request, context)
    access, transactional_id = context.access, request.v3_and_below_transactional_id
    names = _names(request.v3_and_below_topics)
    refused: dict[tuple[str, int], ErrorCode] = {}
    if access.is_restricted:
        if not access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _response(request, dict.fromkeys(names, refusal))
        refused = _refused(access, names)
    addition = PartitionAddition(
        broker.catalog,
        broker.transactions,
        names,
        transactional_id=transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        is_verify_only=False,
        connection=context.connection.serial,
        refused=refused,
    )
    return _respond(request, context, addition) if addition.is_answered else _add_later(request, context, addition)


async def _add_later(
    request: AddPartitionsToTxnRequest, context: RequestContext, addition: PartitionAddition
) -> AddPartitionsToTxnResponse:
    await addition.answered()
    return _respond(request, context, addition)


def _respond(
    request: AddPartitionsToTxnRequest, context: RequestContext, addition: PartitionAddition
) -> AddPartitionsToTxnResponse:
    errors = addition.errors()
    if context.api_version < FIRST_WITH_FENCED:
        errors = replaced(errors, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    return _response(request, errors)


def _response(
    request: AddPartitionsToTxnRequest, errors: dict[tuple[str, int], ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(request.v3_and_below_topics, errors))


def _refused(access: ClientAccess, names: Sequence[tuple[str, int]]) -> dict[tuple[str, int], ErrorCode]:
    """The partitions of topics that the client may not write to."""
    topics = dict.fromkeys(topic for topic, _ in names)
    refused = {name for name in topics if not access.allows(Operation.WRITE, ResourceType.TOPIC, name)}
    return {name: ErrorCode.TOPIC_AUTHORIZATION_FAILED for name in names if name[0] in refused}


async def _add_batched(
    broker: "Broker", request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    results: list[AddPartitionsToTxnResult] = []
    for transaction in request.transactions:
        addition = PartitionAddition(
            broker.catalog,
            broker.transactions,
            _names(transaction.topics),
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            is_verify_only=transaction.verify_only,
            connection=0,
        )
        await addition.answered()
        topics = _results(transaction.topics, addition.errors())
        results.append(AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topics))
    return AddPartitionsToTxnResponse(error_code=ErrorCode.NONE, results_by_transaction=results)


def _names(topics: Sequence[AddPartitionsToTxnTopic]) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], errors: dict[tuple[str, int], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    """The result of each partition, in the shape that all versions share."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=errors[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
