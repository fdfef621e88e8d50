"""Which member reads which partition: the strategies that the broker offers to consumer groups.

    assign(subscribers, partitions, previous) -> what each subscriber gets

- Every partition of a topic with subscribers goes to exactly one of them.
- `uniform` balances the number of partitions: to within one where all subscribe to the same topics; otherwise so that
  no single move would even it out further. Of all balanced results it takes one that keeps what members had.
- `range` gives each member a run of consecutive partitions of each topic; topics with the same subscribers and as many
  partitions are cut at the same places, so that one member reads partition 5 of both.

Pure functions of their arguments; the order of subscribers does not matter.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headwater.groups.assignment import NOTHING, Assignment
from headwater.model.ids import TopicId

UNIFORM = "uniform"
RANGE = "range"


@dataclass(frozen=True, slots=True)
class Subscriber:
    member_id: str
    instance_id: str | None
    topics: frozenset[TopicId]
    """Topics that exist; each has an entry in `partitions`."""


Shares: TypeAlias = dict[str, Assignment]
Assignor: TypeAlias = Callable[[Sequence[Subscriber], Mapping[TopicId, int], Mapping[str, Assignment]], Shares]


def assign_uniform(
    subscribers: Sequence[Subscriber], partitions: Mapping[TopicId, int], previous: Mapping[str, Assignment]
) -> Shares:
    shares = _Shares(subscribers, partitions, previous)
    if len({subscriber.topics for subscriber in subscribers}) <= 1:
        shares.level()
    else:
        shares.spread()
        shares.even_out()
    return shares.taken()


def assign_range(
    subscribers: Sequence[Subscriber], partitions: Mapping[TopicId, int], previous: Mapping[str, Assignment]
) -> Shares:
    readers: dict[TopicId, list[str]] = {}
    # By instance id: a static member keeps its position in the order whatever member id it has now.
    for subscriber in sorted(subscribers, key=lambda each: (each.instance_id or each.member_id, each.member_id)):
        for topic_id in subscriber.topics:
            readers.setdefault(topic_id, []).append(subscriber.member_id)
    shares: dict[str, dict[TopicId, frozenset[int]]] = {each.member_id: {} for each in subscribers}
    for topic_id, member_ids in readers.items():
        each_count, extra = divmod(partitions[topic_id], len(member_ids))
        start = 0
        for rank, member_id in enumerate(member_ids):
            end = start + each_count + (rank < extra)
            if end > start:
                shares[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict[str, Assignment](shares)


ASSIGNORS: Mapping[str, Assignor] = {UNIFORM: assign_uniform, RANGE: assign_range}
"""The first is the default."""


class _Shares:
    """What each member has while an assignment is being made, and which partitions are still free."""

    def __init__(
        self, subscribers: Sequence[Subscriber], partitions: Mapping[TopicId, int], previous: Mapping[str, Assignment]
    ) -> None:
        self._partitions = partitions
        self._members = sorted(subscribers, key=lambda each: each.member_id)
        self._load: dict[str, int] = {each.member_id: 0 for each in self._members}
        self._owned: dict[TopicId, dict[str, set[int]]] = {
            topic_id: {} for topic_id in sorted(frozenset[TopicId]().union(*{each.topics for each in subscribers}))
        }
        self._free: dict[TopicId, list[int]] = {}
        self._keep(previous)

    def taken(self) -> Shares:
        shares: dict[str, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in self._load}
        for topic_id, by_member in self._owned.items():
            for member_id, indexes in by_member.items():
                if indexes:
                    shares[member_id][topic_id] = frozenset(indexes)
        return dict[str, Assignment](shares)

    def level(self) -> None:
        """All members subscribe to the same topics: each gets the floor of the average or one more."""
        if not self._members:
            return
        floor, extra = divmod(sum(self._load.values()) + sum(map(len, self._free.values())), len(self._members))
        # Members that have the most already get the extra ones: nothing is taken from them for evenness alone.
        ordered = sorted(self._load, key=lambda member_id: (-self._load[member_id], member_id))
        quota = {member_id: floor + (rank < extra) for rank, member_id in enumerate(ordered)}
        for member_id in ordered:
            self._shed(member_id, self._load[member_id] - quota[member_id])
        hungry = iter([member_id for member_id in ordered for _ in range(quota[member_id] - self._load[member_id])])
        for topic_id, indexes in self._free.items():
            for index in indexes:
                self._give(next(hungry), topic_id, index)
        self._free = {}

    def spread(self) -> None:
        """Each free partition goes to the least loaded subscriber of its topic, topics with few subscribers first."""
        readers = self._readers()
        for topic_id in sorted(self._free, key=lambda each: (len(readers[each]), each)):
            heap = [(self._load[member_id], member_id) for member_id in readers[topic_id]]
            heapq.heapify(heap)
            for index in self._free[topic_id]:
                load, member_id = heap[0]
                self._give(member_id, topic_id, index)
                heapq.heapreplace(heap, (load + 1, member_id))
        self._free = {}

    def even_out(self) -> None:
        """Move single partitions from more to less loaded members until no move would help.

        Each move makes the sum of the squares of the loads smaller, so this ends."""
        readers = self._readers()
        has_moved = True
        while has_moved:
            has_moved = False
            for topic_id, member_ids in readers.items():
                while self._even_out_topic(topic_id, member_ids):
                    has_moved = True

    def _even_out_topic(self, topic_id: TopicId, readers: Sequence[str]) -> bool:
        owners = self._owned[topic_id]
        richest = max(
            (member_id for member_id, indexes in owners.items() if indexes), key=self._load.__getitem__, default=None
        )
        poorest = min(readers, key=self._load.__getitem__)
        if richest is None or self._load[richest] - self._load[poorest] < 2:
            return False
        index = max(owners[richest])
        self._take(richest, topic_id, index)
        self._give(poorest, topic_id, index)
        return True

    def _readers(self) -> dict[TopicId, list[str]]:
        readers: dict[TopicId, list[str]] = {topic_id: [] for topic_id in self._owned}
        for member in self._members:
            for topic_id in member.topics:
                readers[topic_id].append(member.member_id)
        return readers

    def _keep(self, previous: Mapping[str, Assignment]) -> None:
        """Each member keeps what it had, unless it stopped reading the topic or a member before it had the same."""
        taken: dict[TopicId, set[int]] = {topic_id: set() for topic_id in self._owned}
        for member in self._members:
            for topic_id, indexes in previous.get(member.member_id, NOTHING).items():
                if topic_id not in member.topics:
                    continue
                kept = {index for index in indexes if index < self._partitions[topic_id]} - taken[topic_id]
                taken[topic_id] |= kept
                self._owned[topic_id][member.member_id] = kept
                self._load[member.member_id] += len(kept)
        for topic_id, kept in taken.items():
            self._free[topic_id] = [index for index in range(self._partitions[topic_id]) if index not in kept]

    def _shed(self, member_id: str, surplus: int) -> None:
        """Take partitions of the topics of which the member has most, so that it keeps a share of each topic."""
        if surplus <= 0:
            return
        heap = [
            (-len(by_member[member_id]), topic_id, sorted(by_member[member_id]))
            for topic_id, by_member in self._owned.items()
            if by_member.get(member_id)
        ]
        heapq.heapify(heap)
        for _ in range(surplus):
            negative, topic_id, indexes = heapq.heappop(heap)
            index = indexes.pop()
            self._take(member_id, topic_id, index)
            self._free[topic_id].append(index)
            if indexes:
                heapq.heappush(heap, (negative + 1, topic_id, indexes))

    def _give(self, member_id: str, topic_id: TopicId, index: int) -> None:
        self._owned[topic_id].setdefault(member_id, set()).add(index)
        self._load[member_id] += 1

    def _take(self, member_id: str, topic_id: TopicId, index: int) -> None:
        self._owned[topic_id][member_id].remove(index)
        self._load[member_id] -= 1
