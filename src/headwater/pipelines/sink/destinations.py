"""Where each row goes: the topic and partition that it names, or that its key or its position among the rows give it.

partition given    that one
key                murmur2 of the key, as Kafka's clients have it: a key stays in the partition it has always had
neither            runs of rows go to one partition after another, so that batches are large
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.compute as pc

from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.errors import UnknownTopic
from headwater.pipelines.sink.columns import Rows
from headwater.pipelines.sink.errors import InvalidRow
from headwater.pipelines.sink.murmur import key_hashes
from headwater.pipelines.sink.varints import Integers

RUN_ROWS: Final = 1_000
"""Of rows without a key, so many go to one partition before it is the next one's turn."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows of one destination follow each other, in the order that they had."""

    rows: Rows
    destinations: tuple[tuple[TopicPartition, int, int], ...]
    """(where to, first row, row after the last)."""


class Destinations:
    def __init__(self, count_partitions: Callable[[str], int], default_topic: str | None, first_run: int) -> None:
        """`count_partitions` raises UnknownTopic. Tasks with different first runs begin in different partitions."""
        self._count_partitions = count_partitions
        self._default_topic = default_topic
        self._next_run = first_run

    def group(self, rows: Rows) -> Grouped:
        """Raises InvalidRow and UnknownTopic."""
        topics, which = self._topics(rows)
        counts = np.array([self._count_partitions(topic) for topic in topics], np.int64)
        partitions = self._partitions(rows, counts[which])
        stride = int(counts.max())
        codes = which * stride + partitions
        if len(topics) * stride <= np.iinfo(np.uint16).max:
            codes = codes.astype(np.uint16)  # NumPy sorts those by radix
        order = np.argsort(codes, kind="stable")
        in_order = codes[order]
        starts = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
        ends = np.append(starts[1:], len(in_order))
        destinations = tuple(
            (TopicPartition(topics[code // stride], code % stride), start, end)
            for code, start, end in zip(in_order[starts].tolist(), starts.tolist(), ends.tolist(), strict=True)
        )
        return Grouped(rows if len(starts) == 1 else rows.take(order), destinations)

    def _topics(self, rows: Rows) -> tuple[list[str], Integers]:
        """The topics that the rows name, and of each row which one it is."""
        if self._default_topic is not None or rows.topic is None:
            assert self._default_topic is not None, "without the option there is a column, which was checked"
            return [self._default_topic], np.zeros(len(rows), np.int64)
        if rows.topic.null_count:
            raise InvalidRow(
                f"Column topic is null in {rows.topic.null_count} of {len(rows)} rows: say for each row where it goes, "
                "or for all of them with the option topic."
            )
        encoded = rows.topic.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)

    def _partitions(self, rows: Rows, counts: Integers) -> Integers:
        partitions = self._by_key(rows, counts)
        if rows.partition is None or rows.partition.null_count == len(rows):
            return partitions
        named: Integers = pc.fill_null(rows.partition, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        is_named = pc.is_valid(rows.partition).to_numpy(zero_copy_only=False)
        if np.any(is_named & ((named < 0) | (named >= counts))):
            wrong = int(named[is_named & ((named < 0) | (named >= counts))][0])
            raise InvalidRow(f"Column partition has {wrong}, and the topic has no such partition.")
        return np.where(is_named, named, partitions)

    def _by_key(self, rows: Rows, counts: Integers) -> Integers:
        if rows.key is None:
            return self._round_robin(counts)
        partitions = key_hashes(rows.key) % counts
        if rows.key.null_count:
            is_null = pc.is_null(rows.key).to_numpy(zero_copy_only=False)
            partitions[is_null] = self._round_robin(counts[is_null])
        return partitions

    def _round_robin(self, counts: Integers) -> Integers:
        runs = self._next_run + np.arange(len(counts)) // RUN_ROWS
        self._next_run = int(runs[-1]) + 1 if len(runs) else self._next_run
        return runs % counts


def partition_counter(cluster: ClusterClient) -> Callable[[str], int]:
    """How many partitions a topic has; asked once for each. Raises UnknownTopic."""
    known: dict[str, int] = {}

    def count(topic: str) -> int:
        if topic not in known:
            found = cluster.topics([topic]).get(topic)
            known[topic] = len(found.leaders) if found is not None else 0
        if not known[topic]:
            raise UnknownTopic(f"Topic {topic} does not exist. Create it first: writing does not create topics.")
        return known[topic]

    return count
