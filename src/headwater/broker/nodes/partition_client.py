"""Records of any partition, wherever it is led: for what the broker itself writes to topics of its users."""

from headwater.broker.log.partition import Partition
from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_client import ConnectionClass, NodeClient, NodeRequest, no_response
from headwater.broker.nodes.node_messages import NodeCallKind, ReadBatches
from headwater.broker.nodes.routed import Route, route_to
from headwater.broker.topics.catalog import Catalog
from headwater.model.ids import Offset, PartitionId
from headwater.records.batch import parse_header


class PartitionClient:
    def __init__(self, catalog: Catalog, nodes: NodeClient) -> None:
        self._catalog = catalog
        self._nodes = nodes

    async def append(self, partition_id: PartitionId, batch: bytearray) -> None:
        """Returns when the batch is committed. Raises RequestError, upon which it may be there all the same."""

        async def append_here() -> None:
            appended = self._led(partition_id).append(batch, parse_header(batch))
            if appended.committed is not None:
                await appended.committed

        request = NodeRequest(
            NodeCallKind.APPEND,
            ConnectionClass.BULK,
            lambda: node_messages.partition(partition_id) + batch,
            no_response,
        )
        await (await self._route(partition_id)).call(append_here, request)

    async def read(self, partition_id: PartitionId, offset: Offset, max_bytes: int) -> ReadBatches:
        """Committed batches from an offset on, or from the start of the log. Raises RequestError, StoreError."""

        async def read_here() -> ReadBatches:
            partition = self._led(partition_id)
            batches = await partition.read(max(offset, partition.log_start), max_bytes)
            return ReadBatches(partition.log_start, partition.high_watermark, memoryview(batches))

        body = node_messages.read_request(partition_id, offset, max_bytes)
        request = NodeRequest(NodeCallKind.READ, ConnectionClass.BULK, lambda: body, node_messages.read_batches)
        return await (await self._route(partition_id)).call(read_here, request)

    async def _route(self, partition_id: PartitionId) -> Route:
        """Waits while this node is about to lead the partition, as after the creation of a topic. Raises RequestError
        if there is no such topic."""
        await self._catalog.leadership.begun(partition_id)
        self._catalog.topic_by_id(partition_id.topic_id)
        return route_to(partition_id, self._catalog, self._nodes)

    def _led(self, partition_id: PartitionId) -> Partition:
        return self._catalog.topic_by_id(partition_id.topic_id).partition(partition_id.index)
