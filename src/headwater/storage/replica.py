"""One replica of one segment, as the store keeps it in memory, and the record of it in journal and checkpoint.

Owned by the event loop: nothing else changes it. `end` and `size_bytes` speak of what was acknowledged;
`queued_end` and `queued_bytes` also of what is on its way.

    payload of a STATE entry (its prefix has segment, instance, base as first, end, lac, size as position,
    max timestamp):  flags 1, leader epoch 4, crc32c when sealed 4, partition length 2, partition, header
"""

import asyncio
import enum
import struct
from typing import Final

from headwater.model.ids import LeaderEpoch, Offset, SegmentId
from headwater.model.replica import Durability, ReplicaState, SealedReplica
from headwater.storage.block_index import BlockIndex
from headwater.storage.entry import EntryKind, JournalEntry

_FIXED: Final = struct.Struct(">BiIH")


def check_id(segment: SegmentId) -> None:
    """A segment's id is part of file names."""
    if len(segment) != 32 or not set(segment) <= set("0123456789abcdef"):
        raise ValueError(f"a segment id has 32 hex digits, not {segment!r}")


class _Flag(enum.IntFlag):
    FENCED = 1
    DOUBT = 2
    SEALED = 4
    OS = 8


class Replica:
    __slots__ = (
        "append_lock",
        "append_waiters",
        "attempt",
        "base",
        "broken_attempt",
        "created",
        "durability",
        "end",
        "epoch",
        "header",
        "idle",
        "in_doubt",
        "index",
        "instance",
        "is_deleted",
        "is_fence_durable",
        "is_fenced",
        "is_index_unsynced",
        "is_sealing",
        "lac",
        "max_timestamp",
        "partition",
        "pending",
        "queued_bytes",
        "queued_end",
        "sealed_crc",
        "segment",
        "size_bytes",
        "synced_bytes",
        "synced_end",
    )

    def __init__(
        self,
        segment: SegmentId,
        instance: int,
        partition: str,
        base: Offset,
        epoch: LeaderEpoch,
        header: bytes,
        durability: Durability,
    ) -> None:
        self.segment = segment
        self.instance = instance
        self.partition = partition
        self.base = base
        self.epoch = epoch
        self.header = header
        self.durability = durability
        self.end = self.queued_end = self.synced_end = base
        self.size_bytes = self.queued_bytes = self.synced_bytes = 0
        self.lac = base
        self.max_timestamp = -1
        self.is_fenced = False
        self.is_fence_durable = False
        self.in_doubt = False
        self.sealed_crc: int | None = None
        self.is_sealing = False
        self.is_deleted = False
        self.index: BlockIndex | None = None
        self.is_index_unsynced = False
        self.attempt = 0
        """Counts failed appends; those queued behind a failed one belong to the same attempt, and fail with it."""
        self.broken_attempt = -1
        """The last attempt that failed. Only the writer's thread sets and reads it."""
        self.pending = 0
        self.idle: asyncio.Future[None] | None = None
        """Resolved when nothing is pending any more."""
        self.created: asyncio.Future[None] | None = None
        """Resolved when the replica itself is durable; None from then on."""
        self.append_lock: asyncio.Lock | None = None
        """Held while an append is compared with what is here. Later appends wait behind it."""
        self.append_waiters = 0

    @property
    def is_sealed(self) -> bool:
        return self.sealed_crc is not None

    @property
    def name(self) -> str:
        """Of its files. The instance is in it, so that a replica never meets files of one deleted before it."""
        return f"{self.segment}-{self.instance:x}"

    def state(self) -> ReplicaState:
        return ReplicaState(
            segment=self.segment,
            partition=self.partition,
            base=self.base,
            end=self.end,
            epoch=self.epoch,
            lac=min(self.lac, self.end),
            size_bytes=self.size_bytes,
            max_timestamp=self.max_timestamp,
            is_fenced=self.is_fenced,
            in_doubt=self.in_doubt,
            is_sealed=self.is_sealed,
            instance=self.instance,
            header=self.header,
        )

    def sealed(self) -> SealedReplica:
        assert self.sealed_crc is not None, "only a sealed replica was measured"
        return SealedReplica(self.end, self.size_bytes, self.sealed_crc, self.max_timestamp)

    def grow(self, end: Offset, size_bytes: int, max_timestamp: int, lac: Offset) -> None:
        self.end = end
        self.size_bytes = size_bytes
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        self.lac = max(self.lac, min(lac, end))
        self.queued_end = max(self.queued_end, end)
        self.queued_bytes = max(self.queued_bytes, size_bytes)

    def shrink(self, end: Offset, size_bytes: int) -> None:
        """Bytes at the end are gone or unreadable."""
        self.end = self.queued_end = end
        self.size_bytes = self.queued_bytes = size_bytes

    def seal(self, sealed: SealedReplica) -> None:
        self.shrink(sealed.end, sealed.size_bytes)
        self.synced_end, self.synced_bytes = sealed.end, sealed.size_bytes
        self.max_timestamp = sealed.max_timestamp
        self.lac = sealed.end
        self.sealed_crc = sealed.crc32c

    def is_same_create(
        self, partition: str, base: Offset, epoch: LeaderEpoch, header: bytes, durability: Durability
    ) -> bool:
        return (self.partition, self.base, self.epoch, self.header, self.durability) == (
            partition,
            base,
            epoch,
            header,
            durability,
        )

    def to_entry(self) -> JournalEntry:
        """What is known to be on the disk. In `os` mode that is less than what was acknowledged; the restart
        scan finds the rest in the segment file."""
        flags = _Flag(0)
        if self.is_fenced:
            flags |= _Flag.FENCED
        if self.in_doubt:
            flags |= _Flag.DOUBT
        if self.is_sealed:
            flags |= _Flag.SEALED
        is_os = self.durability is Durability.OS
        if is_os:
            flags |= _Flag.OS
        partition = self.partition.encode()
        payload = _FIXED.pack(flags, self.epoch, self.sealed_crc or 0, len(partition)) + partition + self.header
        return JournalEntry(
            EntryKind.STATE,
            self.segment,
            self.instance,
            first=self.base,
            end=self.synced_end if is_os else self.end,
            lac=self.lac,
            position=self.synced_bytes if is_os else self.size_bytes,
            max_timestamp=self.max_timestamp,
            payload=(payload,),
        )

    @classmethod
    def from_entry(cls, entry: JournalEntry) -> "Replica":
        payload = bytes(entry.payload[0])
        flag_bits, epoch, sealed_crc, partition_bytes = _FIXED.unpack_from(payload)
        flags = _Flag(flag_bits)
        header_at = _FIXED.size + partition_bytes
        replica = cls(
            segment=entry.segment,
            instance=entry.instance,
            partition=payload[_FIXED.size : header_at].decode(),
            base=entry.first,
            epoch=epoch,
            header=payload[header_at:],
            durability=Durability.OS if _Flag.OS in flags else Durability.SYNC,
        )
        replica.grow(entry.end, entry.position, entry.max_timestamp, entry.lac)
        replica.synced_end, replica.synced_bytes = entry.end, entry.position
        replica.is_fenced = replica.is_fence_durable = _Flag.FENCED in flags
        replica.in_doubt = _Flag.DOUBT in flags
        if _Flag.SEALED in flags:
            replica.sealed_crc = sealed_crc
        return replica
