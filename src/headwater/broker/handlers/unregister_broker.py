"""UnregisterBroker (64), version 0: forget a node that is gone for good, for instance after it was drained.

Every node takes it. A node that is running, or whose stores are still named by segments, is not forgotten: Kafka would,
and leave partitions that wait for it. One that starts again later is a new one.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.broker.cluster.node_removal import forget
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.UNREGISTER_BROKER,
    name="UnregisterBroker",
    access=Access.first(on_cluster(Operation.ALTER)),
    min_version=0,
    max_version=0,
)


async def handle(
    broker: "Broker", request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    node_id = request.broker_id
    if broker.cluster_nodes.find(node_id) is not None:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"Broker {node_id} is running. Stop it first.")
    try:
        await forget(broker.metadata, node_id)
    except (Unavailable, Unknown) as error:
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store does not answer: {error}") from error
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)
