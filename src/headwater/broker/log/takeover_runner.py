"""Taking the lead of a partition: carries out what `replication.takeover` decides (docs/replication.md, 7).

The machine has the order of the steps; here are the stores and the metadata, and what a new leader learns on the way:
the producers and transactions of the segment that it replays.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.broker.log.node_ports import NodePorts
from headwater.broker.log.partition import Begun
from headwater.broker.log.partition_metadata import Metadata, PartitionMetadata, Writes, what_happened
from headwater.broker.log.replicator import refusal
from headwater.broker.log.segment_chain import Chain, gap
from headwater.broker.log.segment_reader import SegmentReader
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import Is, Operation, Put, Unavailable, Unknown
from headwater.model.ids import FIRST_OFFSET, Offset, PartitionId, SegmentId
from headwater.model.replica import Buffer, Durability, Store, StoreError, StoreFailed
from headwater.model.segments import Head, SealedSegment
from headwater.records.batch import split
from headwater.replication.effects import Effect, Fence, Plant, Publish, Refusal, Replay, Rules, StepDown
from headwater.replication.takeover import Takeover
from headwater.transactions.aborted_transactions import AbortedTransactions
from headwater.transactions.partition_snapshot import CorruptSnapshot, read_aborted
from headwater.transactions.partition_transactions import PartitionTransactions

READ_BYTES = 4 * 1024 * 1024


class Deposed(StoreError):
    """The metadata or the replicas show that another node leads by now: the head must be read again."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A partition that this node leads now."""

    register: PartitionMetadata
    transactions: PartitionTransactions
    begun: Begun


