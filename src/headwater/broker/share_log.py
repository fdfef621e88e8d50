"""One partition of `__share_group_state`, the internal topic that remembers what share groups did with their records.

    key    int16 0, string group, uuid topic, int32 partition                a snapshot: the whole state
           int16 1, string group, uuid topic, int32 partition, int32 slot    a change since the last snapshot
    value  an event of `queues/events`, in the bytes of `queues/event_bytes`; none: the key is deleted

The topic is compacted. Changes since a snapshot have slots of their own, counted from 0, so none of them is lost before
the next snapshot comes; then their slots are used again, and compaction drops what the snapshot made superfluous. A
change that comes before any snapshot of its share partition is a leftover of that, and is not looked at.

When the log does not take an append, the memory is ahead of the truth: whoever waits is told, and the state is read
again from the log.
"""

import asyncio
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from headwater.broker.partition import Partition
from headwater.broker.record_log import RecordLog
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.queues.event_bytes import decode, encode
from headwater.queues.events import ShareEvent, ShareSnapshot
from headwater.queues.settings import QueueSettings
from headwater.queues.share_partition import SharePartition
from headwater.records.record import Record
from headwater.transport.facts import log_fact

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
        on_loaded: Callable[["ShareLog", dict[ShareKey, SharePartition]], None],
        on_lost: Callable[["ShareLog"], None],
    ) -> None:
        """`on_loaded` is given the state of every share partition that the log has. `on_lost` is told when the log did
        not take an append, or another node has it: it must drop what it knows."""
        self._log = RecordLog(partition, clock, self._lost)
        self._settings = settings
        self._on_loaded = on_loaded
        self._on_lost = on_lost
        self._logged: dict[ShareKey, _Logged] = {}
        self.loaded = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether another node has the log."""
        return self._log.partition.is_over

    async def load(self) -> None:
        """Replay the log, then take part."""
        found: dict[ShareKey, SharePartition] = {}

        def begin() -> Callable[[Record], None]:
            found.clear()
            self._logged = {}
            return partial(self._replay_record, found)

        await self._log.load(begin)
        for key in [key for key in self._logged if key not in found]:
            del self._logged[key]
        if found:
            log_fact("shares_loaded", partition=self._log.partition.id.index, shares=len(found))
        self._on_loaded(self, found)
        self.loaded.set()

    def close(self, error: RequestError) -> None:
        """Another node has the log from now on."""
        self._lost(error)

    def write(self, key: ShareKey, events: Sequence[ShareEvent], share: SharePartition) -> "asyncio.Future[None]":
        """Log what was decided; done when it is on disk, fails with RequestError. `share` is in the state after it."""
        logged = self._logged.get(key)
        if logged is None:
            logged = self._logged[key] = _Logged()
        written = [_change(key, logged, event) for event in events]
        if logged.next_slot >= MAX_CHANGES or logged.change_bytes > max(MIN_SNAPSHOT_BYTES, logged.snapshot_bytes):
            written.append(_change(key, logged, share.snapshot()))
        return self._write(written)

    def forget(self, key: ShareKey) -> "asyncio.Future[None]":
        """The group or the topic is gone, and all that is known with it."""
        logged = self._logged.pop(key, None)
        if logged is None:
            return self._write([])
        slots = (_key(_CHANGE, key) + _SLOT.pack(slot) for slot in range(logged.slots))
        return self._write([Record(name, None) for name in (_key(_SNAPSHOT, key), *slots)])

    def _write(self, written: Sequence[Record]) -> "asyncio.Future[None]":
        promise: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._log.write(written, partial(_settle, promise))
        return promise

    def _lost(self, error: RequestError) -> None:
        self.loaded.clear()
        self._logged = {}
        self._on_lost(self)

    # Reading

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


def _change(key: ShareKey, logged: _Logged, event: ShareEvent) -> Record:
    """The record of one event, in the place that is next for its share partition."""
    value = encode(event)
    if isinstance(event, ShareSnapshot):
        logged.next_slot = logged.change_bytes = 0
        logged.snapshot_bytes = len(value)
        return Record(_key(_SNAPSHOT, key), value)
    name = _key(_CHANGE, key) + _SLOT.pack(logged.next_slot)
    logged.next_slot += 1
    logged.slots = max(logged.slots, logged.next_slot)
    logged.change_bytes += len(value)
    return Record(name, value)


def _settle(promise: "asyncio.Future[None]", error: RequestError | None) -> None:
    if promise.done():
        return
    if error is None:
        promise.set_result(None)
    else:
        promise.set_exception(RequestError(ErrorCode.KAFKA_STORAGE_ERROR, error.message))
        promise.exception()  # nobody may be waiting


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
