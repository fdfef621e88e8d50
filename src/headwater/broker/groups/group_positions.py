"""The positions of all consumer groups, collected from all of their coordinators."""

import asyncio

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_client import ConnectionClass, NodeClient, NodeRequest
from headwater.broker.nodes.node_messages import NodeCallKind
from headwater.broker.nodes.routed import Route
from headwater.model.group_position import GroupPosition
from headwater.model.ids import PartitionId


class GroupPositions:
    def __init__(self, groups: GroupCoordinator, nodes: NodeClient) -> None:
        self._views = groups.views
        self._nodes = nodes

    async def collect(self) -> list[GroupPosition]:
        """Everything that was committed. Raises RequestError if one coordinator cannot say so now: nothing may be
        concluded from positions that are missing."""
        return [each for partition in self._views.offsets_partitions() for each in await self._collect(partition)]

    async def _collect(self, partition: PartitionId) -> list[GroupPosition]:
        async def collect_here() -> list[GroupPosition]:
            positions = self._views.positions_at(partition.index)
            await asyncio.sleep(0)
            return positions

        route = Route(self._nodes, lambda: self._views.is_kept(partition.index), partition)
        body = node_messages.number(partition.index)
        return await route.call(
            collect_here,
            NodeRequest(NodeCallKind.POSITIONS, ConnectionClass.BULK, lambda: body, node_messages.read_positions),
        )
