"""ListPartitionReassignments (46), version 0: which partitions are on their way to other nodes.

Replicas are all nodes that hold something of the partition or are to; those that do not have everything yet are being
added, those that are to give up theirs are being removed. The controller alone knows: other nodes answer
NOT_CONTROLLER. Partitions and topics that are not moving, or do not exist, are left out.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from headwater.broker.access.declared_access import Access, on_cluster
from headwater.broker.api import Api, RequestContext
from headwater.model.errors import ErrorCode
from headwater.security.access_codes import Operation
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    name="ListPartitionReassignments",
    access=Access.first(on_cluster(Operation.DESCRIBE)),
    min_version=0,
    max_version=0,
)


async def handle(
    broker: "Broker", request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    moving = await broker.member.controlling().reassignments() if broker.member is not None else {}
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(asked.name, index) for asked in request.topics for index in asked.partition_indexes}
    found: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    for partition, state in sorted(moving.items()):
        topic = broker.catalog.find_id(partition.topic_id)
        if topic is None or (wanted is not None and (topic.name, partition.index) not in wanted):
            continue
        found[topic.name].append(
            OngoingPartitionReassignment(
                partition_index=partition.index,
                replicas=state.replicas,
                adding_replicas=state.adding,
                removing_replicas=state.removing,
            )
        )
    topics = [OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in sorted(found.items())]
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=topics)
