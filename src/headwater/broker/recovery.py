"""Taking the lead of a partition: fence what the last leader wrote to, carry its tail over, open a new segment
(REPLICATION.md, 1.7).

The order matters: the tail is on the new segment's replicas before the metadata points there, because it may have been
acknowledged. A crash in between leaves an orphan that garbage collection finds; the next leader starts again
from the old segment, which is still the one that is listed.
"""

from dataclasses import dataclass, replace

from headwater.broker.chain import Chain
from headwater.broker.partition import Environment
from headwater.metadata import keys
from headwater.metadata.keys import Head, OpenSegment, SealedSegment
from headwater.metadata.store import Condition, Is, Operation, Put
from headwater.model.ids import Offset, PartitionId
from headwater.model.replica import Buffer, Durability, ReplicaState
from headwater.records.batch import split
from headwater.replication.recovery import decide
from headwater.transactions.aborted_transactions import AbortedTransactions
from headwater.transactions.partition_snapshot import CorruptSnapshot, read_aborted
from headwater.transactions.partition_transactions import PartitionTransactions
from headwater.transport.facts import log_fact

READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Takeover:
    """A partition that is ready to be led, once its change is in the metadata."""

    partition: PartitionId
    head: Head
    sealed: SealedSegment | None
    """The old segment, unless nothing of it remains."""
    end: Offset
    open_bytes: int
    transactions: PartitionTransactions
    conditions: tuple[Condition, ...]
    operations: tuple[Operation, ...]


async def take_over(
    environment: Environment, partition: PartitionId, head: Head, version: int, durability: Durability
) -> Takeover:
    """Everything up to the transaction, which the caller makes, for many partitions at once."""
    old = head.open
    assert old is not None, "every partition has an open segment"
    store = environment.store
    epoch = head.epoch + 1
    state = await store.fence(old.id)
    if state.in_doubt:
        log_fact("replica_in_doubt", partition=partition, segment=old.id, end=state.end)
    found = decide(old.replicas, {store.store_id: state})
    assert found is not None, "the only replica has answered"
    committed, end = max(found.committed, old.base), max(found.end, old.base)
    transactions, at_committed = await _transactions_at(environment, old, state, committed, end)
    new = OpenSegment(environment.new_segment_id(), committed, epoch, end, (store.store_id,))
    await store.create(new.id, str(partition), committed, epoch, at_committed, durability)
    open_bytes = await _carry_over(environment, old, new, committed, end)
    new_head = replace(head, leader=environment.node_id, epoch=epoch, open=new)
    operations: list[Operation] = [Put(keys.head_key(partition), keys.encode(new_head))]
    sealed = None
    if committed > old.base:
        sealed = SealedSegment(
            old.id, old.base, committed, old.epoch, old.epoch_start, old.replicas,
            state.size_bytes, state.max_timestamp, crc32c=None,
        )  # fmt: skip
        operations.append(Put(keys.sealed_key(partition, old.id), keys.encode(sealed)))
    conditions = (Is(keys.head_key(partition), version),)
    return Takeover(partition, new_head, sealed, end, open_bytes, transactions, conditions, tuple(operations))


def recall_aborted(
    environment: Environment, transactions: PartitionTransactions, chain: Chain, log_start: Offset
) -> None:
    """Add what the snapshots of sealed segments say: each has the aborted transactions of the segment before. Of those
    that ended in a segment which compaction has cleaned nothing is left, not even the marker for sure."""
    is_cleaned = {segment.id: segment.compacted for segment in chain.sealed}
    start = max(log_start, next(segment.base for segment in chain if not is_cleaned.get(segment.id, False)))
    older = AbortedTransactions()
    for segment in chain.sealed:
        state = environment.store.replica(segment.id) if segment.base > start else None
        if state is not None:
            try:
                older.extend(read_aborted(state.header))
            except CorruptSnapshot as error:
                raise CorruptSnapshot(f"segment {segment.id} at offset {segment.base}: {error}") from error
    transactions.lead(older)
    transactions.forget_below(start)


async def _transactions_at(
    environment: Environment, old: OpenSegment, state: ReplicaState, committed: Offset, end: Offset
) -> tuple[PartitionTransactions, bytes]:
    """Producers and transactions at `end`, and the snapshot for a segment that begins at `committed`: the old segment's
    own snapshot, then its batches. If nothing of the old segment remains, what its snapshot says goes on."""
    transactions = PartitionTransactions.restore(state.header)
    aborted_from = old.base if committed > old.base else 0
    at_committed = None
    offset = old.base
    while offset < end:
        batches = split(await environment.store.read(old.id, offset, end, READ_BYTES))
        if not batches:
            break
        for header, batch in batches:
            if header.base_offset >= committed and at_committed is None:
                at_committed = transactions.snapshot(committed, aborted_from)
            if header.producer_id >= 0:
                transactions.replay(batch, header)
        offset = batches[-1][0].last_offset + 1
        transactions.commit(offset)
    if at_committed is None:
        at_committed = transactions.snapshot(committed, aborted_from)
    return transactions, at_committed


async def _carry_over(
    environment: Environment, old: OpenSegment, new: OpenSegment, committed: Offset, end: Offset
) -> int:
    """Copy [committed, end) unchanged, epochs and all; return its size."""
    store = environment.store
    offset, size = committed, 0
    while offset < end:
        batches = split(await store.read(old.id, offset, end, READ_BYTES))
        assert batches, f"the replica ends before {end}"
        pieces: list[Buffer] = [view for header, view in batches if header.base_offset >= offset]
        next_offset = batches[-1][0].last_offset + 1
        await store.append(new.id, offset, next_offset, committed, pieces)
        size += sum(map(len, pieces))
        offset = next_offset
    return size
