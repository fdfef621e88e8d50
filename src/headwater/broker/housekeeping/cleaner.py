"""The housekeeper: rolls segments that are old, drops what retention allows, compacts, forgets silent producers.

One task for all of it, one partition at a time, so that housekeeping never competes with itself for a segment.
A partition that fails is logged and tried again the next time; the others go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from headwater.broker.housekeeping.compactor import Compaction, dirty_log, is_due
from headwater.broker.housekeeping.consumed_positions import SubscribedRanges
from headwater.broker.housekeeping.retention import ConsumedPosition, is_consumed, is_expired, retention_start
from headwater.broker.log.node_ports import NodePorts
from headwater.broker.log.partition import Partition
from headwater.broker.log.partition_metadata import LostLeadership
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.topics.catalog import Catalog
from headwater.logs.events import log_event
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.replica import StoreError, StoreFailed


class Cleaner:
    def __init__(
        self,
        ports: NodePorts,
        catalog: Catalog,
        config: BrokerConfig,
        survey: Callable[[], Awaitable[SubscribedRanges | None]] | None = None,
    ) -> None:
        """`survey` gives what subscriptions still need; None while that is not known. Without it, there are no
        subscriptions."""
        self._ports = ports
        self._catalog = catalog
        self._config = config
        self._survey = survey
        self._reconfigured = asyncio.Event()

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        self._reconfigured.set()

    async def run(self) -> None:
        """Until cancelled. Retention and compaction have separate intervals."""
        clock = self._ports.clock
        retained_at = compacted_at = clock.monotonic()
        while True:
            next_retention = retained_at + self._config.retention_check_interval_ms / 1000
            next_compaction = compacted_at + self._config.cleaner_interval_ms / 1000
            if not await self._rest(max(min(next_retention, next_compaction) - clock.monotonic(), 0.01)):
                continue
            if clock.monotonic() >= next_retention:
                await self.retain()
                retained_at = clock.monotonic()
            if clock.monotonic() >= next_compaction:
                if self._config.cleaner_enabled:
                    await self.compact()
                compacted_at = clock.monotonic()

    async def _rest(self, seconds: float) -> bool:
        """False if the intervals may have become others meanwhile."""
        self._reconfigured.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._reconfigured.wait()
        except TimeoutError:
            return True
        return False

    async def retain(self) -> None:
        """Age, size and subscriptions: roll what is old, drop what no subscription needs, forget producers that fell
        silent."""
        ranges = await self._survey() if self._survey is not None else SubscribedRanges()
        for partition in self._catalog.partitions():
            await self._guarded(partition, partial(self._retain, ranges))
            await asyncio.sleep(0)

    async def compact(self) -> None:
        """Every partition that is dirty enough, the dirtiest first."""
        now_ms = self._ports.clock.now_ms()
        due = []
        for partition in self._catalog.partitions():
            if partition.config.is_compacted:
                self._roll_for_compaction(partition, now_ms)
                log = dirty_log(partition, now_ms)
                if is_due(partition, log, now_ms):
                    due.append((log.dirty_ratio, partition))
        for _, partition in sorted(due, key=lambda entry: -entry[0]):
            await self._guarded(partition, self._compact)

    async def _guarded(self, partition: Partition, work: Callable[[Partition], Awaitable[None]]) -> None:
        if partition.is_over:
            return
        try:
            await work(partition)
        except StoreFailed:
            raise
        except (StoreError, Unavailable, Unknown, LostLeadership) as error:
            if not partition.is_over:
                log_event(
                    "cleaning_failed", logging.WARNING, partition=partition.id, error=f"{type(error).__name__}: {error}"
                )

    async def _retain(self, ranges: SubscribedRanges | None, partition: Partition) -> None:
        now_ms = self._ports.clock.now_ms()
        config = partition.config
        if partition.is_older_than_segment_ms():
            partition.ask_roll()
        newest = partition.open_max_timestamp
        if config.is_deleted and newest >= 0 and is_expired(newest, config.retention_ms, now_ms):
            partition.ask_roll()
        if ranges is not None:
            await self._drop(partition, ranges.of(partition.topic_name, partition.id.index), now_ms)
        partition.producers.expire(now_ms, self._config.producer_id_expiration_ms)

    async def _drop(self, partition: Partition, subscriptions: Sequence[ConsumedPosition], now_ms: int) -> None:
        config = partition.config
        end, stable_end = partition.high_watermark, partition.last_stable_offset
        if partition.open_bytes and stable_end == end and is_consumed(end, config, subscriptions):
            partition.ask_roll()
        chain = partition.register.chain
        start = retention_start(
            sealed=chain.sealed,
            open_id=chain.open.id,
            open_bytes=partition.open_bytes,
            config=config,
            now_ms=now_ms,
            subscriptions=subscriptions,
            stable_end=stable_end,
        )
        if start is not None:
            log_event("retention", topic=partition.topic_name, partition=partition.id.index, start=start)
            await partition.trim(start)

    def _roll_for_compaction(self, partition: Partition, now_ms: int) -> None:
        """The open segment is never compacted; when a record in it has waited for too long, it must end."""
        lag_ms = partition.config.max_compaction_lag_ms
        waited_ms = now_ms - partition.open_since_ms
        if waited_ms > lag_ms or partition.is_older_than_segment_ms():
            partition.ask_roll()

    async def _compact(self, partition: Partition) -> None:
        log = dirty_log(partition, self._ports.clock.now_ms())
        await Compaction(self._ports, partition, self._config.cleaner_memory_bytes).run(log)
