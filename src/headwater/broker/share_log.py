"""One partition of `__share_group_state`, the internal topic that remembers what share groups did with their records.

    key    int16 0, string group, uuid topic, int32 partition                a snapshot: the whole state
           int16 1, string group, uuid topic, int32 partition, int32 slot    a change since the last snapshot
    value  an event of `queues/events`, in the bytes of `queues/event_bytes`; none: the key is deleted

The topic is compacted. Changes since a snapshot have slots of their own, counted from 0, so none of them is lost before
the next snapshot comes; then their slots are used again, and compaction drops what the snapshot made superfluous. A
change that comes before any snapshot of its share partition is a leftover of that, and is not looked at.

One append is under way at a time; what is decided meanwhile is written together by the next one. When the log does
not take an append, the memory is ahead of the truth: whoever waits is told, and the state is read again from the log.
"""

import asyncio
import struct
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.broker.partition import Partition
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.model.replica import StoreError, StoreFailed
from headwater.queues.event_bytes import MalformedEvent, decode, encode
from headwater.queues.events import ShareEvent, ShareSnapshot
from headwater.queues.settings import QueueSettings
from headwater.queues.share_partition import SharePartition
from headwater.records.batch import BatchHeader, CorruptBatch, parse_header, split
from headwater.records.build import build_batch, chunked
from headwater.records.record import Record, records
from headwater.transport.facts import log_fact

LOAD_CHUNK_BYTES = 1024 * 1024
LOAD_RETRY_S = 1.0
"""State that cannot be read is of no use to anyone, so reading it is tried again, this far apart, for ever."""
MAX_BATCH_BYTES = 1024 * 1024
"""Events that are logged together; a single larger one goes alone."""
MAX_CHANGES = 500
"""Changes between two snapshots, and thereby the slots of one share partition."""
MIN_SNAPSHOT_BYTES = 16 * 1024
"""Changes of fewer bytes than this, or than the last snapshot, are cheaper to keep than a new snapshot is."""
_SNAPSHOT, _CHANGE = 0, 1
_HEAD = struct.Struct(">hh")
_TAIL = struct.Struct(">16si")
_SLOT = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class ShareKey:
    """A partition as one group sees it."""

    group_id: str
    partition: PartitionId


class _Logged:
    """What the log knows of one share partition besides its state."""

    __slots__ = ("change_bytes", "next_slot", "slots", "snapshot_bytes")

    def __init__(self) -> None:
        self.next_slot = 0
        self.slots = 0
        self.change_bytes = 0
        self.snapshot_bytes = 0


