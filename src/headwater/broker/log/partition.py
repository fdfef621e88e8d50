"""One partition, led by this node: it assigns offsets, has its batches replicated, and serves what is committed.

Appends are taken in the order of the calls. What every replica of the open segment holds is committed, and becomes
readable; where the only replica takes a batch at once (small, `durability=os`, nothing before it), that is when the
call returns. If it is certain that a batch is on no disk (they are full), it fails with everything behind it, and the
log end goes back.

All state belongs to the broker's event loop. A partition leads in one epoch; when it steps down, another object takes
its place.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headwater.broker.log.committed_log import CommittedLog
from headwater.broker.log.lead_check import LeadCheck
from headwater.broker.log.node_ports import NodePorts, OneStore
from headwater.broker.log.partition_metadata import PartitionMetadata
from headwater.broker.log.replicator import Replicator
from headwater.broker.log.segment_measuring import measure_segment
from headwater.broker.settings.topic_config import TopicConfig
from headwater.logs.events import log_event
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import Offset, PartitionId, SegmentId, StoreId
from headwater.model.replica import Durability, StoreError
from headwater.model.segments import SealedSegment
from headwater.records.batch import BatchHeader, parse_header, stamp, stamp_log_append_time
from headwater.records.control import EndMarker, build_marker
from headwater.replication.effects import Entry, Rules
from headwater.replication.leader import Leader
from headwater.transactions.partition_transactions import ABORTED_PER_SEGMENT, PartitionTransactions
from headwater.transactions.producer_state import Duplicate, EndedBefore

ROLL_RETRY_MS = 1_000


class Watcher(Protocol):
    """A request that waits for a partition to grow."""

    def grew(self, size_bytes: int) -> None:
        """So many bytes more can be read; 0: the watcher must look again, whatever it waits for."""


class Appended(NamedTuple):
    base_offset: Offset
    log_append_time_ms: int
    committed: "asyncio.Future[None] | None"
    """Done when the batch is committed, or when the first replica has it if that was asked for; fails with
    RequestError. None if there is nothing to wait for."""


class _Waiting(NamedTuple):
    end: Offset
    committed: "asyncio.Future[None]"
    stored: "asyncio.Future[None] | None"
    """For a request that waits for the first replica only (acks=1)."""


@dataclass(frozen=True, slots=True)
class Begun:
    """How a leader finds its open segment."""

    end: Offset
    """Everything below is committed."""
    size_bytes: int
    max_timestamp: int
    durability: Durability


class Partition(CommittedLog):
    def __init__(
        self,
        ports: NodePorts,
        partition_id: PartitionId,
        topic_name: str,
        register: PartitionMetadata,
        config: TopicConfig,
        rules: Rules,
        transactions: PartitionTransactions,
        begun: Begun,
        on_over: "Callable[[Partition], None]" = lambda partition: None,
    ) -> None:
        """`on_over` is called when another node turns out to lead."""
        super().__init__(ports, register, transactions)
        assert register.chain.open.base <= begun.end, "everything in sealed segments is committed"
        self.id = partition_id
        self.topic_name = topic_name
        self.config = config
        self.watchers: set[Watcher] = set()
        """Notified when the high watermark moves."""
        self.stable_watchers: set[Watcher] = set()
        """Notified when the last stable offset moves."""
        self.refusal: RequestError | None = None
        """Why requests are refused from now on: another node leads, or the topic was deleted."""
        self._on_over = on_over
        self._ports = ports
        clock = ports.clock
        self._leader = Leader(
            segment=register.chain.open,
            end=begun.end,
            open_bytes=begun.size_bytes,
            rules=rules,
            choose=ports.choose,
            new_segment_id=ports.new_segment_id,
            now=clock.monotonic(),
            max_timestamp=begun.max_timestamp,
        )
        self._open_since_ms = clock.now_ms()
        self._open_durability = begun.durability
        self._next_roll_ms = 0
        self._waiting: deque[_Waiting] = deque()
        self._appended_bytes = 0
        """Since the start; so are the next two."""
        self._committed_bytes = 0
        self._stable_bytes = transactions.stable_bytes(begun.end, 0)
        self._replicator = Replicator(ports, self, register, self._leader)
        self._lead_check: LeadCheck | None = None

    # What is there

    @property
    def high_watermark(self) -> Offset:
        return self._leader.high_watermark

    @property
    def log_end(self) -> Offset:
        return self._leader.log_end

    def check_offset(self, offset: Offset) -> None:
        """An offset past the end is refused as that only if this node is sure to lead (`broker.lead_check`)."""
        if offset > self.log_end and not isinstance(self._ports.stores, OneStore):
            if self._lead_check is None:
                ports = self._ports
                self._lead_check = LeadCheck(ports.clock, ports.spawn, self.register.confirm, self.resign)
            if not self._lead_check.is_past_the_end(offset):
                raise RequestError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"The log ends at {self.log_end} here: another node may lead."
                )
        super().check_offset(offset)

    @property
    def commits_at_once(self) -> bool:
        """Whether a small append, made now, can be expected to be committed when the call returns."""
        return (
            self._open_durability is Durability.OS
            and self._replicator.is_idle
            and self._leader.segment.replicas == (self._ports.own_store_id,)
        )

    @property
    def size_bytes(self) -> int:
        return self.register.chain.sealed_bytes + self.open_bytes

    @property
    def open_bytes(self) -> int:
        return self._leader.committed_bytes + self._leader.queued_bytes

    @property
    def open_max_timestamp(self) -> int:
        return self._leader.max_timestamp

    @property
    def replicas(self) -> tuple[StoreId, ...]:
        """All that hold what is committed to the open segment."""
        return self._leader.segment.replicas

    @property
    def rules(self) -> Rules:
        return self._leader.rules

    @property
    def open_segment(self) -> SegmentId:
        return self._leader.segment.id

    def choose(self, segment: SegmentId) -> tuple[StoreId, ...]:
        """Stores for a new segment of this partition."""
        return self._ports.choose(self.rules.replication_factor, frozenset(), segment)

    @property
    def is_over(self) -> bool:
        return self.refusal is not None

    # Writing

    def append(self, batch: bytearray | memoryview, header: BatchHeader, *, for_one: bool = False) -> Appended:
        """Give a checked batch its offsets and send it to the replicas. Idempotent: a batch that was appended before is
        not again. `for_one`: the request waits for the first replica only (acks=1), and may lose the batch with it.

        A transactional batch begins its producer's transaction here, or goes on with it. Whether it may begin is for
        the coordinator to say: ask before."""
        self._check_takes()
        if header.producer_id >= 0:
            verdict = self.producers.check(header)
            if isinstance(verdict, Duplicate):
                return self._appended_before(verdict.base_offset, verdict.last_offset)
        return self._enqueue(batch, header, None, for_one)

    def append_marker(
        self, producer_id: int, producer_epoch: int, is_commit: bool, coordinator_epoch: int
    ) -> Appended | None:
        """End a producer's transaction, and fence its older epochs. None if that was done before and is committed;
        if it is on its way, what to wait for. Raises RequestError INVALID_PRODUCER_EPOCH for an epoch older than the
        one known, TRANSACTION_COORDINATOR_FENCED if another coordinator has taken over since."""
        self._check_takes()
        verdict = self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        if isinstance(verdict, EndedBefore):
            written = self._appended_before(verdict.marker_offset, verdict.marker_offset)
            return written if written.committed is not None else None
        if not is_commit:
            self.transactions.check_room(self.register.chain.open.base)
        marker = EndMarker(is_commit, coordinator_epoch)
        batch = build_marker(producer_id, producer_epoch, marker, self._ports.clock.now_ms())
        return self._enqueue(batch, parse_header(batch), marker)

    def check_led(self) -> None:
        """Raises RequestError if nothing can be done here any more."""
        if self.refusal is not None:
            raise RequestError(self.refusal.code, self.refusal.message)

    def _check_takes(self) -> None:
        self.check_led()
        if self._leader.is_starving:
            raise RequestError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas is {self._leader.rules.min_insync}, and fewer stores can take the batch now.",
            )

    def _enqueue(
        self, batch: bytearray | memoryview, header: BatchHeader, marker: EndMarker | None, for_one: bool = False
    ) -> Appended:
        now_ms = self._ports.clock.now_ms()
        if self._is_roll_due(len(batch), now_ms):
            self._roll()
        base = self.log_end
        end = base + header.last_offset_delta + 1
        append_time = -1
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
        self._appended_bytes += len(batch)
        self._ports.tail_cache.add(self._tail, base, end, batch)
        self._replicator.append(Entry(base, end, batch, header.max_timestamp))
        if end <= self.high_watermark:
            return Appended(base, append_time, None)
        if self.log_end < end:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk did not take the batch: it is full.")
        self.check_led()
        loop = asyncio.get_running_loop()
        committed = loop.create_future()
        stored = loop.create_future() if for_one and end > self._leader.stored else None
        self._waiting.append(_Waiting(end, committed, stored))
        return Appended(base, append_time, stored if for_one else committed)

    def _appended_before(self, base_offset: Offset, last_offset: Offset) -> Appended:
        """The first copy may not be committed yet; the second is acknowledged no earlier."""
        committed = None
        if last_offset >= self.high_watermark:
            committed = next(entry for entry in self._waiting if entry.end > last_offset).committed
        return Appended(base_offset, -1, committed)

    # Called by the replicator

    @property
    def durability(self) -> Durability:
        return self.config.durability

    def snapshot(self, at: Offset) -> bytes:
        """What the segment after the open one begins with. An open one that is empty goes without a trace: what
        it began with goes on."""
        chain = self.register.chain
        segment = chain.open if at > chain.open.base or not chain.sealed else chain.sealed[-1]
        return self.transactions.snapshot(at, aborted_from=segment.base)

    def committed(self) -> None:
        waiting, high_watermark = self._waiting, self.high_watermark
        assert high_watermark <= self._leader.log_end, "nothing is committed past the log end"
        size_bytes = self._leader.total_bytes - self._committed_bytes
        self._committed_bytes += size_bytes
        self.transactions.commit(high_watermark)
        while waiting and waiting[0].end <= high_watermark:
            entry = waiting.popleft()
            _fulfil(entry.committed)
            _fulfil(entry.stored)
        for watcher in tuple(self.watchers):
            watcher.grew(size_bytes)
        stable_bytes = self.transactions.stable_bytes(high_watermark, self._committed_bytes)
        assert stable_bytes <= self._committed_bytes, "the last stable offset is not past the high watermark"
        if stable_bytes > self._stable_bytes:
            stabilised_bytes = stable_bytes - self._stable_bytes
            self._stable_bytes = stable_bytes
            for watcher in tuple(self.stable_watchers):
                watcher.grew(stabilised_bytes)

    def stored(self) -> None:
        """One replica more than before has the first of what waits."""
        end = self._leader.stored
        for entry in self._waiting:
            if entry.end > end:
                break
            _fulfil(entry.stored)

    def dropped(self, entries: Sequence[Entry], error: StoreError) -> None:
        """No replica holds these entries: forget them everywhere and fail the requests that wait for them."""
        assert self.log_end == self.high_watermark == entries[0].base, (
            "only what is not committed is dropped, all of it"
        )
        self._appended_bytes = self._committed_bytes
        self.transactions.truncate(entries[0].base)
        self._ports.tail_cache.clear(self._tail)
        self._fail_waiting(RequestError(ErrorCode.KAFKA_STORAGE_ERROR, f"The disk did not take the batch: {error}"))

    def rolled(self, sealed: SealedSegment | None) -> None:
        self._open_since_ms = self._ports.clock.now_ms()
        self._open_durability = self.config.durability
        self._next_roll_ms = 0
        if sealed is not None:
            self._ports.spawn(self._measure_in_turn(sealed))

    def stepped_down(self, reason: str) -> None:
        log_event("stepped_down", partition=self.id, epoch=self.leader_epoch, reason=reason)
        self._end(RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This node does not lead the partition: {reason}."))
        self._on_over(self)

    def _fail_waiting(self, error: RequestError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            for promise in (entry.committed, entry.stored):
                if promise is not None and not promise.done():
                    promise.set_exception(RequestError(error.code, error.message))
                    promise.exception()  # with acks=0 no request waits

    def configure(self, config: TopicConfig, rules: Rules) -> None:
        """The topic's settings were changed."""
        self.config = config
        self._leader.rules = rules
        self._replicator.reconsider(frozenset())

    # Rolling

    def ask_roll(self) -> None:
        """Start a new segment soon, if the open one holds anything."""
        if self.open_bytes and not self.is_over:
            self._roll()

    @property
    def is_rolling(self) -> bool:
        """A new segment is on its way."""
        return self._leader.is_rolling

    def reconsider_replicas(self, leaving: frozenset[StoreId] = frozenset()) -> None:
        """Stores came or went; those named are to be emptied."""
        self._replicator.reconsider(leaving)

    def store_lost(self, store: StoreId) -> None:
        """The connection to a store broke."""
        self._replicator.store_lost(store)

    def _roll(self) -> None:
        """If a new segment cannot be had, the old one goes on and another try follows later."""
        self._next_roll_ms = self._ports.clock.now_ms() + ROLL_RETRY_MS
        self._replicator.ask_roll()

    def _is_roll_due(self, next_bytes: int, now_ms: int) -> bool:
        if now_ms < self._next_roll_ms or self._leader.is_rolling:
            return False
        if self._open_durability is not self.config.durability:
            return True
        open_bytes, age_ms = self.open_bytes, now_ms - self._open_since_ms
        return bool(open_bytes) and (
            open_bytes + next_bytes > self.config.segment_bytes
            or (age_ms >= self.config.least_roll_age_ms and age_ms >= self.config.roll_age_ms(self.open_segment))
            or self.transactions.aborted.count_from(self.register.chain.open.base) >= ABORTED_PER_SEGMENT
        )

    @property
    def open_since_ms(self) -> int:
        return self._open_since_ms

    def is_older_than_segment_ms(self) -> bool:
        age_ms = self._ports.clock.now_ms() - self._open_since_ms
        return self.open_bytes > 0 and age_ms >= self.config.roll_age_ms(self.open_segment)

    async def _measure_in_turn(self, sealed: SealedSegment) -> None:
        async with self._ports.measures:
            if not self.is_over:
                await self.measure(sealed)

    async def measure(self, sealed: SealedSegment) -> None:
        """Have the stores flush and measure a sealed segment. A segment that is gone meanwhile is left alone."""
        problem = await measure_segment(self._ports, self.register, sealed)
        if problem is not None and self.register.chain.holds(sealed.id) and not self.is_over:
            why = f"{type(problem).__name__}: {problem}"
            log_event("measure_failed", logging.WARNING, partition=self.id, segment=sealed.id, error=why)

    # Ending

    async def trim(self, start: Offset) -> None:
        """Nothing below `start` is readable any more; whole segments below it go."""
        assert start <= self.high_watermark, "the log starts at an offset that is committed"
        dropped = await self.register.advance_start(start)
        self._ports.tail_cache.drop_below(self._tail, self.log_start)
        self.transactions.forget_below(self.log_start)
        for segment in dropped:
            await self.delete_replica(segment.id)

    async def swap(self, old: Sequence[SealedSegment], new: SealedSegment) -> None:
        """One compacted segment takes the place of its neighbours. Raises SegmentsChanged if they are not there."""
        await self.register.swap(old, new)
        # In the same moment as the swap: see _read.
        self._ports.tail_cache.drop_below(self._tail, new.end)
        if new.compacted:
            self.transactions.forget_below(new.end)
        for segment in old:
            await self.delete_replica(segment.id)

    async def delete_replica(self, segment: SegmentId) -> None:
        """What the metadata does not name any more goes at once from the store of this node. Other stores find it by
        themselves."""
        store = self._ports.store
        state = store.replica(segment) if store is not None else None
        if store is not None and state is not None:
            await store.delete(segment, state.instance)

    async def close(self) -> None:
        """The topic is gone: refuse what comes, fail what waits."""
        self._end(RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic was deleted."))
        await self._replicator.idle()

    def resign(self, reason: str) -> None:
        """Another node leads, the metadata says."""
        if not self.is_over:
            self.stepped_down(reason)

    def _end(self, refusal: RequestError) -> None:
        self.refusal = self.refusal or refusal
        self._replicator.stop()
        self._fail_waiting(refusal)
        self._ports.tail_cache.clear(self._tail)
        for watcher in (*self.watchers, *self.stable_watchers):
            watcher.grew(0)

    async def prepare_stop(self) -> None:
        """Before a clean stop: let what is under way finish, then tell the own store that everything is committed, so
        that the next start has no tail to carry over."""
        await self._replicator.idle()
        store = self._ports.store
        if store is None or store.store_id not in self.replicas or self.is_over or not self.open_bytes:
            return
        end = self.high_watermark
        if self.log_end == end:
            await store.append(self._leader.segment.id, end, end, end, [])


def _fulfil(promise: "asyncio.Future[None] | None") -> None:
    if promise is not None and not promise.done():
        promise.set_result(None)
