"""One partition of `__share_group_state`, the internal topic that remembers what share groups did with their records.

    key    a snapshot, a change in its slot, or a claim, of one share partition: `share_keys`
    value  of a snapshot or a change an event of `queues/events`, in the bytes of `queues/event_bytes`; of a claim a
           leader epoch, int32; none: the key is deleted

The topic is compacted. Changes since a snapshot have slots of their own, counted from 0, so none of them is lost before
the next snapshot comes; then their slots are used again, and compaction drops what the snapshot made superfluous. A
change that comes before any snapshot of its share partition is a leftover of that, and is not looked at.

Whoever leads a topic's partition serves its queues, and writes their state here, from this node or another one. It
claims the state first, with its leader epoch: from then on a leader of an older epoch can neither claim nor write. Each
claim has a ticket, which must come with every write, so that what was sent under an earlier claim and comes late is
refused, too. Tickets are not stored: when the log moves to another node, everybody claims again.

Keys of older versions are written for as long as a node of the cluster knows no others. Then the next claim of a share
partition writes what is known of it as one snapshot, and deletes it under its old keys. Records take effect in their
order, so a state that is partly under the one and partly under the other is whole.

When the log does not take an append, the memory is ahead of the truth: whoever waits is told, and everything is read
again from the log.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

from headwater.broker.log.partition import Partition
from headwater.broker.nodes.node_messages import Claimed, ShareKey, StateEntry, StateWrite
from headwater.broker.queues.state_keys import MAX_CHANGES, Kind, StateKey
from headwater.broker.queues.state_keys import decode as decode_key
from headwater.broker.state.record_log import RecordLog, Spawn
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import LeaderEpoch, PartitionId, TopicId
from headwater.queues.event_bytes import decode as decode_event
from headwater.queues.event_bytes import encode as encode_event
from headwater.queues.share_state import ShareState
from headwater.records.record import Record
from headwater.transport.facts import log_fact

T = TypeVar("T")

NO_EPOCH: LeaderEpoch = -1
_EPOCH = struct.Struct(">i")


class _Kept:
    """What is known of one share partition."""

    __slots__ = ("changes", "epoch", "old_slots", "slots", "snapshot", "snapshot_is_old", "ticket")

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        self.ticket = 0
        self.snapshot = b""
        self.changes: list[bytes] = []
        self.slots: int | None = None
        """All that were ever used; None if there is no key at all."""
        self.old_slots: int | None = None
        """The same of keys of older versions."""
        self.snapshot_is_old = False

    def used(self, key: StateKey) -> None:
        """Something is written under the key."""
        if key.is_old:
            self.old_slots = max(self.old_slots or 0, key.slot + 1)
        else:
            self.slots = max(self.slots or 0, key.slot + 1)

    def whole(self) -> bytes | None:
        """A snapshot that has the changes in it; None if there is something that cannot be read."""
        state = ShareState(0, is_key_ordered=False)
        try:
            for value in (self.snapshot, *self.changes) if self.snapshot else ():
                state.apply(decode_event(value))
        except ValueError:
            return None
        return encode_event(state.snapshot()) if self.snapshot else b""


class ShareLog:
    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        spawn: Spawn,
        on_loaded: Callable[["ShareLog"], None],
        all_read_own_keys: Callable[[], bool] = lambda: True,
    ) -> None:
        """`all_read_own_keys` says whether there is no node left that would not understand the newer keys."""
        self._log = RecordLog(partition, clock, self._lost)
        self._spawn = spawn
        self._on_loaded = on_loaded
        self._kept: dict[ShareKey, _Kept] = {}
        self._tickets = count(1)
        self._all_read_own_keys = all_read_own_keys
        self._has_own_keys = False
        """Somebody wrote the newer keys, and so knew that everybody reads them."""
        self._loaded = asyncio.Event()

    async def load(self) -> None:
        """Replay the log, then take part."""

        def begin() -> Callable[[Record], None]:
            self._kept = {}
            return self._replay

        await self._log.load(begin)
        if self._kept:
            log_fact("shares_loaded", partition=self._log.partition.id.index, shares=len(self._kept))
        self._loaded.set()
        self._on_loaded(self)

    async def loaded(self, timeout_s: float) -> None:
        """Return when it takes part. Raises RequestError if that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._loaded.wait()
        except TimeoutError:
            self._check_loaded()

    def close(self, error: RequestError) -> None:
        """Another node has the log from now on."""
        self._loaded.clear()
        self._kept = {}

    # What leaders ask. All of it is decided at once, and holds when the future is done; that fails with RequestError.

    def claim(self, key: ShareKey, epoch: LeaderEpoch) -> "asyncio.Future[Claimed]":
        """The state of a share partition, which there may not be yet. Raises RequestError."""
        self._check_loaded()
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept()
        if epoch < kept.epoch:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, f"A leader in epoch {kept.epoch} has claimed the state.")
        return self._write(self._claim(key, kept, epoch), _claimed(kept))

    def claim_all(
        self, leaders: Mapping[PartitionId, LeaderEpoch]
    ) -> "asyncio.Future[Sequence[tuple[ShareKey, Claimed]]]":
        """All that is known of some partitions, except what a later leader has claimed. Raises RequestError."""
        self._check_loaded()
        written: list[Record] = []
        states = []
        for key, kept in self._kept.items():
            epoch = leaders.get(key.partition, NO_EPOCH)
            if kept.snapshot and epoch >= kept.epoch and epoch != NO_EPOCH:
                written += self._claim(key, kept, epoch)
                states.append((key, _claimed(kept)))
        return self._write(written, states)

    def write(self, write: StateWrite) -> "asyncio.Future[None]":
        """Log what was decided. Raises RequestError: FENCED_STATE_EPOCH if something else was claimed or written since,
        as far as the writer knows; it may claim again."""
        kept = self._ticketed(write.key, write.ticket)
        entries = write.entries
        starts_over = bool(entries) and entries[0].is_snapshot
        if not starts_over and (write.position != len(kept.changes) or not kept.snapshot):
            raise RequestError(ErrorCode.FENCED_STATE_EPOCH, "An earlier change of the state is missing.")
        changes = len(kept.changes)
        for entry in entries:
            changes = 0 if entry.is_snapshot else changes + 1
            if changes > MAX_CHANGES:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"More than {MAX_CHANGES} changes without a snapshot.")
        return self._write([self._entered(write.key, kept, entry) for entry in entries], None)

    def forget(self, key: ShareKey, ticket: int) -> "asyncio.Future[None]":
        """The group is gone, and all that is known with it. Raises RequestError."""
        self._ticketed(key, ticket)
        return self._write(list(self._forgotten(key)), None)

    # What happens to topics

    def topics(self) -> set[TopicId]:
        return {key.partition.topic_id for key in self._kept}

    def forget_topic(self, topic_id: TopicId) -> None:
        """It is deleted: nobody will read on in it."""
        if not self._loaded.is_set():
            return
        keys = [key for key in self._kept if key.partition.topic_id == topic_id]
        self._write([record for key in keys for record in self._forgotten(key)], None)

    # Inside

    def _check_loaded(self) -> None:
        if not self._loaded.is_set():
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _ticketed(self, key: ShareKey, ticket: int) -> _Kept:
        self._check_loaded()
        kept = self._kept.get(key)
        if kept is None or kept.ticket != ticket:
            raise RequestError(ErrorCode.FENCED_STATE_EPOCH, "The state was claimed anew.")
        return kept

    def _claim(self, key: ShareKey, kept: _Kept, epoch: LeaderEpoch) -> list[Record]:
        kept.ticket = next(self._tickets)
        is_new, kept.epoch = kept.epoch != epoch, epoch
        if kept.old_slots is not None and not self._writes_old and (whole := kept.whole()) is not None:
            return list(self._moved(key, kept, whole))
        return [self._claim_record(key, kept)] if is_new else []

    def _moved(self, key: ShareKey, kept: _Kept, whole: bytes) -> Iterator[Record]:
        """All that is known, under the newer keys, and only then the old ones are deleted: the write may be cut off
        behind any of them."""
        yield self._claim_record(key, kept)
        if whole:
            yield self._entered(key, kept, StateEntry(True, whole))
        yield from _deletions(key, kept.old_slots, is_old=True)
        kept.old_slots = None

    def _claim_record(self, key: ShareKey, kept: _Kept) -> Record:
        name = StateKey(Kind.CLAIM, key, is_old=self._writes_old)
        kept.used(name)
        return Record(name.encode(), _EPOCH.pack(kept.epoch))

    def _entered(self, key: ShareKey, kept: _Kept, entry: StateEntry) -> Record:
        """The record of one event, in the place that is next for its share partition."""
        is_old = self._writes_old
        if entry.is_snapshot:
            name = StateKey(Kind.SNAPSHOT, key, is_old=is_old)
            kept.snapshot, kept.changes, kept.snapshot_is_old = entry.value, [], is_old
        else:
            name = StateKey(Kind.CHANGE, key, len(kept.changes), is_old)
            kept.changes.append(entry.value)
        kept.used(name)
        return Record(name.encode(), entry.value)

    @property
    def _writes_old(self) -> bool:
        """Once and for all: who is to read them was there when the first newer key was written."""
        self._has_own_keys = self._has_own_keys or self._all_read_own_keys()
        return not self._has_own_keys

    def _forgotten(self, key: ShareKey) -> Iterator[Record]:
        kept = self._kept.pop(key)
        yield from _deletions(key, kept.slots, is_old=False)
        yield from _deletions(key, kept.old_slots, is_old=True)

    def _write(self, written: Sequence[Record], result: T) -> "asyncio.Future[T]":
        promise: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._log.write(written, partial(_settle, promise, result))
        return promise

    def _lost(self, error: RequestError) -> None:
        self._loaded.clear()
        self._kept = {}
        if not self._log.partition.is_over:
            self._spawn(self.load())

    # Reading

    def _replay(self, record: Record) -> None:
        name = decode_key(record.key or b"")
        self._has_own_keys = self._has_own_keys or not name.is_old
        if record.value is None:
            if name.kind is Kind.SNAPSHOT:
                self._deleted(name)
            return
        kept = self._kept.get(name.share)
        if kept is None:
            kept = self._kept[name.share] = _Kept()
        kept.used(name)
        if name.kind is Kind.CLAIM:
            if len(record.value) != _EPOCH.size:
                raise ValueError(f"a claim of {len(record.value)} bytes")
            kept.epoch = _EPOCH.unpack(record.value)[0]
        elif name.kind is Kind.SNAPSHOT:
            kept.snapshot, kept.changes, kept.snapshot_is_old = record.value, [], name.is_old
        elif kept.snapshot:
            kept.changes.append(record.value)

    def _deleted(self, snapshot: StateKey) -> None:
        """Of the group's state, or of what older versions wrote of it and is under newer keys now."""
        kept = self._kept.get(snapshot.share)
        if kept is None:
            return
        if snapshot.is_old and not kept.snapshot_is_old and kept.slots is not None:
            kept.old_slots = None
        elif snapshot.is_old or not kept.snapshot_is_old:  # else the old key's deletion follows
            del self._kept[snapshot.share]


def _claimed(kept: _Kept) -> Claimed:
    return Claimed(kept.ticket, kept.snapshot, tuple(kept.changes))


def _deletions(key: ShareKey, slots: int | None, *, is_old: bool) -> Iterator[Record]:
    if slots is None:
        return
    yield Record(StateKey(Kind.SNAPSHOT, key, is_old=is_old).encode(), None)
    for slot in range(slots):
        yield Record(StateKey(Kind.CHANGE, key, slot, is_old).encode(), None)
    yield Record(StateKey(Kind.CLAIM, key, is_old=is_old).encode(), None)


def _settle(promise: "asyncio.Future[T]", result: T, error: RequestError | None) -> None:
    if promise.done():
        return
    if error is None:
        promise.set_result(result)
    else:
        promise.set_exception(RequestError(error.code, error.message))
        promise.exception()  # nobody may be waiting
