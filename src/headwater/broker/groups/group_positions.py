"""The positions of all consumer groups, collected from all of their coordinators."""

import asyncio

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.housekeeping.consumed_positions import GroupPosition
from headwater.broker.nodes import node_messages as node_calls
from headwater.broker.nodes.node_client import Lane, NodeClient
from headwater.broker.nodes.node_messages import Kind


class GroupPositions:
    def __init__(self, groups: GroupCoordinator, nodes: NodeClient) -> None:
        self._groups = groups
        self._nodes = nodes

    async def collect(self) -> list[GroupPosition]:
        """Everything that was committed. Raises RequestError if one coordinator cannot say so now: nothing may be
        concluded from positions that are missing."""
        found: list[GroupPosition] = []
        for partition in self._groups.offsets_partitions():
            if self._nodes.is_alone or self._groups.is_kept(partition.index):
                found += self._groups.positions_at(partition.index)
                await asyncio.sleep(0)
            else:
                body = node_calls.number(partition.index)
                found += node_calls.read_positions(
                    await self._nodes.ask_leader(partition, Kind.POSITIONS, body, Lane.BULK)
                )
        return found