class TakeoverRun:
    def __init__(
        self,
        ports: NodePorts,
        metadata: Metadata,
        writes: Writes,
        partition: PartitionId,
        head: Head,
        version: int,
        rules: Rules,
        durability: Durability,
    ) -> None:
        self._ports = ports
        self._metadata = metadata
        self._writes = writes
        self._partition = partition
        self._head = head
        self._version = version
        self._durability = durability
        self._rules = rules
        self._machine = Takeover(head, rules, ports.choose, ports.new_segment_id, ports.is_lost)
        self._transactions = PartitionTransactions()
        self._header = self._transactions.snapshot(head.start, FIRST_OFFSET)
        self._source: Store | None = None
        self._own_instance: int | None = None
        """Of the old segment's replica in this node's store, when it was fenced."""
        self._tail_bytes = 0
        self._tail_max_timestamp = -1
        self._new_head = head
        self._sealed_version = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        self._failure: BaseException | None = None

    async def run(self, sealed: Mapping[SegmentId, tuple[SealedSegment, int]] | None = None) -> TakenOver | None:
        """Until the partition is led, or another node leads it (None). `sealed` are the sealed segments, if they were
        read after the head. What a step does not expect ends the whole: nothing waits for a result that never comes."""
        try:
            self._carry_out(self._machine.start(self._now()))
            while not self._machine.is_over:
                await self._wait()
                if self._failure is not None:
                    raise self._failure
                self._carry_out(self._machine.tick(self._now()))
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        led = self._machine.result
        if led is None:
            return None
        register = await self._register(sealed)
        if led.sealed is None:
            await self._delete_replaced()
        await recall_aborted(SegmentReader(self._ports), self._transactions, register.chain, register.start)
        begun = Begun(led.end, self._tail_bytes, self._tail_max_timestamp, self._durability)
        return TakenOver(register, self._transactions, begun)

    async def _wait(self) -> None:
        """For a result, or the machine's deadline."""
        deadline = self._machine.deadline
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - self._now(), 0.0)):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Fence():
                    self._start(self._fence(effect))
                case Replay():
                    self._start(self._replay(effect))
                case Plant():
                    self._start(self._plant(effect))
                case Publish():
                    self._start(self._publish(effect))
                case StepDown():
                    log_event("takeover_lost", partition=self._partition, reason=effect.reason)
                case _:
                    raise AssertionError(f"a takeover has no use for {effect}")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._woken.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error

    def _now(self) -> float:
        return self._ports.clock.monotonic()

    # The steps

    async def _fence(self, effect: Fence) -> None:
        try:
            async with asyncio.timeout(self._rules.replica_timeout_s):
                state = await self._ports.stores.find(effect.store).fence(effect.segment)
        except (StoreError, TimeoutError) as error:
            self._log_failure("fence_failed", effect.store, error)
            self._carry_out(self._machine.fence_failed(effect.store, self._now()))
            return
        if effect.store == self._ports.own_store_id:
            self._own_instance = state.instance
        if state.in_doubt:
            log_event(
                "replica_in_doubt", logging.WARNING, partition=self._partition, segment=effect.segment, end=state.end
            )
        self._carry_out(self._machine.fenced(effect.store, state, self._now()))

    async def _replay(self, effect: Replay) -> None:
        state = self._machine.replay_source
        assert state is not None, "what is replayed was fenced before"
        try:
            self._source = self._ports.stores.find(effect.source)
            await self._learn(self._source, effect, state.header)
        except (StoreError, CorruptSnapshot) as error:
            self._log_failure("replay_failed", effect.source, error)
            await asyncio.sleep(self._rules.grace_s)
            self._carry_out(self._machine.replay_failed(effect.source, self._now()))
        else:
            self._carry_out(self._machine.replayed(self._now()))

    async def _learn(self, source: Store, replay: Replay, header: bytes) -> None:
        """Producers and transactions at the end, and the snapshot for a segment that begins at what is committed: the
        old segment's own snapshot, then its batches. If nothing of the old segment remains, what its snapshot says
        goes on."""
        old, committed = replay.segment, replay.committed
        transactions = PartitionTransactions.restore(header)
        aborted_from = old.base if committed > old.base else FIRST_OFFSET
        at_committed = None
        tail_bytes, max_timestamp = 0, -1
        offset = old.base
        while offset < replay.end:
            batches = split(await source.read(old.id, offset, replay.end, READ_BYTES))
            if not batches:
                break
            for batch_header, batch in batches:
                if batch_header.base_offset >= committed:
                    if at_committed is None:
                        at_committed = transactions.snapshot(committed, aborted_from)
                    tail_bytes += len(batch)
                    max_timestamp = max(max_timestamp, batch_header.max_timestamp)
                if batch_header.producer_id >= 0:
                    transactions.replay(batch, batch_header)
            offset = batches[-1][0].last_offset + 1
            transactions.commit(offset)
        if at_committed is None:
            at_committed = transactions.snapshot(committed, aborted_from)
        self._transactions, self._header = transactions, at_committed
        self._tail_bytes, self._tail_max_timestamp = tail_bytes, max_timestamp

    async def _plant(self, effect: Plant) -> None:
        segment = effect.segment
        try:
            store = self._ports.stores.find(effect.store)
            partition = str(self._partition)
            async with asyncio.timeout(self._rules.plant_timeout_s):
                await store.create(segment.id, partition, segment.base, segment.epoch, self._header, self._durability)
                await self._carry_over(store, segment.id, effect.committed, effect.end)
        except Deposed:
            raise
        except (StoreError, TimeoutError) as error:
            self._log_failure("plant_failed", effect.store, error)
            why = refusal(error) if isinstance(error, StoreError) else Refusal.UNREACHABLE
            self._carry_out(self._machine.plant_failed(effect.store, segment.id, why, self._now()))
        else:
            self._carry_out(self._machine.planted(effect.store, segment.id, self._now()))

    async def _carry_over(self, store: Store, segment: SegmentId, committed: Offset, end: Offset) -> None:
        """The tail, unchanged, epochs and all."""
        offset = committed
        while offset < end:
            assert self._source is not None and self._head.open is not None, "a tail has an origin"
            batches = split(await self._source.read(self._head.open.id, offset, end, READ_BYTES))
            if not batches:
                raise Deposed(f"segment {self._head.open.id} was sealed at {offset}, before {end}")
            pieces: list[Buffer] = [view for header, view in batches if header.base_offset >= offset]
            next_offset = batches[-1][0].last_offset + 1
            await store.append(segment, offset, next_offset, committed, pieces)
            offset = next_offset

    async def _publish(self, effect: Publish) -> None:
        key = keys.head_key(self._partition)
        self._new_head = replace(self._head, epoch=self._machine.epoch, open=effect.open)
        value = keys.encode(self._new_head)
        operations: list[Operation] = [Put(key, value)]
        if effect.sealed is not None:
            operations.append(Put(keys.sealed_key(self._partition, effect.sealed.id), keys.encode(effect.sealed)))
        try:
            txn = await self._writes.txn([Is(key, self._version)], operations)
        except Unavailable as error:
            log_event("publish_failed", logging.WARNING, partition=self._partition, error=error)
            self._carry_out(self._machine.publish_failed(effect.open.id, self._now()))
            return
        except Unknown:
            txn = await what_happened(self._metadata, key, value, operations)
        if txn.ok:
            self._version = txn.versions[key]
            self._sealed_version = (
                txn.versions[keys.sealed_key(self._partition, effect.sealed.id)] if effect.sealed is not None else 0
            )
            self._carry_out(self._machine.published(effect.open.id, self._now()))
        else:
            self._carry_out(self._machine.publish_lost(self._now()))

    async def _register(self, sealed: Mapping[SegmentId, tuple[SealedSegment, int]] | None) -> PartitionMetadata:
        led = self._machine.result
        assert led is not None, "only what is led is registered"
        if sealed is None:
            sealed = await self._list_sealed()
        segments = dict(sealed)
        if led.sealed is not None:
            segments[led.sealed.id] = (led.sealed, self._sealed_version)
        if (place := gap((segment for segment, _ in segments.values()), led.open)) is not None:
            await self._check_head(f"segment {place.id} does not go on where the one before ends")
        return PartitionMetadata(self._metadata, self._writes, self._partition, self._new_head, self._version, segments)

    async def _delete_replaced(self) -> None:
        """The old segment, of which nothing is left: it was empty, as that of a partition where nothing was written
        since the last start is, or all of it was carried over. No head names it any more, and the leader of its
        epoch cannot seal it. Other stores find out by themselves."""
        old, store = self._head.open, self._ports.store
        if old is None or store is None or self._own_instance is None:
            return
        try:
            await store.delete(old.id, self._own_instance)
        except StoreFailed:
            raise
        except StoreError as error:  # the garbage collector will find it
            self._log_failure("replaced_not_deleted", store.store_id, error)

    async def _check_head(self, suspicion: str) -> None:
        """A head is read before its sealed segments. They may be those of a later one."""
        current = await self._metadata.get(keys.head_key(self._partition))
        if current is None or current.version != self._version:
            raise Deposed(f"{suspicion}: the head was changed by another node")

    async def _list_sealed(self) -> dict[SegmentId, tuple[SealedSegment, int]]:
        while True:
            try:
                found = await self._metadata.list(keys.sealed_prefix(self._partition))
            except (Unavailable, Unknown):
                await asyncio.sleep(self._rules.retry_s)
                continue
            segments = [(keys.decode_sealed(kv.value), kv.version) for kv in found]
            return {segment.id: (segment, version) for segment, version in segments}

    def _log_failure(self, event: str, store: str, error: Exception) -> None:
        log_event(
            event, logging.WARNING, partition=self._partition, store=store, error=f"{type(error).__name__}: {error}"
        )


async def recall_aborted(
    reader: SegmentReader, transactions: PartitionTransactions, chain: Chain, log_start: Offset
) -> None:
    """Add what the snapshots of sealed segments say: each has the aborted transactions of the segment before. Of those
    that ended in a segment which compaction has cleaned nothing is left, not even the marker for sure."""
    is_cleaned = {segment.id: segment.compacted for segment in chain.sealed}
    start = max(log_start, next(segment.base for segment in chain if not is_cleaned.get(segment.id, False)))
    older = AbortedTransactions()
    for segment in chain.sealed:
        if segment.base <= start:
            continue
        header = await reader.header(segment)
        try:
            older.extend(read_aborted(header))
        except CorruptSnapshot as error:
            raise CorruptSnapshot(f"segment {segment.id} at offset {segment.base}: {error}") from error
    transactions.lead(older)
    transactions.forget_below(start)
