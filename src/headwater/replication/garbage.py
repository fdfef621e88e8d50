"""Which replicas a store may forget (docs/replication.md, 10). No clock, and no other node is asked.

It holds only if this was read in this order: the store's own inventory, the head, what is staged, what is sealed. And a
replica is deleted only if it is still the instance that the inventory named.

A replica is garbage if
- its topic is gone (a topic's key exists before the first replica of it is created, and is never created again); or
- its segment has a sealed key, and this store is neither listed nor about to be; or
- its segment has no sealed key, is not the open one, is not staged, and no leader can publish it any more: its writer's
  epoch has ended, or it begins before the open segment does, while whatever the leader publishes next begins at or
  after that. The second half frees what retention dropped, under a leader that stays for months.
"""

from collections.abc import Collection, Mapping, Sequence

from headwater.model.ids import PartitionId, SegmentId, StoreId, TopicId
from headwater.model.replica import ReplicaState
from headwater.model.segments import Head, SealedSegment


def collect(
    inventory: Sequence[ReplicaState],
    store: StoreId,
    heads: Mapping[str, Head],
    staged: Collection[SegmentId],
    sealed: Mapping[SegmentId, SealedSegment],
    topics: Collection[TopicId],
) -> list[tuple[SegmentId, int]]:
    """Segment and instance of each replica that may go. `topics` are the topics that exist; a partition that has no
    entry in `heads` was not looked at, or has none yet: it keeps everything."""
    return [
        (replica.segment, replica.instance)
        for replica in inventory
        if _is_garbage(replica, store, heads, staged, sealed, topics)
    ]


def topic_of(partition: str) -> TopicId | None:
    """None for what no leader made: the tombstone of a segment that was fenced before it was known here."""
    try:
        return PartitionId.parse(partition).topic_id
    except ValueError:
        return None


def _is_garbage(
    replica: ReplicaState,
    store: StoreId,
    heads: Mapping[str, Head],
    staged: Collection[SegmentId],
    sealed: Mapping[SegmentId, SealedSegment],
    topics: Collection[TopicId],
) -> bool:
    topic = topic_of(replica.partition)
    if topic is None:
        return False
    if topic not in topics:
        return True
    listed = sealed.get(replica.segment)
    if listed is not None:
        return store not in listed.replicas and store not in listed.adding
    head = heads.get(replica.partition)
    if head is None or replica.segment in staged:
        return False
    if head.open is not None and head.open.id == replica.segment:
        return False
    return replica.epoch < head.epoch or (head.open is not None and replica.base < head.open.base)
