"""Taking the lead of a partition: fence what the last leader wrote to, carry its tail over, open a new segment
(REPLICATION.md, 1.7).

The order matters: the tail is on the new segment's replicas before the metadata points there, because it may have been
acknowledged. A crash in between leaves an orphan that garbage collection finds; the next leader starts again
from the old segment, which is still the one that is listed.
"""

from dataclasses import dataclass, replace

from headwater.broker.partition import Environment
from headwater.metadata import keys
from headwater.metadata.keys import Head, OpenSegment, SealedSegment
from headwater.metadata.store import Condition, Is, Operation, Put
from headwater.model.ids import Offset, PartitionId
from headwater.model.replica import Buffer, Durability, ReplicaState
from headwater.records.batch import headers, split
from headwater.replication.recovery import decide
from headwater.transactions.producer_state import ProducerStates
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
    producers: ProducerStates
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
    producers, at_committed = await _producers_at(environment, old, state, committed, end)
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
    return Takeover(partition, new_head, sealed, end, open_bytes, producers, conditions, tuple(operations))


async def _producers_at(
    environment: Environment, old: OpenSegment, state: ReplicaState, committed: Offset, end: Offset
) -> tuple[ProducerStates, bytes]:
    """Producer state at `end`, and its snapshot at `committed`: the old segment's header, then its batches."""
    producers = ProducerStates.restore(state.header) if state.header else ProducerStates()
    offset = old.base
    while offset < end:
        data = await environment.store.read(old.id, offset, end, READ_BYTES)
        last = None
        for last in headers(data):
            if last.producer_id >= 0:
                producers.append(last)
        if last is None:
            break
        offset = last.last_offset + 1
    return producers, producers.snapshot(below=committed)


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
