"""Records of any partition, wherever it is led: for what the broker itself writes to topics of its users."""

from headwater.broker.log.partition import Partition
from headwater.broker.nodes import node_messages as node_calls
from headwater.broker.nodes.node_client import Lane, NodeClient
from headwater.broker.nodes.node_messages import Kind, ReadBatches
from headwater.broker.topics.catalog import Catalog
from headwater.model.ids import Offset, PartitionId
from headwater.records.batch import parse_header


class PartitionClient:
    def __init__(self, catalog: Catalog, nodes: NodeClient) -> None:
        self._catalog = catalog
        self._nodes = nodes

    async def append(self, partition_id: PartitionId, batch: bytearray) -> None:
        """Returns when the batch is committed. Raises RequestError, upon which it may be there all the same."""
        partition = await self._led(partition_id)
        if partition is None:
            body = node_calls.partition(partition_id) + batch
            await self._nodes.ask_leader(partition_id, Kind.APPEND, body, Lane.BULK)
            return
        appended = partition.append(batch, parse_header(batch))
        if appended.committed is not None:
            await appended.committed

    async def read(self, partition_id: PartitionId, offset: Offset, max_bytes: int) -> ReadBatches:
        """Committed batches from an offset on, or from the start of the log. Raises RequestError, StoreError."""
        partition = await self._led(partition_id)
        if partition is not None:
            found = await partition.read(max(offset, partition.log_start), max_bytes)
            return ReadBatches(partition.log_start, partition.high_watermark, memoryview(found))
        body = node_calls.read_request(partition_id, offset, max_bytes)
        return node_calls.read_batches(await self._nodes.ask_leader(partition_id, Kind.READ, body, Lane.BULK))

    async def _led(self, partition_id: PartitionId) -> Partition | None:
        """What this node leads, or is about to, as it is with topics that were made a moment ago. Raises RequestError
        if there is no such topic, or nobody else who could lead."""
        await self._catalog.leadership.begun(partition_id)
        topic = self._catalog.topic_by_id(partition_id.topic_id)
        return topic.partition(partition_id.index) if self._nodes.is_alone else topic.led.get(partition_id.index)
