"""Waiting for new records without asking again and again: a fetch at the end of each partition, which the broker
answers as soon as one of them grows (a long poll).

The connections are its own, because a broker that has no news keeps its answer back: it may come in a later wait.
"""

import selectors
import time
from collections.abc import Mapping

from headwater.pipelines.client.cluster import ClusterClient
from headwater.pipelines.client.config import BrokerAddress
from headwater.pipelines.client.connection import BrokerConnection, ConnectionLost
from headwater.pipelines.client.fetching import FetchLimits, receive_fetch, send_fetch
from headwater.pipelines.client.offsets import OffsetRange, Offsets, TopicPartition
from headwater.pipelines.errors import SourceError

ENOUGH_BYTES = 1
"""The broker sends one batch at least; its content is not used."""


class LongPoll:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._connections: dict[BrokerAddress, BrokerConnection] = {}

    def wait(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        """Return when one of the partitions probably has a record at its end, or after the time. Whatever prevents that
        costs the time, no more: the caller asks for offsets next, and hears of it there."""
        deadline_s = time.monotonic() + timeout_ms / 1000
        try:
            if self._listen(ends, timeout_ms):
                return
        except (ConnectionLost, SourceError):
            self.close()
        time.sleep(max(deadline_s - time.monotonic(), 0))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _listen(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> bool:
        """Whether a broker answered with records."""
        limits = FetchLimits(timeout_ms, ENOUGH_BYTES, self._cluster.config.isolation_level)
        ranges_by_leader = self._by_leader(ends)
        for address, ranges in ranges_by_leader.items():
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = self._connections[address] = BrokerConnection(address, self._cluster.config)
            if connection.is_idle:
                send_fetch(connection, ranges, limits)
        has_records = False
        for connection in self._answering(timeout_ms):
            answer = receive_fetch(connection, ranges_by_leader.get(connection.address, ()))
            has_records |= any(fetched.records for fetched in answer.partitions.values())
        return has_records

    def _answering(self, timeout_ms: int) -> list[BrokerConnection]:
        """The connections on which an answer begins within the time. Not select(2): the driver of a busy Spark has file
        descriptors above 1,023."""
        with selectors.DefaultSelector() as selector:
            for connection in self._connections.values():
                if not connection.is_idle:
                    selector.register(connection, selectors.EVENT_READ, connection)
            return [key.data for key, _ in selector.select(timeout_ms / 1000)]

    def _by_leader(self, ends: Offsets | Mapping[TopicPartition, int]) -> dict[BrokerAddress, list[OffsetRange]]:
        by_leader: dict[BrokerAddress, list[OffsetRange]] = {}
        for partition, end in ends.items():
            address = self._cluster.leader_address(partition)
            topic_id = self._cluster.topic_id(partition.topic)
            by_leader.setdefault(address, []).append(OffsetRange(*partition, end, end, topic_id))
        return by_leader
