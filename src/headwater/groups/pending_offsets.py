"""Offsets that were committed inside a transaction and wait for its end: they count when it commits, and vanish when it
aborts (KIP-98). They are those of all groups of one shard; transactions do not know of each other.

The order of the log decides which of several commits to a partition is the last one, as in Kafka: the order in which
the offsets were committed, not the one in which their transactions end. No position is kept for that. An offset that
is older than the one which counts has lost, however its transaction ends, and is deleted as soon as that is known:

    a plain commit           deletes all that are pending in its partition
    a transaction's commit   deletes those of other transactions that are older than its own

So what is pending is newer than what counts. Among themselves the pending offsets of a partition have the order in
which they were applied, which compaction keeps.
"""

from collections.abc import Iterator
from typing import TypeAlias

from headwater.groups.events import PendingEvent, PendingOffsetDeleted, PendingOffsetStored

NO_EPOCH = -1

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""


class PendingOffsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, dict[int, PendingOffsetStored]]] = {}
        """By group, partition and producer; of one partition, the oldest first."""
        self._producers: dict[int, dict[tuple[str, Place], PendingOffsetStored]] = {}
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

    def places(self, group_id: str) -> list[Place]:
        """Where the group has something pending."""
        return list(self._groups.get(group_id, ()))

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self._groups.get(group_id, ())

    def of_group(self, group_id: str) -> Iterator[PendingOffsetStored]:
        for producers in self._groups.get(group_id, {}).values():
            yield from producers.values()

    def of_producer(self, producer_id: int) -> list[PendingOffsetStored]:
        return list(self._producers.get(producer_id, {}).values())

    def epoch(self, producer_id: int) -> int:
        """The newest in which the producer has something pending."""
        found = self._producers.get(producer_id, {})
        return max((each.producer_epoch for each in found.values()), default=NO_EPOCH)

    def at(self, group_id: str, topic: str, partition: int) -> list[PendingOffsetStored]:
        """The oldest first."""
        return list(self._groups.get(group_id, {}).get((topic, partition), {}).values())

    def older_than(self, pending: PendingOffsetStored) -> list[PendingOffsetStored]:
        """Those of other transactions in the same partition that were committed before."""
        found = self.at(pending.group_id, pending.topic, pending.partition)
        return found[: found.index(pending)]

    def apply(self, event: PendingEvent) -> None:
        self._remove(event)
        if isinstance(event, PendingOffsetStored):
            place = (event.topic, event.partition)
            self._groups.setdefault(event.group_id, {}).setdefault(place, {})[event.producer_id] = event
            self._producers.setdefault(event.producer_id, {})[event.group_id, place] = event
            self._count += 1

    def _remove(self, event: PendingEvent) -> None:
        """Also what is replaced goes first: it takes its place behind the others again."""
        producer_id, group_id, place = event.producer_id, event.group_id, (event.topic, event.partition)
        of_producer = self._producers.get(producer_id, {})
        if of_producer.pop((group_id, place), None) is None:
            return
        self._count -= 1
        if not of_producer:
            del self._producers[producer_id]
        places = self._groups[group_id]
        del places[place][producer_id]
        if not places[place]:
            del places[place]
        if not places:
            del self._groups[group_id]


def deleted(pending: PendingOffsetStored) -> PendingOffsetDeleted:
    """What to log to forget it."""
    return PendingOffsetDeleted(pending.producer_id, pending.group_id, pending.topic, pending.partition)
