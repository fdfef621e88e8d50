"""FindCoordinator (10): who coordinates a group or a transaction, or keeps what a share group did with a partition.
Versions 0 to 6: one key, and from 4 on many; from 6 on those of share groups, `group:topic id:partition` (KIP-932).

It is the leader of the partition of the internal topic that keeps the state; the topic is created here, before the
first request needs it.
"""

import base64
import binascii
import uuid
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_cluster, on_group, on_transactional_id
from headwater.broker.api import Api, RequestContext
from headwater.broker.nodes.node_messages import ShareKey
from headwater.groups.shard import check_group_id
from headwater.model.cluster import Node
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NO_NODE, PartitionId
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.principal import CLUSTER_NAME
from headwater.wire.api_keys import ApiKey
from headwater.wire.typed.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(
    key=ApiKey.FIND_COORDINATOR,
    name="FindCoordinator",
    access=Access.by_handler(
        on_group(Operation.DESCRIBE, "key", versions=range(4), condition="of a group"),
        on_transactional_id(Operation.DESCRIBE, "key", versions=range(1, 4), condition="of a transactional id"),
        on_group(
            Operation.DESCRIBE,
            "coordinator_keys[]",
            refused_at="coordinators[].error_code",
            versions=range(4, 100),
            condition="of a group",
        ),
        on_transactional_id(
            Operation.DESCRIBE,
            "coordinator_keys[]",
            refused_at="coordinators[].error_code",
            versions=range(4, 100),
            condition="of a transactional id",
        ),
        on_cluster(
            Operation.CLUSTER_ACTION,
            refused_at="coordinators[].error_code",
            versions=range(6, 100),
            condition="of a partition of a share group",
        ),
    ),
    min_version=0,
    max_version=6,
)

GROUP = 0
TRANSACTION = 1
SHARE = 2
FIRST_WITH_SHARE = 6


async def handle(broker: "Broker", request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.api_version < 4:
        found = await _find(broker, request.key, request.key_type, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    keys = dict.fromkeys(request.coordinator_keys)
    return FindCoordinatorResponse(coordinators=[await _find(broker, key, request.key_type, context) for key in keys])


async def _find(broker: "Broker", key: str, key_type: int, context: RequestContext) -> Coordinator:
    try:
        _check(context.access, key, key_type)
        if key_type == GROUP:
            check_group_id(key)
            partition = await broker.groups.offsets_partition(key)
        elif key_type == TRANSACTION:
            partition = await broker.transactions.state_partition(key)
        elif key_type == SHARE and context.api_version >= FIRST_WITH_SHARE:
            partition = await broker.shares.states.state_partition(_share_key(key))
        else:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type}.")
        node = _leader(broker, partition)
        host, port = _address(node, context.listener)
    except RequestError as error:
        return Coordinator(
            key=key, error_code=error.code, error_message=error.message, node_id=NO_NODE, host="", port=-1
        )
    return Coordinator(
        key=key, error_code=ErrorCode.NONE, error_message=None, node_id=node.node_id, host=host, port=port
    )


def _check(access: ClientAccess, key: str, key_type: int) -> None:
    """Raises RequestError."""
    if key_type == GROUP:
        access.require(Operation.DESCRIBE, ResourceType.GROUP, key)
    elif key_type == TRANSACTION:
        access.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
    elif key_type == SHARE:
        access.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def _address(node: Node, listener: str) -> tuple[str, int]:
    address = node.address_on(listener)
    if address is None:
        raise RequestError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Node {node.node_id} coordinates, and has no listener {listener}."
        )
    return address


def _share_key(key: str) -> ShareKey:
    group_id, *rest = key.rsplit(":", 2)
    try:
        topic_id, index = rest
        padding = "=" * (-len(topic_id) % 4)
        partition = PartitionId(uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + padding)), int(index))
    except (ValueError, binascii.Error):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{key[:100]} names no share partition.") from None
    check_group_id(group_id)
    return ShareKey(group_id, partition)


def _leader(broker: "Broker", partition: PartitionId) -> Node:
    head = broker.catalog.topic_by_id(partition.topic_id).head(partition.index)
    node = broker.cluster_nodes.find(head.leader) if head is not None and head.open is not None else None
    if node is None:
        raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is being elected. Ask again soon.")
    return node
