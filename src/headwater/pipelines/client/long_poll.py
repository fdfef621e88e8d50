"""Waiting for new records without asking again and again: a fetch at the end of each partition, which the broker
answers as soon as one of them grows (a long poll).

The connections are its own, because a broker that has no news keeps its answer back: it may come in a later wait.
"""

import selectors
import time
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.client.address import BrokerAddress
from headwater.client.blocking_connection import BlockingConnection
from headwater.client.errors import ConnectionLost
from headwater.client.exchange import Sent
from headwater.client.fetch import FetchLimits, FetchPosition, PlainFetch, plain_fetch
from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.errors import SourceError
from headwater.wire.typed.fetch import FetchResponse

ENOUGH_BYTES = 1
"""The broker sends one batch at least; its content is not used."""


@dataclass(slots=True)
class _Line:
    connection: BlockingConnection
    waiting: tuple[PlainFetch, Sent[FetchResponse]] | None = None
    """The fetch that has no response yet."""


class LongPoll:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._lines: dict[BrokerAddress, _Line] = {}

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
        for line in self._lines.values():
            line.connection.close()
        self._lines.clear()

    def _listen(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> bool:
        """Whether a broker answered with records."""
        limits = FetchLimits(timeout_ms, ENOUGH_BYTES, self._cluster.config.isolation_level)
        for address, partitions in self._cluster.by_leader(ends).items():
            line = self._lines.get(address)
            if line is None or not line.connection.is_open:
                line = self._lines[address] = _Line(self._cluster.dial(address))
            if line.waiting is None:
                positions = [FetchPosition(one, ends[one], self._cluster.topic_id(one.topic)) for one in partitions]
                fetch = plain_fetch(positions, limits)
                sent = line.connection.send(fetch.request, at_most=fetch.at_most, wait_ms=timeout_ms)
                line.waiting = (fetch, sent)
        has_records = False
        for line in self._answering(timeout_ms):
            assert line.waiting is not None, "an answer follows a fetch"
            (fetch, sent), line.waiting = line.waiting, None
            fetched = fetch.read(line.connection.receive(sent))
            has_records |= any(partition.records for partition in fetched.partitions.values())
        return has_records

    def _answering(self, timeout_ms: int) -> list[_Line]:
        """The connections on which an answer begins within the time. Not select(2): the driver of a busy Spark has file
        descriptors above 1,023."""
        with selectors.DefaultSelector() as selector:
            for line in self._lines.values():
                if line.waiting is not None:
                    selector.register(line.connection, selectors.EVENT_READ, line)
            return [key.data for key, _ in selector.select(timeout_ms / 1000)]
