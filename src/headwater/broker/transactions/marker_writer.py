"""Markers: how a transaction ends in each partition that it touched, wherever it is led.

In a partition of records a marker is a control batch. A partition of the groups' offsets is state of the group
coordinator: there the transaction's offsets are committed or dropped instead.
"""

import asyncio
import contextlib
from collections.abc import Collection
from itertools import count

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.groups.group_log import OFFSETS_TOPIC
from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_client import ConnectionClass, NodeClient, NodeRequest, no_response
from headwater.broker.nodes.node_messages import Marker, NodeCallKind
from headwater.broker.nodes.routed import Route, route_to
from headwater.broker.topics.catalog import Catalog
from headwater.broker.transactions.late_markers import LateMarkers
from headwater.groups.transaction_ends import TransactionEnds
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId

READY_WAIT_S = 5.0
"""How long a marker waits for what it is to end in, less than the node that sent it waits for the answer."""


class MarkerWriter:
    def __init__(self, catalog: Catalog, groups: GroupCoordinator, nodes: NodeClient) -> None:
        self._catalog = catalog
        self._groups = groups
        self._nodes = nodes
        self._attempts = count(1)
        self._late = LateMarkers()
        self.ends = TransactionEnds()
        """Batches that wait for a coordinator's word are announced here, and refused if the marker is faster."""

    def begin(
        self, partition_id: PartitionId, producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int
    ) -> "asyncio.Future[None] | None":
        """What to wait for until the marker is committed, which may fail with RequestError; None if it is committed
        already. One that is there is not written again. Raises RequestError; UNKNOWN_TOPIC_OR_PARTITION says that
        there never will be anything to mark."""
        marker = Marker(partition_id, producer_id, producer_epoch, is_commit, coordinator_epoch, next(self._attempts))
        route = route_to(partition_id, self._catalog, self._nodes)
        is_known = self._catalog.find_id(partition_id.topic_id) is not None
        if (is_known and route.is_here) or self._catalog.leadership.is_beginning(partition_id):
            return self.receive(marker)
        return asyncio.get_running_loop().create_task(self._send(route, marker))

    def receive(self, marker: Marker) -> "asyncio.Future[None] | None":
        """As `begin`, of a coordinator here or elsewhere, in a partition that is led here. Raises RequestError."""
        self._check_order(marker)
        if not self._is_waited_for(marker.partition):
            return self._begin_here(*marker[:-1])
        return asyncio.get_running_loop().create_task(self._begin_later(marker))

    async def write(
        self, partition_id: PartitionId, producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int
    ) -> None:
        """For an administrator, in a partition that is led here: returns when the marker is committed. Raises
        RequestError."""
        committed = self._begin_here(partition_id, producer_id, producer_epoch, is_commit, coordinator_epoch)
        if committed is not None:
            await committed

    def forget(self, partitions: Collection[PartitionId]) -> None:
        """Their topic was deleted: nothing will be marked there."""
        self._late.forget(partitions)

    def _check_order(self, marker: Marker) -> None:
        self._late.check(marker.partition, marker.producer_id, marker.coordinator_epoch, marker.attempt)

    def _is_waited_for(self, partition_id: PartitionId) -> bool:
        """A start brings transactions to be ended before everything that they touched is there."""
        topic = self._catalog.find_id(partition_id.topic_id)
        is_offsets = topic is not None and topic.name == OFFSETS_TOPIC
        return self._catalog.leadership.is_beginning(partition_id) or (
            is_offsets and self._groups.is_loading(partition_id.index)
        )

    async def _begin_later(self, marker: Marker) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_WAIT_S):
                await self._catalog.leadership.begun(marker.partition)
                if self._is_waited_for(marker.partition):
                    await self._groups.loaded(marker.partition.index)
        self._check_order(marker)  # a later try may have come, and the transaction after this one have begun
        committed = self._begin_here(*marker[:-1])
        if committed is not None:
            await committed

    def _begin_here(
        self, partition_id: PartitionId, producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int
    ) -> "asyncio.Future[None] | None":
        topic = self._catalog.find_id(partition_id.topic_id)
        if topic is None:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The topic is not known here.")
        if topic.name == OFFSETS_TOPIC:
            return self._groups.end_transaction(
                partition_id.index, producer_id, producer_epoch, is_commit, coordinator_epoch
            )
        partition = topic.partition(partition_id.index)
        appended = partition.append_marker(producer_id, producer_epoch, is_commit, coordinator_epoch)
        self.ends.refuse(producer_id, producer_epoch)
        return None if appended is None else appended.committed

    async def _send(self, route: Route, marker: Marker) -> None:
        if await self._catalog.is_deleted(marker.partition.topic_id):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted.")
        try:
            await route.send(
                NodeRequest(
                    NodeCallKind.MARK, ConnectionClass.MARKERS, lambda: node_messages.marker(marker), no_response
                )
            )
        except RequestError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted, or not heard of there: look again
                raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error
            raise
