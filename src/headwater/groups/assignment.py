"""Sets of partitions, by topic: what a member is assigned, gives up, or says it owns.

A topic without partitions is left out, so that equal sets are equal values. They are never changed in place.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from headwater.model.ids import TopicId

Assignment: TypeAlias = Mapping[TopicId, frozenset[int]]

NOTHING: Assignment = {}


def of_partitions(partitions: Iterable[tuple[TopicId, int]]) -> Assignment:
    found: dict[TopicId, set[int]] = {}
    for topic_id, index in partitions:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def count(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def union(one: Assignment, other: Assignment) -> Assignment:
    if not one or not other:
        return one or other
    return {topic_id: one.get(topic_id, _NONE) | other.get(topic_id, _NONE) for topic_id in {**one, **other}}


def intersection(one: Assignment, other: Assignment) -> Assignment:
    return _without_empty({topic_id: indexes & other.get(topic_id, _NONE) for topic_id, indexes in one.items()})


def difference(one: Assignment, other: Assignment) -> Assignment:
    return _without_empty({topic_id: indexes - other.get(topic_id, _NONE) for topic_id, indexes in one.items()})


def chosen(assignment: Assignment, choose: Callable[[TopicId, int], bool]) -> Assignment:
    return _without_empty(
        {
            topic_id: frozenset(index for index in indexes if choose(topic_id, index))
            for topic_id, indexes in assignment.items()
        }
    )


def overlap(one: Assignment, other: Assignment) -> bool:
    return any(not indexes.isdisjoint(other.get(topic_id, _NONE)) for topic_id, indexes in one.items())


def is_within(part: Assignment, whole: Assignment) -> bool:
    return all(indexes <= whole.get(topic_id, _NONE) for topic_id, indexes in part.items())


_NONE: frozenset[int] = frozenset()


def _without_empty(assignment: Assignment) -> Assignment:
    return {topic_id: indexes for topic_id, indexes in assignment.items() if indexes}
