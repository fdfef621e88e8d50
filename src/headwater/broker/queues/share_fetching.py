"""One share fetch under way: take what there is of the session's partitions, and if there is nothing, wait for some.

The wait ends when there is something to take (records were appended, released, came due, or a lease ran out), when
`max_wait_ms` is over, or when the client goes. With `min_bytes` above one, records are taken only when that much can be
read, or the time is over: who takes records early holds them for nothing.

The first batch of an answer may exceed `max_bytes` (KIP-74), so that a large one does not stop its reader for ever;
every later one fits, whatever partition it is of. A member that leaves no room at all (`max_bytes` 0) gets nothing.

Partitions take turns, and so do members: see `share_queue`.

Nothing is taken from a partition that the client may not read. What it may no longer read when the answer is ready to
leave is given back, as if it had not been taken (`settled`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from headwater.broker.nodes.node_client import NOT_REACHED
from headwater.broker.queues.share_coordinator import ShareCoordinator
from headwater.broker.queues.share_queue import MAX_RECORDS, SPAN_BYTES, ShareQueue, Span, Taken
from headwater.broker.queues.share_rights import ShareRights
from headwater.broker.queues.share_sessions import ShareSession
from headwater.broker.topics.catalog import Catalog
from headwater.logs.events import log_event
from headwater.model.errors import COORDINATOR_MOVES, ErrorCode, RequestError
from headwater.model.ids import Offset, PartitionId
from headwater.model.replica import Buffer, StoreError
from headwater.queues.outcomes import AcquiredRange, AcquireMode
from headwater.records.batch import BatchHeader

MAX_RESPONSE_BYTES = 57_671_680
"""As of a fetch."""
RANGE_BYTES = 20
"""What an acquired range adds to an answer."""
MAX_SPANS = 64
"""Steps in which one partition is read for one fetch."""
MAX_FRUITLESS_ROUNDS = 16
"""Looks in a row at records that turn out not to be for this member, before it rests for a moment."""
FRUITLESS_PAUSE_S = 0.01
_NOT_READY = (
    NOT_REACHED
    | COORDINATOR_MOVES
    | {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH}
)


@dataclass(frozen=True, slots=True)
class ShareFetchLimits:
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    room_bytes: Callable[[], int] | None = None
    """How much the client may read now; None if nothing limits it."""


@dataclass(slots=True)
class ShareReading:
    """What one partition gave to one fetch."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    queue: ShareQueue | None = None
    ranges: list[AcquiredRange] = field(default_factory=list)
    batches: dict[Offset, tuple[BatchHeader, Buffer]] = field(default_factory=dict)
    """By base offset: a batch may be read a second time for records further back in it."""

    def add(self, taken: Taken) -> int:
        """How many bytes the answer grows by."""
        self.ranges += taken.ranges
        size = len(taken.ranges) * RANGE_BYTES
        for header, batch in taken.batches:
            size += 0 if header.base_offset in self.batches else len(batch)
            self.batches[header.base_offset] = (header, batch)
        return size

    def in_order(self) -> tuple[list[AcquiredRange], list[tuple[BatchHeader, Buffer]]]:
        """Ranges and batches by rising offset."""
        ranges = sorted(self.ranges, key=lambda each: each.first)
        return ranges, [self.batches[offset] for offset in sorted(self.batches)]


