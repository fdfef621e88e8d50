"""One fetch under way: read what there is, and if that is too little, wait until there is more.

Too little means fewer than `min_bytes` over all partitions of the request. The wait ends when enough was committed,
when `max_wait_ms` is over, or when the client goes. What is in memory is read at once; only older data waits for
the store. Nothing here costs more than a few steps for each partition, however many records it returns.

With isolation level read_committed all of this holds of what is stable: below the last stable offset. The answer then
names the aborted transactions, for the client to leave out.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.broker.catalog import Catalog
from headwater.broker.fetch_sessions import SessionPartition
from headwater.broker.partition import Partition, Watcher
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import Offset
from headwater.model.replica import Buffer, StoreError
from headwater.records.batch import headers
from headwater.transactions.aborted_transactions import Aborted
from headwater.transport.facts import log_fact
from headwater.wire.fetch import FetchRequest, PartitionResult

MAX_RESPONSE_BYTES = 57_671_680
"""Kafka's fetch.max.bytes of a broker."""
READ_UNCOMMITTED = 0
_SMALLEST_READ_BYTES = 1


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of one partition in one fetch."""

    asked: SessionPartition
    partition: Partition | None
    result: PartitionResult


class Fetching:
    def __init__(self, catalog: Catalog, request: FetchRequest, partitions: Sequence[SessionPartition]) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._is_committed_only = request.isolation_level != READ_UNCOMMITTED
        self._min_bytes = max(request.min_bytes, 0)
        self._max_bytes = min(max(request.max_bytes, 0), MAX_RESPONSE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + max(request.max_wait_ms, 0) / 1000
        self._waiting: asyncio.Future[None] | None = None
        self._watched: list[Partition] = []
        self._missing_bytes = 0

    def read_memory(self) -> list[Reading] | None:
        """An answer without waiting for anything, or None if one of the two waits is needed."""
        readings, size, cold = self._read_tails()
        if cold:
            return None
        if size >= self._min_bytes or self._has_error(readings) or self._loop.time() >= self._deadline:
            return readings
        return None

    async def run(self) -> list[Reading]:
        while True:
            readings, size, cold = self._read_tails()
            if cold:
                size = await self._read_stores(readings, cold, size)
            time_left = self._deadline - self._loop.time()
            if size >= self._min_bytes or time_left <= 0 or self._has_error(readings) or self._is_cut_off(readings):
                return readings
            await self._wait(readings, self._min_bytes - size, time_left)

    # Called by partitions

    def grew(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if (self._missing_bytes <= 0 or size_bytes == 0) and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # In order

    def _read_tails(self) -> tuple[list[Reading], int, list[Reading]]:
        """Everything that is in memory, its size, and the partitions whose data is not."""
        readings: list[Reading] = []
        cold: list[Reading] = []
        size = 0
        for asked in self._partitions:
            reading = self._look_up(asked)
            readings.append(reading)
            partition = reading.partition
            if partition is None or asked.asked.fetch_offset >= self._end(partition):
                continue
            room = self._room(asked, size)
            if room <= 0:
                continue
            if self._is_committed_only:
                stable = partition.read_stable_tail(asked.asked.fetch_offset, room)
                found, aborted = stable if stable is not None else (None, [])
            else:
                found, aborted = partition.read_tail(asked.asked.fetch_offset, room), []
            if found is None:
                cold.append(reading)
            else:
                size += _fill(reading.result, found, aborted)
        return readings, size, cold

    def _end(self, partition: Partition) -> Offset:
        """What is from here on is not for this reader yet."""
        return partition.last_stable_offset if self._is_committed_only else partition.high_watermark

    def _look_up(self, asked: SessionPartition) -> Reading:
        result = PartitionResult(asked.asked.index, aborted=[] if self._is_committed_only else None)
        try:
            partition = self._catalog.resolve(*asked.topic).partition(asked.asked.index)
            partition.check_led()
            partition.check_epoch(asked.asked.current_leader_epoch)
            result.high_watermark = partition.high_watermark
            result.last_stable_offset = partition.last_stable_offset
            result.log_start_offset = partition.log_start
            partition.check_offset(asked.asked.fetch_offset)
        except RequestError as error:
            result.error_code = error.code
            return Reading(asked, None, result)
        return Reading(asked, partition, result)

    def _room(self, asked: SessionPartition, size: int) -> int:
        """How much of a partition still fits. The first batch of a response is sent however large it is."""
        left = min(asked.asked.max_bytes, self._max_bytes - size)
        return max(left, _SMALLEST_READ_BYTES) if size == 0 else left

    async def _read_stores(self, readings: list[Reading], cold: list[Reading], size: int) -> int:
        for reading in cold:
            partition = reading.partition
            assert partition is not None, "only a known partition has data"
            room = self._room(reading.asked, size)
            if room <= 0:
                continue
            aborted: list[Aborted] = []
            try:
                if self._is_committed_only:
                    found, aborted = await partition.read_stable(reading.asked.asked.fetch_offset, room)
                else:
                    found = await partition.read(reading.asked.asked.fetch_offset, room)
            except StoreError as error:
                log_fact("read_failed", partition=partition.id, error=f"{type(error).__name__}: {error}")
                reading.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if len(found):
                size += _fill(reading.result, [found], aborted)
        return size

    async def _wait(self, readings: list[Reading], missing_bytes: int, seconds: float) -> None:
        if any(self._has_more(reading.partition, reading.result) for reading in readings if reading.partition):
            return  # it came while the store was reading
        self._missing_bytes = missing_bytes
        self._waiting = self._loop.create_future()
        self._watched = [reading.partition for reading in readings if reading.partition is not None]
        for partition in self._watched:
            self._watchers(partition).add(self)
        timer = self._loop.call_later(seconds, self.grew, 0)
        try:
            await self._waiting
        finally:
            timer.cancel()
            for partition in self._watched:
                self._watchers(partition).discard(self)

    def _has_more(self, partition: Partition, result: PartitionResult) -> bool:
        """Whether the partition has grown since it was looked at."""
        return self._end(partition) > self._end_said(result)

    def _end_said(self, result: PartitionResult) -> Offset:
        return result.last_stable_offset if self._is_committed_only else result.high_watermark

    def _watchers(self, partition: Partition) -> set[Watcher]:
        return partition.stable_watchers if self._is_committed_only else partition.watchers

    def _is_cut_off(self, readings: list[Reading]) -> bool:
        """Whether some data ends before its partition does: with its segment. The rest is not worth a wait, because
        waiting does not bring it."""
        for reading in readings:
            if reading.partition is not None and reading.result.records:
                *_, last = headers(reading.result.records[-1])
                if last.last_offset + 1 < self._end_said(reading.result):
                    return True
        return False

    @staticmethod
    def _has_error(readings: list[Reading]) -> bool:
        return any(reading.result.error_code for reading in readings)


def _fill(result: PartitionResult, found: list[Buffer], aborted: Sequence[Aborted]) -> int:
    """Put what was read into the answer; return its size."""
    result.records = found
    result.size_bytes = sum(map(len, found))
    if aborted:
        result.aborted = [(entry.producer_id, entry.first_offset) for entry in aborted]
    return result.size_bytes
