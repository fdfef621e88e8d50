"""Which old segments may go: by age, by size, or both. A decision only; nothing here deletes anything."""

from collections.abc import Sequence

from headwater.broker.topic_config import TopicConfig
from headwater.metadata.keys import SealedSegment
from headwater.model.ids import Offset, SegmentId

UNLIMITED = -1


def retention_start(
    sealed: Sequence[SealedSegment], open_id: SegmentId, open_bytes: int, config: TopicConfig, now_ms: int
) -> Offset | None:
    """The offset that the log may start at, or None if everything stays. The open segment always stays."""
    if not config.is_deleted:
        return None
    by_age = _expired(sealed, open_id, config.retention_ms, now_ms)
    by_size = _surplus(sealed, open_bytes, config.retention_bytes)
    count = max(by_age, by_size)
    return sealed[count - 1].end if count else None


def is_expired(max_timestamp: int, retention_ms: int, now_ms: int) -> bool:
    return retention_ms != UNLIMITED and now_ms - max_timestamp > retention_ms


def _expired(sealed: Sequence[SealedSegment], open_id: SegmentId, retention_ms: int, now_ms: int) -> int:
    """How many of the oldest segments hold nothing younger than the limit."""
    successors = [*(segment.id for segment in sealed), open_id][1:]
    for count, (segment, successor) in enumerate(zip(sealed, successors, strict=True)):
        # Records without a timestamp are as old as their segment's end, which its successor's id tells.
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else created_ms(successor)
        if not is_expired(newest, retention_ms, now_ms):
            return count
    return len(sealed)


def _surplus(sealed: Sequence[SealedSegment], open_bytes: int, retention_bytes: int) -> int:
    """How many of the oldest segments can go while what is left is still at least the limit."""
    if retention_bytes == UNLIMITED:
        return 0
    left = open_bytes + sum(segment.size_bytes for segment in sealed)
    for count, segment in enumerate(sealed):
        left -= segment.size_bytes
        if left < retention_bytes:
            return count
    return len(sealed)


def created_ms(segment: SegmentId) -> int:
    """When the segment was opened: its id begins with that."""
    return int(segment[:12], 16)
