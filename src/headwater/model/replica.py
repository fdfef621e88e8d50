"""What a leader and a store say to each other about one replica of one segment (docs/replication.md, 3 and 4).

`Store` is the port: the leader calls its own store directly, and a remote one through the same calls
over the network. Every mutating call returns only when its effect is durable in the sense of the
segment's `Durability`. `LocalStore` adds what only the node that has the disk can do.
"""

import enum
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headwater.model.ids import LeaderEpoch, Offset, SegmentId, StoreId

Buffer: TypeAlias = bytes | bytearray | memoryview


class Durability(enum.Enum):
    SYNC = "sync"
    """Acknowledged means flushed to the device: one fdatasync for all that wait."""
    OS = "os"
    """Acknowledged means written to the operating system: survives a crash of the process, not of the machine."""


class StoreError(Exception):
    """A store refused or could not do what was asked."""


class UnknownSegment(StoreError):
    """This store keeps no replica of that segment."""


class Fenced(StoreError):
    """The segment has a new owner. The caller is no longer the leader and must step down."""


class OutOfSequence(StoreError):
    """The append would leave a gap, or differs from what the replica already holds at those offsets."""


class NoSpace(StoreError):
    """The disk is full. Nothing of the call was kept; the same call may succeed when there is room again."""


class CorruptReplica(StoreError):
    """The bytes on disk do not have the checksum they were written with."""


class StoreFailed(StoreError):
    """A flush failed, so what the disk holds is unknown. The store answers nothing more; the process must stop."""


class UnsoundBatch(StoreError):
    """What was to be written is not a row of whole record batches in the order of their offsets."""


class AppendTooLarge(StoreError):
    """One append must fit into a file of the journal."""


class WrongStore(StoreError):
    """This address is another store: the disk was replaced, or the address belongs to another node now."""


class StoreUnreachable(StoreError):
    """No answer from a remote store. The outcome is unknown; sending the same call again is harmless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """One replica as its store knows it. Offsets cover [base, end)."""

    segment: SegmentId
    partition: str
    base: Offset
    end: Offset
    epoch: LeaderEpoch
    lac: Offset
    """The leader's high watermark when it last wrote here: everything below was committed."""
    size_bytes: int
    max_timestamp: int
    is_fenced: bool
    in_doubt: bool
    """Bytes that were acknowledged may be missing at the end (damage, or a power cut in `os` mode)."""
    is_sealed: bool
    instance: int
    """Grows whenever the replica is created, copied or adopted; garbage collection compares it."""
    header: bytes
    """The leader's snapshot (producer state) at `base`, opaque to the store."""


@dataclass(frozen=True, slots=True)
class SealedReplica:
    """What sealing measured, for the segment's metadata."""

    end: Offset
    size_bytes: int
    crc32c: int
    max_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDescription:
    """A sealed segment as metadata describes it: all that a store needs to know to take a copy of it, and to tell
    whether the copy is right."""

    segment: SegmentId
    partition: str
    base: Offset
    end: Offset
    epoch: LeaderEpoch
    header: bytes
    durability: Durability
    crc32c: int
    size_bytes: int


Source: TypeAlias = Callable[[Offset], Awaitable[Buffer]]
"""Where a copy comes from: whole batches from an offset on, as a donor's `read` gives them; empty behind the last."""


class Underway(Protocol):
    """An append that has begun."""

    def when_done(self, callback: Callable[[object], None]) -> None:
        """Call back when the append has succeeded or failed."""

    def outcome(self) -> Offset:
        """The replica's end, once the append is done. Raises StoreError."""


class Store(Protocol):
    @property
    def store_id(self) -> StoreId: ...

    async def create(
        self,
        segment: SegmentId,
        partition: str,
        base: Offset,
        epoch: LeaderEpoch,
        header: bytes,
        durability: Durability,
    ) -> None:
        """An empty replica. Repeating an identical create is harmless."""

    async def append(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset:
        """Append batches that together cover [first, end); return the replica's end.

        Batches are whole Kafka record batches with offsets assigned. The range may have holes inside
        (compaction leaves them) but `first` must not be past the replica's end. What the replica
        already holds is compared, not written again, so that resending is harmless."""

    def append_now(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset | None:
        """As `append`, if it can be done without waiting. None: it cannot, and nothing has happened."""

    def append_soon(
        self, segment: SegmentId, first: Offset, end: Offset, lac: Offset, batches: Sequence[Buffer]
    ) -> Offset | Underway | None:
        """As `append`, without a coroutine: the end, or an append under way. None: it cannot begin at once, and nothing
        has happened."""

    async def fence(self, segment: SegmentId) -> ReplicaState:
        """Refuse all later appends, durably, then return the replica's state. An unknown segment leaves a fenced
        tombstone in doubt, so that a late create cannot bring it to life."""

    async def read(self, segment: SegmentId, offset: Offset, limit: Offset, max_bytes: int) -> Buffer:
        """Whole batches, from the one that holds `offset` (or the next one, if compaction removed it) on,
        each ending below or at `limit`; about max_bytes, but at least one batch if there is one. Checksums are
        verified. Empty if there is nothing in [offset, limit)."""

    async def find_timestamp(self, segment: SegmentId, timestamp: int) -> Offset | None:
        """The base offset of the first batch whose largest timestamp is not before `timestamp`."""

    async def seal(self, segment: SegmentId, end: Offset) -> SealedReplica:
        """End the segment at `end`: drop everything at or past it, flush the rest, and measure."""

    async def state(self, segment: SegmentId) -> ReplicaState:
        """One replica as its store knows it. Raises UnknownSegment."""


class LocalStore(Store, Protocol):
    """The store of this node: adds what it knows from memory, and the calls that no peer may make."""

    async def copy(self, description: SegmentDescription, source: Source) -> SealedReplica:
        """Have a complete, sealed replica of the segment under a new instance, whatever was here before. Reads from the
        source unless a complete one is here. Raises CorruptReplica if the source does not match the description; what
        was here before then stays."""

    async def delete(self, segment: SegmentId, instance: int) -> None:
        """Delete a replica, if it is still this instance. Called by this node's own garbage collection only, never by a
        peer."""

    def replica(self, segment: SegmentId) -> ReplicaState | None:
        """One replica, from memory."""

    def replicas(self) -> list[ReplicaState]:
        """The inventory, from memory."""

    def free_bytes(self) -> int:
        """Free space on the disk."""

    def capacity_bytes(self) -> int:
        """The size of the disk."""

    def used_bytes(self) -> int:
        """The size of all replicas together, from memory."""
