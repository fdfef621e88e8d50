"""One partition of `__share_group_state`, the internal topic that remembers what share groups did with their records.

    key    int16 0, string group, uuid topic, int32 partition                a snapshot: the whole state
           int16 1, string group, uuid topic, int32 partition, int32 slot    a change since the last snapshot
           int16 2, string group, uuid topic, int32 partition                a claim
    value  of 0 and 1 an event of `queues/events`, in the bytes of `queues/event_bytes`; of 2 a leader epoch, int32;
           none: the key is deleted

The topic is compacted. Changes since a snapshot have slots of their own, counted from 0, so none of them is lost before
the next snapshot comes; then their slots are used again, and compaction drops what the snapshot made superfluous. A
change that comes before any snapshot of its share partition is a leftover of that, and is not looked at.

Whoever leads a topic's partition serves its queues, and writes their state here, from this node or another one. It
claims the state first, with its leader epoch: from then on a leader of an older epoch can neither claim nor write. Each
claim has a ticket, which must come with every write, so that what was sent under an earlier claim and comes late is
refused, too. Tickets are not stored: when the log moves to another node, everybody claims again.

When the log does not take an append, the memory is ahead of the truth: whoever waits is told, and everything is read
again from the log.
"""

import asyncio
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

from headwater.broker.node_calls import Claimed, ShareKey, StateEntry, StateWrite
from headwater.broker.partition import Partition
from headwater.broker.record_log import RecordLog, Spawn
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import LeaderEpoch, PartitionId, TopicId
from headwater.records.record import Record
from headwater.transport.facts import log_fact

T = TypeVar("T")

MAX_CHANGES = 500
"""Changes between two snapshots, and thereby the slots of one share partition."""
NO_EPOCH: LeaderEpoch = -1
_SNAPSHOT, _CHANGE, _CLAIM = 0, 1, 2
_HEAD = struct.Struct(">hh")
_TAIL = struct.Struct(">16si")
_SLOT = struct.Struct(">i")
_EPOCH = struct.Struct(">i")


class _Kept:
    """What is known of one share partition."""

    __slots__ = ("changes", "epoch", "slots", "snapshot", "ticket")

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        self.ticket = 0
        self.snapshot = b""
        self.changes: list[bytes] = []
        self.slots = 0
        """All that were ever used."""


class ShareLog:
    def __init__(
        self, partition: Partition, clock: Clock, spawn: Spawn, on_loaded: Callable[["ShareLog"], None]
    ) -> None:
        self._log = RecordLog(partition, clock, self._lost)
        self._spawn = spawn
        self._on_loaded = on_loaded
        self._kept: dict[ShareKey, _Kept] = {}
        self._tickets = count(1)
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
        return self._write([_entered(write.key, kept, entry) for entry in entries], None)

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
        if kept.epoch == epoch:
            return []
        kept.epoch = epoch
        return [Record(_key(_CLAIM, key), _EPOCH.pack(epoch))]

    def _forgotten(self, key: ShareKey) -> Iterator[Record]:
        kept = self._kept.pop(key)
        slots = (_key(_CHANGE, key) + _SLOT.pack(slot) for slot in range(kept.slots))
        for name in (_key(_SNAPSHOT, key), *slots, _key(_CLAIM, key)):
            yield Record(name, None)

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
        kind, key, slot = _parse_key(record.key or b"")
        if record.value is None:
            if kind == _SNAPSHOT:
                self._kept.pop(key, None)
            return
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept()
        if kind == _CLAIM:
            if len(record.value) != _EPOCH.size:
                raise ValueError(f"a claim of {len(record.value)} bytes")
            kept.epoch = _EPOCH.unpack(record.value)[0]
        elif kind == _SNAPSHOT:
            kept.snapshot, kept.changes = record.value, []
        else:
            kept.slots = max(kept.slots, slot + 1)
            if kept.snapshot:
                kept.changes.append(record.value)


def _claimed(kept: _Kept) -> Claimed:
    return Claimed(kept.ticket, kept.snapshot, tuple(kept.changes))


def _entered(key: ShareKey, kept: _Kept, entry: StateEntry) -> Record:
    """The record of one event, in the place that is next for its share partition."""
    if entry.is_snapshot:
        kept.snapshot, kept.changes = entry.value, []
        return Record(_key(_SNAPSHOT, key), entry.value)
    name = _key(_CHANGE, key) + _SLOT.pack(len(kept.changes))
    kept.changes.append(entry.value)
    kept.slots = max(kept.slots, len(kept.changes))
    return Record(name, entry.value)


def _settle(promise: "asyncio.Future[T]", result: T, error: RequestError | None) -> None:
    if promise.done():
        return
    if error is None:
        promise.set_result(result)
    else:
        promise.set_exception(RequestError(error.code, error.message))
        promise.exception()  # nobody may be waiting


def _key(kind: int, key: ShareKey) -> bytes:
    group = key.group_id.encode()
    return _HEAD.pack(kind, len(group)) + group + _TAIL.pack(key.partition.topic_id.bytes, key.partition.index)


def _parse_key(data: bytes) -> tuple[int, ShareKey, int]:
    """Kind, share partition, and the slot of a change (-1 for others). Raises ValueError."""
    try:
        kind, size = _HEAD.unpack_from(data)
        if size < 0:
            raise ValueError("the name of a group has a negative length")
        group_id = data[_HEAD.size : _HEAD.size + size].decode()
        topic_id, index = _TAIL.unpack_from(data, _HEAD.size + size)
        slot = _SLOT.unpack_from(data, _HEAD.size + size + _TAIL.size)[0] if kind == _CHANGE else -1
    except struct.error as error:
        raise ValueError(f"the key of {len(data)} bytes is cut off") from error
    if kind not in (_SNAPSHOT, _CHANGE, _CLAIM) or not -1 <= slot < MAX_CHANGES:
        raise ValueError(f"a key of kind {kind}, slot {slot} is not known")
    return kind, ShareKey(group_id, PartitionId(uuid.UUID(bytes=topic_id), index)), slot
