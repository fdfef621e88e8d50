"""DescribeQuorum (55): who the controller is, and who may become it. Versions 0 to 2: from 2 on with addresses.

Voters are the nodes that may be elected, observers the others, among them those that are gone and missed. The leader
epoch is the number of elections, 0 for a node that is alone. There is no log of metadata between the nodes: all read
one store, so offsets and times, which tell who lags behind, are -1, which is Kafka's word for not known. Of a node that
is gone the time of its last fetch is when it was noticed to be gone.
"""

from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.cluster import Node, Role
from headwater.model.errors import ErrorCode
from headwater.model.ids import NO_OFFSET, LeaderEpoch
from headwater.records.batch import NO_TIMESTAMP
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from headwater.wire.typed.describe_quorum import Node as QuorumNode

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.DESCRIBE_QUORUM,
    name="DescribeQuorum",
    access=Access.first(on_cluster(Operation.DESCRIBE)),
    min_version=0,
    max_version=2,
)

TOPIC = "__cluster_metadata"


def handle(broker: "Broker", request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    alive = broker.cluster_nodes.alive()
    topics = [
        ResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                _partition(broker, alive, topic.topic_name, index)
                for index in dict.fromkeys(partition.partition_index for partition in topic.partitions)
            ],
        )
        for topic in request.topics
    ]
    is_found = any(partition.error_code == ErrorCode.NONE for topic in topics for partition in topic.partitions)
    nodes = [_address(node, context.listener) for node in alive if _may_lead(node)] if is_found else []
    return DescribeQuorumResponse(error_code=ErrorCode.NONE, error_message="", topics=topics, nodes=nodes)


def _partition(broker: "Broker", alive: list[Node], topic: str, index: int) -> ResponsePartitionData:
    cluster_nodes = broker.cluster_nodes
    answer = ResponsePartitionData(partition_index=index, error_message="", current_voters=(), observers=())
    if (topic, index) != (TOPIC, 0):
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer.error_message = f"Only partition 0 of {TOPIC} has a quorum."
        return answer
    if cluster_nodes.find(cluster_nodes.controller_id) is None:
        answer.error_code, answer.error_message = ErrorCode.LEADER_NOT_AVAILABLE, "No controller is elected right now."
        return answer
    answer.error_code = ErrorCode.NONE
    answer.leader_id, answer.leader_epoch = cluster_nodes.controller_id, LeaderEpoch(cluster_nodes.controller_epoch)
    answer.high_watermark = NO_OFFSET
    answer.current_voters = [_replica(node) for node in alive if _may_lead(node)]
    answer.observers = [_replica(node) for node in alive if not _may_lead(node)] + [
        ReplicaState(
            replica_id=it.node_id, log_end_offset=NO_OFFSET, last_fetch_timestamp=it.away_since_ms or NO_TIMESTAMP
        )
        for it in cluster_nodes.away()
    ]
    return answer


def _may_lead(node: Node) -> bool:
    return Role.CONTROLLER in node.roles


def _replica(node: Node) -> ReplicaState:
    return ReplicaState(replica_id=node.node_id, log_end_offset=NO_OFFSET)


def _address(node: Node, listener: str) -> QuorumNode:
    address = node.address_on(listener)
    listeners = [] if address is None else [Listener(name=listener, host=address[0], port=address[1])]
    return QuorumNode(node_id=node.node_id, listeners=listeners)
