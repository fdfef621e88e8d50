"""Offsets of many partitions, and the ranges between two sets of them.

Spark compares offsets as JSON text. There is one way to write them here: topics by name, partitions by number, in
the shape of Spark's own Kafka source, `{"orders": {"0": 12, "1": 7}}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from headwater.client.topic_partition import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
"""Of each partition, the offset of the next record to read."""
OffsetsAsJson: TypeAlias = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition from `start` up to but not including `end`."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    """Which topic of that name, where the broker tells."""

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsAsJson:
    shaped: OffsetsAsJson = {}
    for topic, partition in sorted(offsets):
        shaped.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return shaped


def from_json(shaped: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in shaped.items()
        for partition, offset in partitions.items()
    }
