"""One partition of `__share_group_state`, the internal topic that remembers what share groups did with their records.

    key    a snapshot, a change in its slot, or a claim, of one share partition: `state_keys`
    value  of a snapshot or a change an event of `queues/events`, in the bytes of `queues/event_bytes`; of a claim a
           leader epoch, int32; none: the key is deleted

The topic is compacted. The leader of a topic's partition serves its queues, and writes their state here, from this node
or another one. `kept_shares` decides what may be claimed and written; here it is logged in order (`state/shard_log`),
and answered when it is committed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

from headwater.broker.log.partition import Partition
from headwater.broker.nodes.node_messages import Claimed, ShareKey, StateWrite
from headwater.broker.queues.kept_shares import KeptShares, KeyVersion
from headwater.broker.state.record_log import Spawn
from headwater.broker.state.shard_log import ShardLog
from headwater.logs.events import log_event
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import LeaderEpoch, PartitionId, TopicId
from headwater.records.record import Record

T = TypeVar("T")


class StateKeeper:
    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        spawn: Spawn,
        on_loaded: Callable[["StateKeeper"], None],
        all_read_own_keys: Callable[[], bool] = lambda: True,
    ) -> None:
        """`all_read_own_keys` says whether every node of the cluster understands the newer keys."""
        self._on_loaded = on_loaded
        self._tickets = count(1)
        self._keys = KeyVersion(all_read_own_keys)
        self.shard_log = ShardLog(partition, clock, spawn, self)

    async def wait_loaded(self, timeout_s: float) -> None:
        """Return when the log is replayed. Raises RequestError if that takes too long, or another node has the log."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.shard_log.loaded()
        if not self.shard_log.is_loaded:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    # Calls of leaders. Each is decided at once, and holds when its future is done, which may fail with RequestError.

    def claim(self, key: ShareKey, epoch: LeaderEpoch) -> "asyncio.Future[Claimed]":
        """The state of a share partition, which may be empty. Raises RequestError."""
        records, claimed = self.shard_log.shard.claim(key, epoch)
        return self._write(records, claimed)

    def claim_all(
        self, leaders: Mapping[PartitionId, LeaderEpoch]
    ) -> "asyncio.Future[Sequence[tuple[ShareKey, Claimed]]]":
        """All that is known of some partitions, except what a later leader has claimed. Raises RequestError."""
        records, states = self.shard_log.shard.claim_all(leaders)
        return self._write(records, states)

    def write(self, write: StateWrite) -> "asyncio.Future[None]":
        """Log what was decided. Raises RequestError: FENCED_STATE_EPOCH if the state was claimed or written since, as
        far as the writer knows; it may claim again."""
        return self._write(self.shard_log.shard.write(write), None)

    def forget(self, key: ShareKey, ticket: int) -> "asyncio.Future[None]":
        """The group is gone, and all that is known with it. Raises RequestError."""
        return self._write(self.shard_log.shard.forget(key, ticket), None)

    # Deleted topics

    def topics(self) -> set[TopicId]:
        return self.shard_log.shard.topics() if self.shard_log.is_loaded else set()

    def forget_topic(self, topic_id: TopicId) -> None:
        """The topic was deleted, and its queues with it."""
        if self.shard_log.is_loaded:
            self._write(self.shard_log.shard.forget_topic(topic_id), None)

    # Called by the shard log

    def new_shard(self) -> KeptShares:
        return KeptShares(self._tickets, self._keys)

    def replay(self, shard: KeptShares, record: Record) -> None:
        shard.apply(record)

    def loaded(self, shard: KeptShares, record_count: int) -> None:
        if len(shard):
            log_event("shares_loaded", partition=self.shard_log.partition.id.index, shares=len(shard))
        self._on_loaded(self)

    def dropped(self, shard: KeptShares, code: ErrorCode, error: RequestError) -> None:
        """No call waits in the shard itself: the futures of writes fail with the append."""

    def _write(self, records: Sequence[Record], result: T) -> "asyncio.Future[T]":
        promise: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.shard_log.write(records, partial(_resolve, promise, result))
        return promise


def _resolve(promise: "asyncio.Future[T]", result: T, error: RequestError | None) -> None:
    if promise.done():
        return
    if error is None:
        promise.set_result(result)
    else:
        promise.set_exception(RequestError(error.code, error.message))
        promise.exception()  # its caller may be gone
