"""One fetch under way: read what there is, and if that is too little, wait until there is more.

Too little means fewer than `min_bytes` over all partitions of the request. The wait ends when enough was committed,
when `max_wait_ms` has passed, or when the client goes. What is in memory is read at once; only older data waits for the
store. Nothing here costs more than a few steps for each partition, however many records it returns.

Partitions are read in the order in which they were asked for. The first batch of the response is sent however large it
is, so that every consumer gets on; all later ones fit into the limits of the response and of their partition (KIP-74).

Where the client may not read as much as it likes, what is left to it is looked up at each read. A fetch that finds
nothing left still gets its first batch.

With isolation level read_committed all of this holds of what is stable: below the last stable offset. The answer then
names the aborted transactions, for the client to leave out.

Whether the client may read is asked whenever partitions are looked at, and again if bindings changed while the store
was reading: nothing is delivered after the right to read it was taken away. A fetch that waits is not woken by that. It
ends as it would have, and the client learns of it then.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.topic_access import topic_refusal
from headwater.broker.fetch.fetch_sessions import SessionPartition, TopicName
from headwater.broker.log.partition import Partition, Watcher
from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.logs.events import log_event
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import Offset, TopicId
from headwater.model.replica import Buffer, StoreError
from headwater.records.batch import headers
from headwater.security.access_codes import Operation
from headwater.transactions.aborted_transactions import Aborted
from headwater.wire.fetch import FetchPartitionResult, FetchRequest

MAX_RESPONSE_BYTES = 57_671_680
"""Kafka's fetch.max.bytes of a broker."""
READ_UNCOMMITTED = 0
_SMALLEST_READ_BYTES = 1


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of one partition in one fetch."""

    asked: SessionPartition
    partition: Partition | None
    result: FetchPartitionResult


class Fetching:
    def __init__(
        self, catalog: Catalog, access: ClientAccess, request: FetchRequest, partitions: Sequence[SessionPartition]
    ) -> None:
        self._catalog = catalog
        self._access = access
        self._judged: dict[TopicName, Topic | RequestError] = {}
        """Of one look at all partitions, each topic, or why the client may not read it."""
        self._partitions = partitions
        self._is_committed_only = request.isolation_level != READ_UNCOMMITTED
        self._asked_min_bytes = self._min_bytes = max(request.min_bytes, 0)
        self._asked_max_bytes = self._max_bytes = min(max(request.max_bytes, 0), MAX_RESPONSE_BYTES)
        self._room_bytes: Callable[[], int] | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + max(request.max_wait_ms, 0) / 1000
        self._waiting: asyncio.Future[None] | None = None
        self._watched: list[Partition] = []
        self._missing_bytes = 0
        self._leaves_out = False
        """Whether the response has no room for something that could be read. Waiting does not change that."""

    def limit(self, room_bytes: Callable[[], int]) -> None:
        """The client may not read as much as it likes: `room_bytes` says how much it may, at each read to come."""
        self._room_bytes = room_bytes

    def fit(self, room_bytes: int) -> None:
        """Of what is in memory, too, the client may not read more. More than that is not waited for either."""
        self._max_bytes = min(self._asked_max_bytes, max(room_bytes, _SMALLEST_READ_BYTES))
        self._min_bytes = min(self._asked_min_bytes, self._max_bytes)

    def read_memory(self) -> list[Reading] | None:
        """An answer without waiting for anything, or None if one of the two waits is needed."""
        readings, size = [], 0
        self._judged.clear()
        for asked in self._partitions:
            reading = self._look_up(asked)
            readings.append(reading)
            room = self._room(reading, size)
            if room > 0:
                found = self._read_tail(reading, room)
                if found is None:
                    return None
                size += self._fill(reading, found[0], found[1], size)
        if size >= self._min_bytes or self._has_error(readings) or self._loop.time() >= self._deadline:
            return readings
        return None

    async def run(self) -> list[Reading]:
        while True:
            version = self._access.version
            readings, size = await self._read()
            if self._access.version != version:
                self._judged.clear()
                readings = [self._checked_again(reading) for reading in readings]
            time_left = self._deadline - self._loop.time()
            is_cut_off = self._leaves_out or self._ends_with_segment(readings)
            if size >= self._min_bytes or is_cut_off or time_left <= 0 or self._has_error(readings):
                return readings
            await self._wait(readings, self._min_bytes - size, time_left)

    # Called by partitions

    def grew(self, size_bytes: int) -> None:
        self._missing_bytes -= size_bytes
        if (self._missing_bytes <= 0 or size_bytes == 0) and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # In order

    async def _read(self) -> tuple[list[Reading], int]:
        """Everything that there is, and its size."""
        self._judged.clear()
        if self._room_bytes is not None:
            self.fit(self._room_bytes())
        readings = [self._look_up(asked) for asked in self._partitions]
        size = 0
        self._leaves_out = False
        for reading in readings:
            room = self._room(reading, size)
            if room <= 0:
                continue
            found = self._read_tail(reading, room)
            if found is not None:
                size += self._fill(reading, found[0], found[1], size)
                continue
            if self._leaves_out:
                continue  # at most one read from the store is in vain; clients ask for their partitions in turn
            partition, offset = reading.partition, reading.asked.asked.fetch_offset
            assert partition is not None, "only a known partition has data"
            aborted: Sequence[Aborted] = ()
            try:
                if self._is_committed_only:
                    data, aborted = await partition.read_stable(offset, room)
                else:
                    data = await partition.read(offset, room)
            except StoreError as error:
                why = f"{type(error).__name__}: {error}"
                log_event("read_failed", logging.WARNING, partition=partition.id, error=why)
                reading.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if len(data):
                size += self._fill(reading, [data], aborted, size)
        return readings, size

    def _end(self, partition: Partition) -> Offset:
        """What is from here on is not for this reader yet."""
        return partition.last_stable_offset if self._is_committed_only else partition.high_watermark

    def _look_up(self, asked: SessionPartition) -> Reading:
        result = FetchPartitionResult(asked.asked.index, aborted=[] if self._is_committed_only else None)
        try:
            topic = self._topic(asked.topic) if self._access.is_restricted else self._catalog.resolve(*asked.topic)
            partition = topic.partition(asked.asked.index)
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

    def _checked_again(self, reading: Reading) -> Reading:
        """Without its data if the client may not read it any more."""
        now = self._look_up(reading.asked)
        return now if now.result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else reading

    def _topic(self, asked: TopicName) -> Topic:
        """Raises RequestError, for a name before it is known whether there is such a topic."""
        judged = self._judged.get(asked)
        if judged is None:
            judged = self._judged[asked] = self._judge(*asked)
        if isinstance(judged, RequestError):
            raise RequestError(judged.code, judged.message)
        return judged

    def _judge(self, name: str | None, topic_id: TopicId | None) -> Topic | RequestError:
        if name is not None:
            return topic_refusal(self._access, Operation.READ, name) or self._catalog.topic(name)
        topic = self._catalog.resolve(name, topic_id)
        return topic_refusal(self._access, Operation.READ, topic.name) or topic

    def _room(self, reading: Reading, size: int) -> int:
        """How much of a partition still fits; 0 if there is nothing to read."""
        asked = reading.asked.asked
        if reading.partition is None or asked.fetch_offset >= self._end_said(reading.result):
            return 0
        if size == 0:
            return max(min(asked.max_bytes, self._max_bytes), _SMALLEST_READ_BYTES)
        self._leaves_out = self._leaves_out or size >= self._max_bytes
        return min(asked.max_bytes, self._max_bytes - size)

    def _read_tail(self, reading: Reading, room: int) -> tuple[list[Buffer], Sequence[Aborted]] | None:
        """Batches in memory, at least one, or None if they are not there."""
        partition, offset = reading.partition, reading.asked.asked.fetch_offset
        assert partition is not None, "only a known partition has data"
        if self._is_committed_only:
            return partition.read_stable_tail(offset, room)
        found = partition.read_tail(offset, room)
        return None if found is None else (found, ())

    def _fill(self, reading: Reading, found: list[Buffer], aborted: Sequence[Aborted], size: int) -> int:
        """Put what was read behind the `size` bytes that the answer has; return by how much it grew. One batch was read
        at least; if it does not fit, it is left for a fetch in which it is the first."""
        found_bytes = len(found[0]) if len(found) == 1 else sum(map(len, found))
        if size and found_bytes > min(reading.asked.asked.max_bytes, self._max_bytes - size):
            self._leaves_out = True
            return 0
        reading.result.records = found
        reading.result.size_bytes = found_bytes
        if aborted:
            reading.result.aborted = [(entry.producer_id, entry.first_offset) for entry in aborted]
        return found_bytes

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

    def _has_more(self, partition: Partition, result: FetchPartitionResult) -> bool:
        """Whether the partition has grown since it was looked at."""
        return self._end(partition) > self._end_said(result)

    def _end_said(self, result: FetchPartitionResult) -> Offset:
        return result.last_stable_offset if self._is_committed_only else result.high_watermark

    def _watchers(self, partition: Partition) -> set[Watcher]:
        return partition.stable_watchers if self._is_committed_only else partition.watchers

    def _ends_with_segment(self, readings: list[Reading]) -> bool:
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
