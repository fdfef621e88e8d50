"""What the metadata says of one partition: its head (the leader, the open segment), and each of its sealed segments.

Only the leader of the current epoch changes a head's `open` and `start`; only the controller changes `leader` and
`epoch`, except that a leader which starts again may renew its own lead; all of it by compare-and-set on the head's
version (docs/replication.md, 2).
"""

from dataclasses import dataclass

from headwater.model.ids import LeaderEpoch, NodeId, Offset, SegmentId, StoreId


@dataclass(frozen=True, slots=True)
class OpenSegment:
    id: SegmentId
    base: Offset
    epoch: LeaderEpoch
    epoch_start: Offset
    """First offset written in this epoch; past `base` when a tail was carried over from the segment before."""
    replicas: tuple[StoreId, ...]


@dataclass(frozen=True, slots=True)
class Head:
    leader: NodeId
    epoch: LeaderEpoch
    start: Offset
    open: OpenSegment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    id: SegmentId
    base: Offset
    end: Offset
    epoch: LeaderEpoch
    epoch_start: Offset
    replicas: tuple[StoreId, ...]
    size_bytes: int
    max_timestamp: int
    crc32c: int | None
    """Checksum of the whole segment; None until the store has flushed and measured it."""
    compacted: bool = False
    earlier_epochs: tuple[tuple[LeaderEpoch, Offset], ...] = ()
    """Epochs before `epoch` and where they began, in a segment that compaction made of several."""
    adding: tuple[StoreId, ...] = ()