class ShareFetching:
    def __init__(
        self,
        shares: ShareCoordinator,
        catalog: Catalog,
        session: ShareSession,
        limits: ShareFetchLimits,
        rights: ShareRights | None = None,
    ) -> None:
        self._shares = shares
        self._catalog = catalog
        self._session = session
        self._limits = limits
        self._rights = rights
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + max(limits.max_wait_ms, 0) / 1000
        self._records_left = limits.max_records if limits.max_records > 0 else MAX_RECORDS
        self._bytes_left = min(limits.max_bytes, MAX_RESPONSE_BYTES)
        self._is_first = True
        """Nothing was taken yet: the next batch may have any size."""
        self._seen: dict[ShareQueue, int] = {}
        self._waiting: asyncio.Future[None] | None = None
        self.readings: dict[PartitionId, ShareReading] = {}

    async def run(self) -> dict[PartitionId, ShareReading]:
        fruitless = 0
        try:
            while True:
                queues = await self._look_up()
                self._fit()
                if self._limits.max_bytes <= 0:
                    await self._wait_for_nothing()
                    return self.readings
                self._seen = {queue: queue.version for queue in queues}
                is_over = self._loop.time() >= self._deadline
                could_take = any(queue.can_take() for queue in queues)
                if could_take and (is_over or await self._is_enough(queues)) and await self._take(queues):
                    return self.readings
                if is_over or self._has_news():
                    return self.readings
                if any(queue.version != version for queue, version in self._seen.items()) or self._can_go_on(queues):
                    fruitless += 1
                    pause_s = FRUITLESS_PAUSE_S if fruitless % MAX_FRUITLESS_ROUNDS == 0 else 0
                    await asyncio.sleep(pause_s)
                    continue
                await self._wait(queues)
        finally:
            for queue in self._seen:
                queue.ended(self.member_id, is_served=not self._is_first)

    def settled(self) -> dict[PartitionId, ShareReading]:
        """What may be sent now."""
        if self._rights is not None:
            for partition_id in list(self.readings):
                self._check_right(partition_id)
        return self.readings

    def _fit(self) -> None:
        """Where the client may not read as much as it likes, there is room for one batch at least."""
        if self._limits.room_bytes is not None and self._limits.max_bytes > 0:
            self._bytes_left = min(self._limits.max_bytes, MAX_RESPONSE_BYTES, max(self._limits.room_bytes(), 1))

    # Called by queues

    @property
    def member_id(self) -> str:
        return self._session.member_id

    def has_seen(self, queue: ShareQueue) -> bool:
        return self._seen.get(queue) == queue.version

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def rights_changed(self) -> None:
        rights = self._rights
        if rights is not None and any(
            reading.queue is not None and rights.refusal(partition_id.topic_id) is not None
            for partition_id, reading in self.readings.items()
        ):
            self.wake()

    # In order

    async def _look_up(self) -> list[ShareQueue]:
        is_first_look = not self.readings
        found: list[ShareQueue] = []
        for partition_id in list(self._session.partitions):
            if self._rights is not None and not self._check_right(partition_id):
                continue
            reading = self.readings.get(partition_id)
            if reading is None or (reading.queue is not None and reading.queue.is_closed):
                if is_first_look and self._is_to_be_made(partition_id) and self._can_go_on(found):
                    continue
                reading = self.readings[partition_id] = await self._open(partition_id)
            if reading.queue is not None:
                found.append(reading.queue)
        return found

    def _check_right(self, partition_id: PartitionId) -> bool:
        """Whether the client may read the partition. If not, what was taken there goes back."""
        refusal = self._rights.refusal(partition_id.topic_id) if self._rights is not None else None
        if refusal is None:
            return True
        reading = self.readings.get(partition_id)
        if reading is not None and reading.queue is not None:
            reading.queue.give_back(self.member_id, reading.ranges)
        self.readings[partition_id] = ShareReading(refusal.code, refusal.message)
        return False

    def _is_to_be_made(self, partition_id: PartitionId) -> bool:
        """Making a queue takes an append, or a question to another node. Records that can be taken now do not wait for
        it: the partition comes first in the next fetch, as those that gave something go to the back."""
        return self._shares.find(self._session.group_id, partition_id) is None

    async def _open(self, partition_id: PartitionId) -> ShareReading:
        try:
            partition = self._catalog.topic_by_id(partition_id.topic_id).partition(partition_id.index)
            return ShareReading(queue=await self._shares.queue(self._session.group_id, partition))
        except RequestError as error:
            # Consumers of records know nothing of coordinators: they are to look for the leader, and come back.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _NOT_READY else error.code
            return ShareReading(code, error.message)

    async def _is_enough(self, queues: Sequence[ShareQueue]) -> bool:
        missing = min(self._limits.min_bytes, self._bytes_left)
        if missing <= 1:
            return True
        for queue in queues:
            span = await self._read(queue, missing, MAX_RECORDS)
            missing -= span.size_bytes if span is not None else 0
            if missing <= 0:
                return True
        return False

    def _can_go_on(self, queues: Sequence[ShareQueue]) -> bool:
        """Whether looking again can help: not if what is there is only less than the member wants."""
        return self._limits.min_bytes <= 1 and any(queue.can_take() for queue in queues)

    async def _take(self, queues: Sequence[ShareQueue]) -> bool:
        """Whether there was anything."""
        took = False
        for queue in queues:
            if await self._take_from(queue):
                self._session.gave(queue.key.partition)
                took = True
            if self._records_left <= 0 or self._bytes_left <= 0:
                break
        return took

    async def _take_from(self, queue: ShareQueue) -> bool:
        reading = self.readings[queue.key.partition]
        took = False
        part = queue.part(self.member_id, self._records_left)
        mode = self._limits.mode if part is None else AcquireMode.RECORD_LIMIT
        wanted = self._records_left if part is None else part
        for _ in range(MAX_SPANS):
            looked_at = queue.share.end_offset
            span = await self._read(queue, min(self._bytes_left, SPAN_BYTES), wanted)
            if span is None:
                break
            taken = queue.take(self.member_id, span, wanted, mode)
            if not taken.ranges:
                if queue.share.end_offset == looked_at:
                    break
                await asyncio.sleep(0)  # delayed or filtered out, all of it: others have their turn, too
                continue
            took = True
            self._is_first = False
            wanted -= taken.record_count
            self._records_left -= taken.record_count
            self._bytes_left -= reading.add(taken)
            if wanted <= 0 or self._bytes_left <= 0:
                break
        return took

    async def _read(self, queue: ShareQueue, max_bytes: int, max_records: int) -> Span | None:
        reading = self.readings[queue.key.partition]
        try:
            return await queue.read(max_bytes, max_records, must_fit=not self._is_first, sent=reading.batches)
        except StoreError as error:
            log_event(
                "read_failed", logging.WARNING, partition=queue.partition.id, error=f"{type(error).__name__}: {error}"
            )
            reading.error = ErrorCode.KAFKA_STORAGE_ERROR
            return None

    def _has_news(self) -> bool:
        """An error is reported at once, but only once: then the wait is as long as that for records."""
        reported = self._session.reported_errors
        return any(reading.error and reported.get(each) != reading.error for each, reading in self.readings.items())

    async def _wait_for_nothing(self) -> None:
        """Wait as long as for records, so that a member that cannot get any does not poll without end. It does not
        queue: a queue would wake it instead of a member that can take records."""
        if not self._has_news():
            await asyncio.sleep(max(self._deadline - self._loop.time(), 0))

    async def _wait(self, queues: Sequence[ShareQueue]) -> None:
        self._waiting = self._loop.create_future()
        for queue in queues:
            queue.pass_on()  # what is too little for this one may be enough for another
            queue.wait(self)
        timer = self._loop.call_later(max(self._deadline - self._loop.time(), 0), self.wake)
        try:
            await self._waiting
        finally:
            timer.cancel()
            for queue in queues:
                queue.leave(self)


def divided(ranges: Sequence[AcquiredRange], batch_ends: Sequence[Offset], batch_size: int) -> Iterator[AcquiredRange]:
    """The ranges in pieces of about `batch_size` records, cut where batches end: what the client acknowledges as one
    piece is then one piece of the log. `batch_ends` are the last offsets of the batches."""
    for each in ranges:
        first = each.first
        if batch_size > 0:
            for end in batch_ends:
                if first + batch_size - 1 <= end < each.last:
                    yield AcquiredRange(first, end, each.delivery_count)
                    first = end + 1
        yield AcquiredRange(first, each.last, each.delivery_count)
