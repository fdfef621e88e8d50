"""Offsets that were committed inside a transaction and wait for its end: they count when it commits, and vanish when it
aborts (KIP-98). They are those of all groups of one shard; transactions do not know of each other.

The order of the log decides which of several commits to a partition is the last one, as in Kafka: the order in which
the offsets were committed, not the one in which their transactions end. No position is kept for that. An offset that
is older than the one which counts has lost, however its transaction ends, and is deleted as soon as that is known:

    a plain commit           deletes all that are pending in its partition
    a transaction's commit   deletes those of other transactions that are older than its own

So pending offsets are newer than the committed one. Among themselves the pending offsets of a partition have the order
in which they were applied, which compaction keeps.
"""

from collections.abc import Iterator

from headwater.groups.events import PendingEvent, PendingOffsetDeleted, PendingOffsetStored
from headwater.model.ids import PartitionName

NO_EPOCH = -1


class PendingOffsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[PartitionName, dict[int, PendingOffsetStored]]] = {}
        """By group, partition and producer; those of one partition from the oldest on."""
        self._producers: dict[int, dict[tuple[str, PartitionName], PendingOffsetStored]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def __iter__(self) -> Iterator[PendingOffsetStored]:
        for group_id in self._groups:
            yield from self.of_group(group_id)

    def group_ids(self) -> list[str]:
        return list(self._groups)

    def partitions(self, group_id: str) -> list[PartitionName]:
        """The partitions in which the group has pending offsets."""
        return list(self._groups.get(group_id, ()))

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self._groups.get(group_id, ())

    def of_group(self, group_id: str) -> Iterator[PendingOffsetStored]:
        for producers in self._groups.get(group_id, {}).values():
            yield from producers.values()

    def of_producer(self, producer_id: int) -> list[PendingOffsetStored]:
        return list(self._producers.get(producer_id, {}).values())

    def epoch(self, producer_id: int) -> int:
        """The newest epoch in which the producer has pending offsets."""
        found = self._producers.get(producer_id, {})
        return max((each.producer_epoch for each in found.values()), default=NO_EPOCH)

    def at(self, group_id: str, topic: str, partition: int) -> list[PendingOffsetStored]:
        """The pending offsets of one partition, the oldest first."""
        return list(self._groups.get(group_id, {}).get((topic, partition), {}).values())

    def older_than(self, pending: PendingOffsetStored) -> list[PendingOffsetStored]:
        """The pending offsets of the same partition that were committed before this one."""
        found = self.at(pending.group_id, pending.topic, pending.partition)
        return found[: found.index(pending)]

    def apply(self, event: PendingEvent) -> None:
        self._remove(event)
        if isinstance(event, PendingOffsetStored):
            partition = (event.topic, event.partition)
            self._groups.setdefault(event.group_id, {}).setdefault(partition, {})[event.producer_id] = event
            self._producers.setdefault(event.producer_id, {})[event.group_id, partition] = event
            self._count += 1

    def _remove(self, event: PendingEvent) -> None:
        """Remove an offset. A replaced one is removed first, too, so that the new one is the last of its partition."""
        producer_id, group_id, partition = event.producer_id, event.group_id, (event.topic, event.partition)
        of_producer = self._producers.get(producer_id, {})
        if of_producer.pop((group_id, partition), None) is None:
            return
        self._count -= 1
        if not of_producer:
            del self._producers[producer_id]
        partitions = self._groups[group_id]
        del partitions[partition][producer_id]
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._groups[group_id]


def deleted(pending: PendingOffsetStored) -> PendingOffsetDeleted:
    """What to log to delete a pending offset."""
    return PendingOffsetDeleted(pending.producer_id, pending.group_id, pending.topic, pending.partition)
