"""One partition, led by this node: it assigns offsets, writes through the store, and serves what is committed.

Appends are taken in the order of the calls. One that the store takes without waiting (small, `durability=os`, nothing
before it) is committed when the call returns. Of the others one writer at a time sends everything that waits to the
open segment's store; what the store acknowledges becomes readable. A write that fails (full disk) fails everything
behind it, and the log end goes back to what is on disk, so that no offset is promised twice with different content to a
reader.

Three offsets bound what is read: the log start, the high watermark up to which everything is committed, and
between them the last stable offset, up to which every transaction has ended. Readers of committed records stop there,
and are told of the aborted transactions in what they read.

All state belongs to the broker's event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from headwater.broker.register import LostLeadership, Register, SegmentsChanged
from headwater.broker.tail_cache import Tail, TailCache
from headwater.broker.topic_config import TopicConfig
from headwater.metadata.keys import OpenSegment, SealedSegment
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import LeaderEpoch, NodeId, Offset, PartitionId, SegmentId
from headwater.model.replica import Buffer, Durability, Fenced, LocalStore, NoSpace, StoreError, UnknownSegment
from headwater.records.batch import BatchHeader, headers, parse_header, stamp, stamp_log_append_time
from headwater.records.control import Marker, build_marker
from headwater.replication.ack_tracker import AckTracker
from headwater.transactions.aborted_transactions import Aborted, AbortedTransactions
from headwater.transactions.partition_transactions import ABORTED_PER_SEGMENT, PartitionTransactions
from headwater.transactions.producer_state import Duplicate, EndedBefore, ProducerStates
from headwater.transport.facts import log_fact

WINDOW_BYTES = 8 * 1024 * 1024
"""What one append to a store carries at most."""
ROLL_RETRY_MS = 1_000


class Watcher(Protocol):
    """Somebody who waits for a partition to grow."""

    def grew(self, size_bytes: int) -> None:
        """So many bytes more can be read; 0: look again, whatever you wait for."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a partition needs of the node it lives on."""

    node_id: NodeId
    store: LocalStore
    clock: Clock
    tail_cache: TailCache
    spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
    new_segment_id: Callable[[], SegmentId]


class Appended(NamedTuple):
    base_offset: Offset
    log_append_time_ms: int
    committed: "asyncio.Future[None] | None"
    """Done when the batch is committed; fails with RequestError. None if it is committed already."""


@dataclass(slots=True)
class _Waiting:
    base: Offset
    end: Offset
    batch: Buffer
    max_timestamp: int
    committed: "asyncio.Future[None]"


