"""What administrators ask of a share group's coordinator about queues, which the leaders of partitions serve."""

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_client import NOT_REACHED, ConnectionClass, NodeClient, NodeRequest, no_response
from headwater.broker.nodes.node_messages import NodeCallKind, ShareOffset
from headwater.broker.nodes.routed import route_to
from headwater.broker.queues.share_coordinator import ShareCoordinator
from headwater.broker.queues.share_queue import ShareQueue
from headwater.broker.topics.catalog import Catalog
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import Offset, PartitionId, TopicId

NO_TOPIC = ""


class ShareAdmin:
    def __init__(self, catalog: Catalog, shares: ShareCoordinator, nodes: NodeClient) -> None:
        self._catalog = catalog
        self._shares = shares
        self._nodes = nodes

    # For the whole cluster. Raises RequestError if one node does not answer.

    async def offsets(self, group_id: str) -> list[ShareOffset]:
        """Where the group is in everything that it has read."""
        offsets = await self.offsets_here(group_id)
        body = node_messages.text(group_id)
        request = NodeRequest(
            NodeCallKind.SHARE_OFFSETS, ConnectionClass.BULK, lambda: body, node_messages.read_share_offsets
        )
        with _understood():
            for others in await self._nodes.call_all(request):
                offsets += others
        return offsets

    async def reset(self, group_id: str, partition: PartitionId, offset: Offset) -> None:
        """Begin anew at an offset; one outside the log is moved to its nearest end."""
        self._catalog.topic_by_id(partition.topic_id)
        route = route_to(partition, self._catalog, self._nodes)
        if route.is_here:
            await self.reset_here(group_id, partition, offset)
            return
        body = node_messages.text(group_id) + node_messages.partition(partition) + node_messages.number(offset)
        with _understood():
            await route.send(NodeRequest(NodeCallKind.RESET_SHARE, ConnectionClass.STATE, lambda: body, no_response))

    async def forget(self, group_id: str, topic_id: TopicId | None = None) -> None:
        """What the group has read of a topic, or of all."""
        await self.forget_here(group_id, topic_id)
        topic = topic_id.hex if topic_id is not None else NO_TOPIC
        body = node_messages.text(group_id) + node_messages.text(topic)
        with _understood():
            await self._nodes.call_all(
                NodeRequest(NodeCallKind.FORGET_SHARES, ConnectionClass.BULK, lambda: body, no_response)
            )

    # Of the partitions that are led here

    async def offsets_here(self, group_id: str) -> list[ShareOffset]:
        return [_offset(queue) for queue in await self._shares.loaded(group_id)]

    async def reset_here(self, group_id: str, partition_id: PartitionId, offset: Offset) -> None:
        partition = self._catalog.topic_by_id(partition_id.topic_id).partition(partition_id.index)
        start = min(max(offset, partition.log_start), partition.high_watermark)
        await self._shares.reset(group_id, partition, start)

    async def forget_here(self, group_id: str, topic_id: TopicId | None) -> None:
        queues = await self._shares.loaded(group_id)
        await self._shares.forget(
            queue for queue in queues if topic_id is None or queue.partition.id.topic_id == topic_id
        )

    def check_led(self, partition: PartitionId) -> None:
        """Raises RequestError while no node leads a partition: the group's offset there is not known then."""
        self._nodes.check_led(partition)


@contextmanager
def _understood() -> Iterator[None]:
    """An administrator speaks with the coordinator, and knows nothing of other nodes: it may ask again."""
    try:
        yield
    except RequestError as error:
        if error.code in NOT_REACHED:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        raise


def _offset(queue: ShareQueue) -> ShareOffset:
    start = queue.share.start_offset
    return ShareOffset(queue.partition.id, start, queue.lag, queue.partition.epoch_at(start))
