"""The assignor of share groups, "simple": every partition is read, and every member reads.

More members than partitions: partitions are shared, each by about as many members. Fewer: members have several
partitions each, about as many. What a member had it keeps where that serves the balance, because a move costs a
member the records that it has fetched ahead. Rack ids are not looked at.

The cost grows with members plus partitions, times the different subscriptions in the group, which are few.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from headwater.model.ids import PartitionName

NAME = "simple"


Assignment: TypeAlias = dict[str, frozenset[PartitionName]]


def assign(
    subscriptions: Mapping[str, frozenset[str]],
    partitions: Mapping[str, int],
    previous: Mapping[str, frozenset[PartitionName]],
) -> Assignment:
    """Which partitions each member reads. `partitions` has the topics that exist, with how many they have."""
    read = {topic for topics in subscriptions.values() for topic in topics if topic in partitions}
    every = [(topic, index) for topic in sorted(read) for index in range(partitions[topic])]
    readers = _Readers(subscriptions, every)
    had = _holders(previous, subscriptions)
    homeless = [partition for partition in every if not readers.keep(partition, had.get(partition, ()))]
    for partition in homeless:
        readers.give(partition)
    _share(readers, subscriptions, partitions, previous)
    return {member: frozenset(readers.assigned[member]) for member in subscriptions}


class _Readers:
    """The partitions of each member so far, and a heap of members by load for each different subscription."""

    def __init__(self, subscriptions: Mapping[str, frozenset[str]], every: list[PartitionName]) -> None:
        self.assigned: dict[str, set[PartitionName]] = {member: set() for member in subscriptions}
        self._fair, self._with_one_more = divmod(len(every), max(len(subscriptions), 1))
        self._idle: dict[frozenset[str], list[tuple[int, str]]] = defaultdict(list)
        for member in sorted(subscriptions):
            self._idle[subscriptions[member]].append((0, member))

    def keep(self, partition: PartitionName, holders: Iterable[str]) -> bool:
        """Leave the partition with the least busy of its former readers, if that reader has room."""
        least = min(holders, key=lambda member: (len(self.assigned[member]), member), default=None)
        if least is None or len(self.assigned[least]) > self._fair:
            return False
        if len(self.assigned[least]) == self._fair:
            if not self._with_one_more:
                return False
            self._with_one_more -= 1
        self.assigned[least].add(partition)
        return True

    def give(self, partition: PartitionName) -> None:
        """Assign the partition to the least busy member that subscribes to its topic."""
        best: list[tuple[int, str]] | None = None
        for topics, idle in self._idle.items():
            if partition[0] in topics:
                self._freshen(idle)
                if best is None or idle[0] < best[0]:
                    best = idle
        assert best is not None, "a topic that is assigned has a subscriber"
        load, member = best[0]
        self.assigned[member].add(partition)
        heapq.heapreplace(best, (load + 1, member))

    def _freshen(self, idle: list[tuple[int, str]]) -> None:
        """Loads in the heap may be too small, never too large: update the first until it is right."""
        while (load := len(self.assigned[idle[0][1]])) != idle[0][0]:
            heapq.heapreplace(idle, (load, idle[0][1]))


def _share(
    readers: _Readers,
    subscriptions: Mapping[str, frozenset[str]],
    partitions: Mapping[str, int],
    previous: Mapping[str, frozenset[PartitionName]],
) -> None:
    """Assign the least shared partitions to members that have none yet."""
    counts: Counter[PartitionName] = Counter(each for held in readers.assigned.values() for each in held)
    left_out = [member for member in sorted(subscriptions) if not readers.assigned[member]]
    fair, with_one_more = divmod(len(subscriptions), max(len(counts), 1))
    homeless = []
    for member in left_out:
        limit = fair + (with_one_more > 0)
        kept = min((each for each in previous.get(member, ()) if 0 < counts[each] < limit), default=None)
        if kept is None or kept[0] not in subscriptions[member]:
            homeless.append(member)
            continue
        with_one_more -= counts[kept] == fair
        readers.assigned[member].add(kept)
        counts[kept] += 1
    heaps: dict[frozenset[str], list[tuple[int, PartitionName]]] = {}
    for member in homeless:
        topics = subscriptions[member]
        heap = heaps.get(topics)
        if heap is None:
            known = [(topic, index) for topic in sorted(topics) for index in range(partitions.get(topic, 0))]
            heap = heaps[topics] = [(counts[each], each) for each in known]
            heapq.heapify(heap)
        if not heap:
            continue
        while counts[heap[0][1]] != heap[0][0]:
            heapq.heapreplace(heap, (counts[heap[0][1]], heap[0][1]))
        partition = heap[0][1]
        readers.assigned[member].add(partition)
        counts[partition] += 1


def _holders(
    previous: Mapping[str, frozenset[PartitionName]], subscriptions: Mapping[str, frozenset[str]]
) -> dict[PartitionName, list[str]]:
    holders: dict[PartitionName, list[str]] = defaultdict(list)
    for member, held in previous.items():
        for partition in held:
            if partition[0] in subscriptions.get(member, ()):
                holders[partition].append(member)
    return holders