class Partition:
    def __init__(
        self,
        environment: Environment,
        partition_id: PartitionId,
        topic_name: str,
        register: Register,
        config: TopicConfig,
        transactions: PartitionTransactions,
        end: Offset,
        durability: Durability,
        open_bytes: int,
    ) -> None:
        """`end` is the end of the open segment: everything below is committed."""
        self.id = partition_id
        self.topic_name = topic_name
        self.register = register
        self.config = config
        self.transactions = transactions
        self.log_end = end
        self.watchers: set[Watcher] = set()
        """Told when the high watermark moves."""
        self.stable_watchers: set[Watcher] = set()
        """Told when the last stable offset moves."""
        self.is_deleted = False
        self._environment = environment
        self._store = environment.store
        self._acks = AckTracker(register.chain.open.replicas, end)
        self._sent = end
        self._open_bytes = open_bytes
        self._open_since_ms = environment.clock.now_ms()
        self._open_max_timestamp = -1
        self._open_durability = durability
        self._next_roll_ms = 0
        self._queue: deque[_Waiting] = deque()
        self._tail = Tail()
        self._writer: asyncio.Task[None] | None = None
        self._roll_asked = False
        self._appended_bytes = 0
        """Since the start; so are the next two."""
        self._committed_bytes = 0
        self._stable_bytes = transactions.stable_bytes(end, 0)

    # What is there

    @property
    def high_watermark(self) -> Offset:
        return self._acks.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Every transaction that has written below has ended, and how is on disk. Records may have been deleted past
        the beginning of one that goes on: then it is the log start."""
        high_watermark = self._acks.high_watermark
        first_unstable = self.transactions.first_unstable
        return high_watermark if first_unstable >= high_watermark else max(first_unstable, self.log_start)

    @property
    def producers(self) -> ProducerStates:
        return self.transactions.producers

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.transactions.has_open(producer_id, producer_epoch)

    @property
    def commits_at_once(self) -> bool:
        """Whether a small append, made now, can be expected to be committed when the call returns."""
        return self._writer is None and self._open_durability is Durability.OS

    @property
    def log_start(self) -> Offset:
        return self.register.head.start

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.register.head.epoch

    @property
    def leader(self) -> NodeId:
        return self.register.head.leader

    @property
    def store(self) -> LocalStore:
        return self._store

    @property
    def size_bytes(self) -> int:
        return self.register.chain.sealed_bytes + self._open_bytes

    @property
    def open_bytes(self) -> int:
        return self._open_bytes

    @property
    def open_max_timestamp(self) -> int:
        return self._open_max_timestamp

    # Writing

    def append(self, batch: bytearray | memoryview, header: BatchHeader) -> Appended:
        """Give a checked batch its offsets and queue it. Idempotent: a batch that was appended before is not again.

        A transactional batch begins its producer's transaction here, or goes on with it. Whether it may begin is for
        the coordinator to say: ask before."""
        if self.is_deleted:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if header.producer_id >= 0:
            verdict = self.producers.check(header)
            if isinstance(verdict, Duplicate):
                return self._appended_before(verdict.base_offset, verdict.last_offset)
        return self._enqueue(batch, header, None)

    def append_marker(
        self, producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int
    ) -> Appended | None:
        """End a producer's transaction, and fence its older epochs. None if that was done before and is committed;
        if it is on its way, what to wait for. Raises RequestError INVALID_PRODUCER_EPOCH for an epoch older than the
        one known, TRANSACTION_COORDINATOR_FENCED if another coordinator has taken over since."""
        if self.is_deleted:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        verdict = self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        if isinstance(verdict, EndedBefore):
            written = self._appended_before(verdict.marker_offset, verdict.marker_offset)
            return written if written.committed is not None else None
        if not is_commit:
            self.transactions.check_room(self.register.chain.open.base)
        marker = Marker(is_commit, coordinator_epoch)
        batch = build_marker(producer_id, producer_epoch, marker, self._environment.clock.now_ms())
        return self._enqueue(batch, parse_header(batch), marker)

    def _enqueue(self, batch: bytearray | memoryview, header: BatchHeader, marker: Marker | None) -> Appended:
        base = self.log_end
        end = base + header.last_offset_delta + 1
        append_time = -1
        now_ms = self._environment.clock.now_ms()
        if self.config.uses_log_append_time:
            append_time = now_ms
            stamp_log_append_time(batch, 0, append_time)
            header = header._replace(max_timestamp=append_time)
        stamp(batch, 0, base, self.leader_epoch)
        if header.producer_id >= 0:
            placed = BatchHeader(base, *header[1:])  # a third of what _replace takes
            if marker is None:
                self.transactions.append(placed, self._appended_bytes, now_ms)
            else:
                self.transactions.end(placed, marker, now_ms)
        self.log_end = end
        self._appended_bytes += len(batch)
        self._environment.tail_cache.add(self._tail, base, end, batch)
        if self._write_now(batch, base, end, header.max_timestamp, now_ms):
            return Appended(base, append_time, None)
        committed = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(base, end, batch, header.max_timestamp, committed))
        self._wake_writer()
        return Appended(base, append_time, committed)

    def _appended_before(self, base_offset: Offset, last_offset: Offset) -> Appended:
        """The first copy may not be committed yet; the second is acknowledged no earlier."""
        committed = None
        if last_offset >= self.high_watermark:
            original = next(entry for entry in self._queue if entry.end > last_offset)
            committed = original.committed
        return Appended(base_offset, -1, committed)

    def _write_now(self, batch: Buffer, base: Offset, end: Offset, max_timestamp: int, now_ms: int) -> bool:
        """Whether the store could take the batch at once; it is committed then. Raises RequestError if it was refused,
        and nothing of it is left."""
        if not self.commits_at_once or self._is_roll_due(len(batch), now_ms):
            return False
        assert base == self._sent, "without a writer nothing waits"
        try:
            acked = self._store.append_now(self.register.chain.open.id, base, end, self.high_watermark, [batch])
        except StoreError as error:
            raise self._give_up(error) from error
        if acked is None:
            return False
        self._acknowledged(acked, end, len(batch), max(self._open_max_timestamp, max_timestamp))
        return True

    def _wake_writer(self) -> None:
        if self._writer is None:
            self._writer = self._environment.spawn(self._write())

    async def _write(self) -> None:
        """Send everything that waits, in order, then end. Entries leave the queue when they are committed."""
        try:
            while self._queue or self._roll_asked:
                next_bytes = len(self._queue[0].batch) if self._queue else 0
                if self._is_roll_due(next_bytes, self._environment.clock.now_ms()):
                    await self._roll()
                if self._queue:
                    await self._write_some()
        except StoreError as error:
            self._give_up(error)
        finally:
            self._writer = None

    async def _write_some(self) -> None:
        batches: list[Buffer] = []
        size = 0
        end = first = self._sent
        max_timestamp = self._open_max_timestamp
        for entry in self._queue:
            if batches and size + len(entry.batch) > WINDOW_BYTES:
                break
            batches.append(entry.batch)
            size += len(entry.batch)
            end = entry.end
            max_timestamp = max(max_timestamp, entry.max_timestamp)
        acked = await self._store.append(self.register.chain.open.id, first, end, self.high_watermark, batches)
        self._acknowledged(acked, end, size, max_timestamp)

    def _acknowledged(self, acked: Offset, end: Offset, size: int, max_timestamp: int) -> None:
        """The store has what it was given."""
        assert acked >= end, f"the store holds {acked}, less than the {end} it was given"
        self._sent = end
        self._open_bytes += size
        self._open_max_timestamp = max_timestamp
        if self._acks.acknowledged(self._store.store_id, acked):
            self._commit(size)

    def _commit(self, size_bytes: int) -> None:
        queue, high_watermark = self._queue, self.high_watermark
        self._committed_bytes += size_bytes
        self.transactions.commit(high_watermark)
        while queue and queue[0].end <= high_watermark:
            committed = queue.popleft().committed
            if not committed.done():
                committed.set_result(None)
        for watcher in tuple(self.watchers):
            watcher.grew(size_bytes)
        stable_bytes = self.transactions.stable_bytes(high_watermark, self._committed_bytes)
        if stable_bytes > self._stable_bytes:
            stabilised_bytes = stable_bytes - self._stable_bytes
            self._stable_bytes = stable_bytes
            for watcher in tuple(self.stable_watchers):
                watcher.grew(stabilised_bytes)

    def _give_up(self, error: StoreError) -> RequestError:
        """Nothing that waits was kept: forget it everywhere and tell its producers. Returns what they are told."""
        log_fact("append_failed", partition=self.id, error=f"{type(error).__name__}: {error}")
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if isinstance(error, Fenced) else ErrorCode.KAFKA_STORAGE_ERROR
        waiting, self._queue = self._queue, deque()
        self.log_end = self._sent
        self._appended_bytes = self._committed_bytes
        self.transactions.truncate(self._sent)
        self._environment.tail_cache.clear(self._tail)
        refusal = RequestError(code, f"The disk did not take the batch: {error}")
        for entry in waiting:
            if not entry.committed.done():
                entry.committed.set_exception(RequestError(code, refusal.message))
                entry.committed.exception()  # nobody may be waiting (acks=0)
        return refusal

    # Rolling

    def ask_roll(self) -> None:
        """Start a new segment soon, if the open one holds anything."""
        if self._open_bytes:
            self._roll_asked = True
            self._wake_writer()

    def _is_roll_due(self, next_bytes: int, now_ms: int) -> bool:
        if now_ms < self._next_roll_ms:
            self._roll_asked = False
            return False
        if self._open_durability is not self.config.durability:
            return True
        if not self._open_bytes:
            self._roll_asked = False
            return False
        return (
            self._roll_asked
            or self._open_bytes + next_bytes > self.config.segment_bytes
            or now_ms - self._open_since_ms >= self.config.segment_ms
            or self.transactions.aborted.count_from(self.register.chain.open.base) >= ABORTED_PER_SEGMENT
        )

    @property
    def open_since_ms(self) -> int:
        return self._open_since_ms

    def is_older_than_segment_ms(self) -> bool:
        age_ms = self._environment.clock.now_ms() - self._open_since_ms
        return self._open_bytes > 0 and age_ms >= self.config.segment_ms

    async def _roll(self) -> None:
        """Nothing is in flight here, so the open segment ends at what is committed. If a new one cannot be had
        (full disk, metadata out of reach), the old one goes on and another try follows later."""
        self._roll_asked = False
        end = self._sent
        old = self.register.chain.open
        new = OpenSegment(self._environment.new_segment_id(), end, self.leader_epoch, end, (self._store.store_id,))
        durability = self.config.durability
        sealed = SealedSegment(
            old.id, old.base, end, old.epoch, old.epoch_start, old.replicas, self._open_bytes,
            self._open_max_timestamp, crc32c=None,
        )  # fmt: skip
        try:
            await self._store.create(new.id, str(self.id), end, new.epoch, self._snapshot(end), durability)
            await self.register.roll(sealed, new)
        except (NoSpace, Unavailable, Unknown) as error:
            log_fact("roll_failed", partition=self.id, error=f"{type(error).__name__}: {error}")
            self._next_roll_ms = self._environment.clock.now_ms() + ROLL_RETRY_MS
            return
        except LostLeadership as error:
            raise Fenced(str(error)) from error
        self._acks = AckTracker(new.replicas, end)
        self._open_bytes = 0
        self._open_max_timestamp = -1
        self._open_since_ms = self._environment.clock.now_ms()
        self._open_durability = durability
        if sealed.end > sealed.base:
            self._environment.spawn(self.measure(sealed))

    def _snapshot(self, end: Offset) -> bytes:
        """What the segment after the open one begins with. An open one that is empty goes without a trace: what
        it began with goes on."""
        chain = self.register.chain
        segment = chain.open if end > chain.open.base or not chain.sealed else chain.sealed[-1]
        return self.transactions.snapshot(end, aborted_from=segment.base)

    async def measure(self, sealed: SealedSegment) -> None:
        """Have the store flush and measure a sealed segment, and note the figures. One that is gone is left alone."""
        try:
            measured = await self._store.seal(sealed.id, sealed.end)
            await self.register.update(
                replace(
                    sealed,
                    size_bytes=measured.size_bytes,
                    max_timestamp=measured.max_timestamp,
                    crc32c=measured.crc32c,
                )
            )
        except (StoreError, Unavailable, Unknown, LostLeadership) as error:
            if isinstance(error, UnknownSegment) and sealed not in self.register.chain.sealed:
                return
            log_fact("measure_failed", partition=self.id, segment=sealed.id, error=f"{type(error).__name__}: {error}")

    # Reading

    def check_offset(self, offset: Offset) -> None:
        if not self.log_start <= offset <= self.log_end:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in the log, which holds {self.log_start} to {self.log_end}.",
            )

    def check_epoch(self, epoch: LeaderEpoch) -> None:
        """A client that says which leader it believes in learns if it is wrong (KIP-320). -1: it does not say."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise RequestError(code, f"The leader epoch is {self.leader_epoch}, not {epoch}.")

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch in which the record at `offset` was written, or would be."""
        starts = self.register.chain.epochs()
        return max((start.epoch for start in starts if start.start <= offset), default=starts[0].epoch)

    def read_tail(self, offset: Offset, max_bytes: int) -> list[Buffer] | None:
        """Committed batches from memory, or None if `offset` is not there."""
        return self._tail.read(offset, self.high_watermark, max_bytes)

    async def read(self, offset: Offset, max_bytes: int) -> Buffer:
        """Committed batches from the store; empty if there are none at or after `offset`."""
        return (await self._read(offset, self.high_watermark, max_bytes))[0]

    def read_stable_tail(self, offset: Offset, max_bytes: int) -> tuple[list[Buffer], list[Aborted]] | None:
        """As `read_tail`, below the last stable offset; and the aborted transactions that may have a part in it."""
        found = self._tail.read(offset, self.last_stable_offset, max_bytes)
        if not found:
            return None if found is None else (found, [])
        return found, self.transactions.aborted.overlapping(offset, parse_header(found[-1]).last_offset + 1)

    async def read_stable(self, offset: Offset, max_bytes: int) -> tuple[Buffer, list[Aborted]]:
        """As `read`, below the last stable offset; and the aborted transactions that may have a part in it."""
        found, aborted = await self._read(offset, self.last_stable_offset, max_bytes)
        if not len(found) or not aborted.count_from(offset):
            return found, []
        *_, last = headers(found)
        return found, aborted.overlapping(offset, last.last_offset + 1)

    def aborted_transactions(self, first: Offset, end: Offset) -> list[tuple[int, Offset]]:
        """(producer id, first offset) of the aborted transactions of which something may lie in [first, end)."""
        return [(entry.producer_id, entry.first_offset) for entry in self.transactions.aborted.overlapping(first, end)]

    async def _read(self, offset: Offset, limit: Offset, max_bytes: int) -> tuple[Buffer, AbortedTransactions]:
        """Batches below `limit`, and the aborted transactions as they are known of the very segment that was read: one
        that compaction has cleaned holds nothing of those it has made us forget."""
        aborted = self.transactions.aborted
        while offset < limit:
            segment = self.register.chain.find(offset)
            aborted = self.transactions.aborted
            end = min(limit, segment.end) if isinstance(segment, SealedSegment) else limit
            try:
                found = await self._store.read(segment.id, max(offset, segment.base), end, max_bytes)
            except UnknownSegment:
                if self.register.chain.find(offset).id == segment.id:
                    raise
                continue  # retention or compaction was faster
            if len(found) or isinstance(segment, OpenSegment):
                return found, aborted
            offset = segment.end  # compaction left nothing here
        return b"", aborted

    # Ending

    async def trim(self, start: Offset) -> None:
        """Nothing below `start` is readable any more; whole segments below it go."""
        dropped = await self.register.advance_start(start)
        self._environment.tail_cache.drop_below(self._tail, self.log_start)
        self.transactions.forget_below(self.log_start)
        for segment in dropped:
            await self.delete_replica(segment.id)

    async def swap(self, old: Sequence[SealedSegment], new: SealedSegment) -> None:
        """One compacted segment takes the place of its neighbours. Raises SegmentsChanged if they are not there."""
        try:
            await self.register.swap(old, new)
        except SegmentsChanged:
            await self.delete_replica(new.id)
            raise
        # In the same moment as the swap: see _read.
        self._environment.tail_cache.drop_below(self._tail, new.end)
        if new.compacted:
            self.transactions.forget_below(new.end)
        for segment in old:
            await self.delete_replica(segment.id)

    async def delete_replica(self, segment: SegmentId) -> None:
        state = self._store.replica(segment)
        if state is not None:
            await self._store.delete(segment, state.instance)

    async def close(self) -> None:
        """The topic is gone: refuse what comes, fail what waits."""
        self.is_deleted = True
        if self._writer is not None:
            await asyncio.wait([self._writer])
        self._environment.tail_cache.clear(self._tail)
        for watcher in (*self.watchers, *self.stable_watchers):
            watcher.grew(0)

    async def settle(self) -> None:
        """Before a clean stop: let the writer finish, then tell the store that everything is committed, so that the
        next start has no tail to carry over."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
        if self._open_bytes and not self.is_deleted:
            await self._store.append(self.register.chain.open.id, self._sent, self._sent, self.high_watermark, [])