class ShareLog:
    def __init__(
        self,
        partition: Partition,
        settings: Callable[[str], QueueSettings],
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        on_lost: Callable[["ShareLog"], None],
    ) -> None:
        """`on_lost` is told when the log did not take an append: it must drop what it knows, and call `load`."""
        self._partition = partition
        self._settings = settings
        self._clock = clock
        self._spawn = spawn
        self._on_lost = on_lost
        self._logged: dict[ShareKey, _Logged] = {}
        self._records: list[Record] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._is_writing = False
        self.loaded = asyncio.Event()

    async def load(self) -> dict[ShareKey, SharePartition]:
        """Replay the log: the state of every share partition that it has."""
        while True:
            try:
                found = await self._replay()
                break
            except StoreFailed:
                raise
            except StoreError as error:
                log_fact("shares_load_failed", partition=self._partition.id, error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(LOAD_RETRY_S)
        if found:
            log_fact("shares_loaded", partition=self._partition.id.index, shares=len(found))
        return found

    def write(self, key: ShareKey, events: Sequence[ShareEvent], share: SharePartition) -> "asyncio.Future[None]":
        """Log what was decided; done when it is on disk, fails with RequestError. `share` is in the state after it."""
        logged = self._logged.get(key)
        if logged is None:
            logged = self._logged[key] = _Logged()
        for event in events:
            self._add(key, logged, event)
        if logged.next_slot >= MAX_CHANGES or logged.change_bytes > max(MIN_SNAPSHOT_BYTES, logged.snapshot_bytes):
            self._add(key, logged, share.snapshot())
        return self._promise()

    def forget(self, key: ShareKey) -> "asyncio.Future[None]":
        """The group or the topic is gone, and all that is known with it."""
        logged = self._logged.pop(key, None)
        if logged is not None:
            self._records.append(Record(_key(_SNAPSHOT, key), None))
            self._records += (Record(_key(_CHANGE, key) + _SLOT.pack(slot), None) for slot in range(logged.slots))
        return self._promise()

    # Writing

    def _add(self, key: ShareKey, logged: _Logged, event: ShareEvent) -> None:
        value = encode(event)
        if isinstance(event, ShareSnapshot):
            logged.next_slot = logged.change_bytes = 0
            logged.snapshot_bytes = len(value)
            self._records.append(Record(_key(_SNAPSHOT, key), value))
            return
        self._records.append(Record(_key(_CHANGE, key) + _SLOT.pack(logged.next_slot), value))
        logged.next_slot += 1
        logged.slots = max(logged.slots, logged.next_slot)
        logged.change_bytes += len(value)

    def _promise(self) -> "asyncio.Future[None]":
        promise: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._records and not self._is_writing:
            promise.set_result(None)
            return promise
        self._waiting.append(promise)
        if not self._is_writing:
            self._is_writing = True
            self._spawn(self._write())
        return promise

    async def _write(self) -> None:
        try:
            while self._records or self._waiting:
                batch, self._records = self._records, []
                waiting, self._waiting = self._waiting, []
                try:
                    await self._append(batch)
                except RequestError as error:
                    self._lost(waiting + self._waiting, error)
                    return
                for promise in waiting:
                    if not promise.done():
                        promise.set_result(None)
        finally:
            self._is_writing = False

    async def _append(self, written: Sequence[Record]) -> None:
        appended = []
        for chunk in chunked(written, MAX_BATCH_BYTES):
            batch = build_batch(chunk, timestamp=self._clock.now_ms())
            appended.append(self._partition.append(batch, parse_header(batch)))
        for each in appended:
            if each.committed is not None:
                await each.committed

    def _lost(self, waiting: Sequence["asyncio.Future[None]"], error: RequestError) -> None:
        log_fact("shares_dropped", partition=self._partition.id.index, error=error.message)
        self.loaded.clear()
        self._records, self._waiting, self._logged = [], [], {}
        for promise in waiting:
            if not promise.done():
                promise.set_exception(RequestError(ErrorCode.KAFKA_STORAGE_ERROR, error.message))
                promise.exception()  # nobody may be waiting
        self._on_lost(self)

    # Reading

    async def _replay(self) -> dict[ShareKey, SharePartition]:
        found: dict[ShareKey, SharePartition] = {}
        self._logged = {}
        offset, end = self._partition.log_start, self._partition.high_watermark
        while offset < end:
            read = await self._partition.read(offset, LOAD_CHUNK_BYTES)
            if not len(read):
                break
            for header, batch in split(read):
                if header.last_offset >= offset:
                    self._replay_batch(found, header, batch)
                    offset = header.last_offset + 1
            await asyncio.sleep(0)
        for key in [key for key in self._logged if key not in found]:
            del self._logged[key]
        return found

    def _replay_batch(self, found: dict[ShareKey, SharePartition], header: BatchHeader, batch: memoryview) -> None:
        """What cannot be read is left out: one bad record must not take the other groups with it."""
        if header.is_control:
            return
        try:
            for record in records(batch, header):
                try:
                    self._replay_record(found, record)
                except (MalformedEvent, ValueError) as error:
                    log_fact("share_record_unreadable", offset=record.offset, error=error)
        except CorruptBatch as error:
            log_fact("share_batch_unreadable", offset=header.base_offset, error=error)

    def _replay_record(self, found: dict[ShareKey, SharePartition], record: Record) -> None:
        kind, key, slot = _parse_key(record.key or b"")
        if record.value is None:
            if kind == _SNAPSHOT:
                found.pop(key, None)
                self._logged.pop(key, None)
            return
        logged = self._logged.setdefault(key, _Logged())
        logged.slots = max(logged.slots, slot + 1)
        share = found.get(key)
        if kind == _SNAPSHOT:
            share = found[key] = SharePartition(self._settings(key.group_id))
            logged.next_slot = logged.change_bytes = 0
            logged.snapshot_bytes = len(record.value)
        elif share is None:
            return
        else:
            logged.next_slot = slot + 1
            logged.change_bytes += len(record.value)
        share.apply(decode(record.value))


def _key(kind: int, key: ShareKey) -> bytes:
    group = key.group_id.encode()
    return _HEAD.pack(kind, len(group)) + group + _TAIL.pack(key.partition.topic_id.bytes, key.partition.index)


def _parse_key(data: bytes) -> tuple[int, ShareKey, int]:
    """Kind, share partition, and the slot of a change (-1 for a snapshot). Raises ValueError."""
    try:
        kind, size = _HEAD.unpack_from(data)
        if size < 0:
            raise ValueError("the name of a group has a negative length")
        group_id = data[_HEAD.size : _HEAD.size + size].decode()
        topic_id, index = _TAIL.unpack_from(data, _HEAD.size + size)
        slot = _SLOT.unpack_from(data, _HEAD.size + size + _TAIL.size)[0] if kind == _CHANGE else -1
    except struct.error as error:
        raise ValueError(f"the key of {len(data)} bytes is cut off") from error
    if kind not in (_SNAPSHOT, _CHANGE) or not -1 <= slot < MAX_CHANGES:
        raise ValueError(f"a key of kind {kind}, slot {slot} is not known")
    return kind, ShareKey(group_id, PartitionId(uuid.UUID(bytes=topic_id), index)), slot
