"""Markers: how a transaction ends in each partition that it touched.

In a partition of records a marker is a control batch. A partition of the groups' offsets is state of the group
coordinator: there the transaction's offsets are settled instead.
"""

import asyncio

from headwater.broker.catalog import Catalog
from headwater.broker.coordinator import OFFSETS_TOPIC, GroupCoordinator
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId


class MarkerWriter:
    def __init__(self, catalog: Catalog, groups: GroupCoordinator) -> None:
        self._catalog = catalog
        self._groups = groups

    async def write(
        self, partition_id: PartitionId, producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int
    ) -> None:
        """Returns when the marker is committed. Raises RequestError."""
        committed = self.begin(partition_id, producer_id, producer_epoch, is_commit, coordinator_epoch)
        if committed is not None:
            await committed

    def begin(
        self, partition_id: PartitionId, producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int
    ) -> "asyncio.Future[None] | None":
        """What to wait for until the marker is committed, which may fail with RequestError; None if it is committed
        already. One that is there is not written again. Raises RequestError."""
        topic = self._catalog.find_id(partition_id.topic_id)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted.")
        if topic.name == OFFSETS_TOPIC:
            return self._groups.settle(partition_id.index, producer_id, producer_epoch, is_commit, coordinator_epoch)
        partition = topic.partition(partition_id.index)
        appended = partition.append_marker(producer_id, producer_epoch, is_commit, coordinator_epoch)
        return None if appended is None else appended.committed
