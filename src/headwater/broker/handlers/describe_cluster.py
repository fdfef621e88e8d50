"""DescribeCluster (60): the brokers and who controls them. Versions 0 to 2: from 1 on the client says whether it asks
a broker or a controller; this listener is a broker's. From 2 on it may ask for fenced brokers, too (KIP-1073): nodes
that are gone, and whose stores are missed.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access
from headwater.broker.api import Api, RequestContext
from headwater.broker.authorized_operations import NOT_ASKED, operations_on_cluster
from headwater.model.errors import ErrorCode, RequestError
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_CLUSTER,
    name="DescribeCluster",
    access=Access.open("every client that may connect may know the nodes, as in Kafka"),
    min_version=0,
    max_version=2,
)

BROKERS = 1
CONTROLLERS = 2
UNKNOWN_ADDRESS = ("", -1)
"""Of a node that is gone, on another listener than its first: that is all that is remembered."""


def handle(broker: "Broker", request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        raise RequestError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is a broker's listener, not a controller's.")
    if request.endpoint_type != BROKERS:
        raise RequestError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Endpoint type {request.endpoint_type} is unknown.")
    brokers = [
        DescribeClusterBroker(broker_id=node.node_id, host=host, port=port, rack=node.rack, is_fenced=False)
        for node, host, port in broker.cluster_nodes.listed(context.listener)
    ]
    if request.include_fenced_brokers:
        is_first = context.listener == broker.config.client_listeners[0].name
        brokers += [
            DescribeClusterBroker(broker_id=it.node_id, host=host, port=port, rack=it.rack, is_fenced=True)
            for it in broker.cluster_nodes.away()
            for host, port in [(it.host, it.port) if is_first else UNKNOWN_ADDRESS]
        ]
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.cluster_nodes.controller_id,
        brokers=brokers,
        cluster_authorized_operations=operations_on_cluster(context.access)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
