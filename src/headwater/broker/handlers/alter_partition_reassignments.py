"""AlterPartitionReassignments (45): where the replicas of a partition shall be. Versions 0 and 1: in 1 a change of
their number can be forbidden.

The first node is the leader that is wanted. The controller moves the open segment and copies the sealed ones; what was
asked for stays as the place of new segments when that is done. Null takes it back, also when it is done: new segments
may lie anywhere again, and what was copied stays. Only the controller takes it: other nodes answer NOT_CONTROLLER.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.broker.topics.topic import Topic
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    name="AlterPartitionReassignments",
    access=Access.first(on_cluster(Operation.ALTER)),
    min_version=0,
    max_version=1,
)


async def handle(
    broker: "Broker", request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    if broker.member is not None:
        broker.member.controlling()
    responses = []
    for asked in request.topics:
        answers = []
        for partition in asked.partitions:
            answer = ReassignablePartitionResponse(
                partition_index=partition.partition_index, error_code=ErrorCode.NONE, error_message=None
            )
            try:
                topic = broker.catalog.topic(asked.name)
                await _alter(
                    broker,
                    topic,
                    partition.partition_index,
                    partition.replicas,
                    request.allow_replication_factor_change,
                )
            except RequestError as error:
                answer.error_code, answer.error_message = error.code, error.message
            answers.append(answer)
        responses.append(ReassignableTopicResponse(name=asked.name, partitions=answers))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )


async def _alter(
    broker: "Broker", topic: Topic, index: int, nodes: Sequence[NodeId] | None, may_change_count: bool
) -> None:
    partition = topic.partition_id(index)
    if nodes is None and index not in topic.placed:
        raise RequestError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "The partition has no reassignment.")
    if nodes is not None:
        _check(broker, nodes)
        count = topic.rules(index).replication_factor
        if not may_change_count and len(nodes) != count:
            raise RequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"The partition has {count} replicas, and {len(nodes)} are named."
            )
    if broker.member is None:
        return  # alone, there is one place, and everything is there
    try:
        await broker.member.controlling().reassign(partition, tuple(nodes or ()))
    except (Unavailable, Unknown) as error:
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store does not answer: {error}") from error


def _check(broker: "Broker", nodes: Sequence[NodeId]) -> None:
    if not nodes or len(set(nodes)) != len(nodes):
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "One or more nodes are needed, each of them once.")
    able = broker.cluster_nodes.storing()
    unable = [node for node in nodes if node not in able]
    if unable:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Node {unable[0]} has no store that can take replicas now; "
            f"nodes that have one are {', '.join(map(str, sorted(able)))}.",
        )
