"""Which old segments may go: by age, by size, by having been consumed. A decision only; nothing here deletes anything.

A topic keeps a record as long as its own retention says, or longer if a subscription that has not consumed it asks for
that, up to a limit that the topic sets. With the policy `consumed` segments also go as soon as every subscription
is through with them. What belongs to a transaction that has not ended stays in any case.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.broker.settings.topic_config import TopicConfig
from headwater.metadata.keys import SealedSegment
from headwater.model.ids import FIRST_OFFSET, Offset, SegmentId

UNLIMITED = -1
CONSUMED = "consumed"


@dataclass(frozen=True, slots=True)
class ConsumedPosition:
    """What a group means for the retention of one partition."""

    position: Offset
    """Everything below is consumed."""
    retention_ms: int = 0
    """How long it wants what it has not consumed to be kept; -1: as long as the topic's limit allows."""


def retention_start(
    sealed: Sequence[SealedSegment],
    open_id: SegmentId,
    open_bytes: int,
    config: TopicConfig,
    now_ms: int,
    subscriptions: Sequence[ConsumedPosition] = (),
    stable_end: Offset | None = None,
) -> Offset | None:
    """The offset that the log may start at, or None if everything stays. The open segment always stays, and so does
    every one that reaches past `stable_end`, if that is given."""
    if not config.is_deleted:
        return None
    ages_ms = _ages(sealed, open_id, now_ms)
    count = max(_expired(ages_ms, config.retention_ms), _surplus(sealed, open_bytes, config.retention_bytes))
    count = min(count, _unclaimed(sealed, ages_ms, subscriptions, config.subscription_retention_limit_ms))
    if config.retention == CONSUMED:
        count = max(count, _consumed(sealed, subscriptions))
    if stable_end is not None:
        count = min(count, sum(segment.end <= stable_end for segment in sealed))
    return sealed[count - 1].end if count else None


def is_expired(max_timestamp: int, retention_ms: int, now_ms: int) -> bool:
    return retention_ms != UNLIMITED and now_ms - max_timestamp > retention_ms


def is_consumed(end: Offset, config: TopicConfig, subscriptions: Sequence[ConsumedPosition]) -> bool:
    """Whether everything below `end` may go because everybody is through with it."""
    return config.is_deleted and config.retention == CONSUMED and _slowest(subscriptions) >= end


def _ages(sealed: Sequence[SealedSegment], open_id: SegmentId, now_ms: int) -> list[int]:
    """How old the newest record of each segment is. Records without a timestamp are as old as their segment's end,
    which its successor's id tells."""
    successors = [*(segment.id for segment in sealed), open_id][1:]
    return [
        now_ms - (segment.max_timestamp if segment.max_timestamp >= 0 else created_ms(successor))
        for segment, successor in zip(sealed, successors, strict=True)
    ]


def _expired(ages_ms: Sequence[int], retention_ms: int) -> int:
    """How many of the oldest segments hold nothing younger than the limit."""
    if retention_ms == UNLIMITED:
        return 0
    return next((count for count, age_ms in enumerate(ages_ms) if age_ms <= retention_ms), len(ages_ms))


def _unclaimed(
    sealed: Sequence[SealedSegment], ages_ms: Sequence[int], subscriptions: Sequence[ConsumedPosition], limit_ms: int
) -> int:
    """How many of the oldest segments no subscription still needs."""
    for count, (segment, age_ms) in enumerate(zip(sealed, ages_ms, strict=True)):
        for subscription in subscriptions:
            kept_ms = subscription.retention_ms
            if limit_ms != UNLIMITED:
                kept_ms = limit_ms if kept_ms == UNLIMITED else min(kept_ms, limit_ms)
            if subscription.position < segment.end and (kept_ms == UNLIMITED or age_ms <= kept_ms):
                return count
    return len(sealed)


def _consumed(sealed: Sequence[SealedSegment], subscriptions: Sequence[ConsumedPosition]) -> int:
    """How many of the oldest segments all subscriptions have consumed."""
    slowest = _slowest(subscriptions)
    return sum(segment.end <= slowest for segment in sealed)


def _slowest(subscriptions: Sequence[ConsumedPosition]) -> Offset:
    """Without subscriptions, nothing was consumed."""
    return min((subscription.position for subscription in subscriptions), default=FIRST_OFFSET)


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
