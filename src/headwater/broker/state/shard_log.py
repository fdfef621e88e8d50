"""The log of one shard: a partition of an internal topic, and the state that is replayed from it into memory.

- Decisions are applied to the shard at once, ahead of the log. Nothing that follows from them may leave the node before
  `write` calls back: then they, and everything decided before them, are committed.
- When the partition refuses an append, memory is ahead of the log. The shard is dropped, its owner refuses every
  request that waits, and the log is replayed into a new shard.

Groups (`groups/group_log`), transactions (`transactions/transaction_log`) and queues (`queues/state_keeper`) own one
for each partition that this node leads; `state_topic` opens and closes them.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from headwater.broker.log.partition import Partition
from headwater.broker.state.record_log import RecordLog, Spawn, Then
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.records.record import Record

S = TypeVar("S")


class ShardOwner(Protocol[S]):
    """What differs from one kind of shard to another."""

    def new_shard(self) -> S: ...

    def replay(self, shard: S, record: Record) -> None:
        """Apply one record of the log. A ValueError skips the record."""

    def loaded(self, shard: S, record_count: int) -> None:
        """The log was replayed into the shard, which decides from now on."""

    def dropped(self, shard: S, code: ErrorCode, error: RequestError) -> None:
        """The shard decides no more: refuse the requests that wait in it."""


class ShardLog(Generic[S]):
    def __init__(self, partition: Partition, clock: Clock, spawn: Spawn, owner: ShardOwner[S]) -> None:
        self._log = RecordLog(partition, clock, self._start_over)
        self._spawn = spawn
        self._owner = owner
        self._shard: S | None = None
        self._is_loaded_or_closed = asyncio.Event()

    @property
    def partition(self) -> Partition:
        return self._log.partition

    @property
    def is_loaded(self) -> bool:
        return self._shard is not None

    @property
    def shard(self) -> S:
        """Raises RequestError while the log is being replayed."""
        if self._shard is None:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._shard

    def is_run_by(self, shard: S) -> bool:
        """Whether this shard still decides, and was not replaced by a replay."""
        return self._shard is shard

    def write(self, records: Sequence[Record], then: Then) -> None:
        """Log what the shard decided; `then` is called when that, and everything before it, is committed or lost."""
        self._log.write(records, then)

    async def load(self) -> None:
        """Replay the partition, then take part."""
        shard = self._owner.new_shard()

        def begin() -> Callable[[Record], None]:
            nonlocal shard
            shard = self._owner.new_shard()
            return partial(self._owner.replay, shard)

        record_count = await self._log.load(begin)
        self._shard = shard
        self._is_loaded_or_closed.set()
        self._owner.loaded(shard, record_count)

    async def loaded(self) -> None:
        """Return when the log is replayed, or another node leads the partition."""
        await self._is_loaded_or_closed.wait()

    def close(self, error: RequestError) -> None:
        """Another node leads the partition: requests that wait are sent there."""
        self._is_loaded_or_closed.set()
        self._drop(ErrorCode.NOT_COORDINATOR, error)

    def _start_over(self, error: RequestError) -> None:
        """An append was refused: replay what the log has."""
        self._is_loaded_or_closed.clear()
        self._drop(ErrorCode.COORDINATOR_NOT_AVAILABLE, error)
        if not self.partition.is_over:
            self._spawn(self.load())

    def _drop(self, code: ErrorCode, error: RequestError) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            self._owner.dropped(shard, code, error)


class PendingReply(Protocol):
    @property
    def to(self) -> object: ...

    @property
    def answer(self) -> object: ...


def give(replies: Sequence[PendingReply], error: RequestError | None) -> None:
    """Answer the requests that wait; with an error, send their clients to look for the coordinator again."""
    for reply in replies:
        waiting = reply.to
        assert isinstance(waiting, asyncio.Future), "a request waits here with a future"
        if waiting.done():
            continue
        if error is None:
            waiting.set_result(reply.answer)
        else:
            waiting.set_exception(RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message))
