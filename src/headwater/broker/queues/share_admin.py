"""What administrators ask of a share group's coordinator about queues, which the leaders of partitions serve."""

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.broker.nodes import node_messages as node_calls
from headwater.broker.nodes.node_client import NOT_REACHED, Lane, NodeClient
from headwater.broker.nodes.node_messages import Kind, ShareOffset
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
        found = await self.offsets_here(group_id)
        with _understood():
            for answer in await self._nodes.ask_all(Kind.SHARE_OFFSETS, node_calls.text(group_id), Lane.BULK):
                found += node_calls.read_share_offsets(answer)
        return found

    async def reset(self, group_id: str, partition: PartitionId, offset: Offset) -> None:
        """Begin anew at an offset; one outside the log is moved to its nearest end."""
        topic = self._catalog.topic_by_id(partition.topic_id)
        if self._nodes.is_alone or partition.index in topic.led:
            await self.reset_here(group_id, partition, offset)
            return
        body = node_calls.text(group_id) + node_calls.partition(partition) + node_calls.number(offset)
        with _understood():
            await self._nodes.ask_leader(partition, Kind.RESET_SHARE, body, Lane.STATE)

    async def forget(self, group_id: str, topic_id: TopicId | None = None) -> None:
        """What the group has read of a topic, or of all."""
        await self.forget_here(group_id, topic_id)
        topic = topic_id.hex if topic_id is not None else NO_TOPIC
        body = node_calls.text(group_id) + node_calls.text(topic)
        with _understood():
            await self._nodes.ask_all(Kind.FORGET_SHARES, body, Lane.BULK)

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
        """Raises RequestError while nobody leads a partition: where a group is there cannot be said."""
        if not self._nodes.is_alone and not self._nodes.is_alive(self._nodes.leader(partition)):
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE)


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
