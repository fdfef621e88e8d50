"""Bounds what a node gives to other stores, and what it gets from them, of the replicas that are throttled (KIP-73).

Throttled are copies of sealed segments of the partitions that a topic names in `leader.replication.throttled.replicas`
(given away) and `follower.replication.throttled.replicas` (got), at the rates of the node in all. Records that are
being produced are not: they are on their way to all replicas at once, and a producer waits for them.

Each direction is a debt: what has passed is paid off at the rate, and the next bytes pass when nothing is owed. The
rate may change at any time. However low it is, something passes every LONGEST_WAIT_S.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.topic_config import TopicConfig
from headwater.model.clock import Clock
from headwater.model.config_key import EVERY_REPLICA
from headwater.model.ids import NodeId, PartitionId
from headwater.peers.pace import LONGEST_WAIT_S

LOOK_EVERY_S: Final = 1.0
"""A rate that was changed is noticed after so long."""
READS_PER_SECOND: Final = 4
SMALLEST_READ_BYTES: Final = 16 * 1024


class Throttle:
    """A `peers.pace.CopyPace`: all partitions that are throttled share one rate, the others pass."""

    def __init__(
        self,
        bytes_per_s: Callable[[], int],
        is_throttled: Callable[[str], bool],
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._is_throttled = is_throttled
        self._clock = clock
        self._sleep = sleep
        self._owed_bytes = 0.0
        self._owed_at = clock.monotonic()

    async def admit(self, partition: str, most_bytes: int) -> int:
        if not self._is_throttled(partition):
            return most_bytes
        until = self._clock.monotonic() + LONGEST_WAIT_S
        while (wait_s := min(self._due_in_s(), until - self._clock.monotonic())) > 0:
            await self._sleep(min(wait_s, LOOK_EVERY_S))
        return min(most_bytes, max(self._rate() // READS_PER_SECOND, SMALLEST_READ_BYTES))

    def passed(self, partition: str, size_bytes: int) -> None:
        if self._is_throttled(partition):
            self._pay()
            # Bytes pass after LONGEST_WAIT_S in any case, so more need not be remembered.
            self._owed_bytes = min(self._owed_bytes, self._rate() * LONGEST_WAIT_S) + size_bytes

    def _due_in_s(self) -> float:
        self._pay()
        return self._owed_bytes / self._rate()

    def _pay(self) -> None:
        now = self._clock.monotonic()
        self._owed_bytes = max(self._owed_bytes - (now - self._owed_at) * self._rate(), 0.0)
        self._owed_at = now

    def _rate(self) -> int:
        return max(self._bytes_per_s(), 1)


class ReplicationThrottle:
    def __init__(
        self,
        node_id: NodeId,
        config: Callable[[], BrokerConfig],
        topic_config: Callable[[PartitionId], TopicConfig | None],
        clock: Clock,
    ) -> None:
        self._node_id = node_id
        self._topic_config = topic_config
        self.giving = Throttle(lambda: config().leader_throttle_bytes_per_s, self._is_given_slowly, clock)
        self.getting = Throttle(lambda: config().follower_throttle_bytes_per_s, self._is_got_slowly, clock)

    def is_throttled(self, partition: PartitionId) -> bool:
        """On any node."""
        config = self._topic_config(partition)
        return config is not None and bool(
            config.leader_replication_throttled_replicas or config.follower_replication_throttled_replicas
        )

    def _is_given_slowly(self, text: str) -> bool:
        partition = PartitionId.parse(text)
        config = self._topic_config(partition)
        return config is not None and self._names(config.leader_replication_throttled_replicas, partition)

    def _is_got_slowly(self, text: str) -> bool:
        partition = PartitionId.parse(text)
        config = self._topic_config(partition)
        return config is not None and self._names(config.follower_replication_throttled_replicas, partition)

    def _names(self, replicas: frozenset[str], partition: PartitionId) -> bool:
        return EVERY_REPLICA in replicas or f"{partition.index}:{self._node_id}" in replicas
