"""WriteTxnMarkers (27), versions 1 and 2: end a transaction in the partitions that this broker leads.

Coordinators on other nodes send it, and administrators who abort a transaction that its coordinator forgot.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess, refused
from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.cluster import AUDIT_TOPIC
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.WRITE_TXN_MARKERS,
    name="WriteTxnMarkers",
    access=Access.by_handler(
        on_cluster(
            Operation.ALTER,
            refused_at="markers[].topics[].partitions[].error_code",
            or_else=on_cluster(Operation.CLUSTER_ACTION, refused_at="markers[].topics[].partitions[].error_code"),
        )
    ),
    min_version=1,
    max_version=2,
)


async def handle(broker: "Broker", request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    refusal = _refusal(context.access)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=await _write(broker, marker, topic.name, index)
                                if refusal is None
                                else refusal.code,
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _refusal(access: ClientAccess) -> RequestError | None:
    if access.grants(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    return refused(access, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


async def _write(broker: "Broker", marker: WritableTxnMarker, topic: str, index: int) -> ErrorCode:
    if topic == AUDIT_TOPIC:
        return ErrorCode.INVALID_TOPIC_EXCEPTION  # no transaction was ever there
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
