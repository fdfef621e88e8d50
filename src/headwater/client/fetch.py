"""Fetch as a client sends it, without a session: one request for some partitions of one broker, and what the broker
says of each of them.

Topics are named by their id where the broker can, so that a topic which was deleted and made again is not taken for the
one that was meant. The records of a response stay in the buffer that it arrived in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from headwater.client.topic_partition import TopicPartition
from headwater.client.versions import FIRST_TOPIC_ID_FETCH
from headwater.model.ids import Offset
from headwater.wire.message import Records
from headwater.wire.schema import NULL_UUID
from headwater.wire.typed.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """From where on a partition is read."""

    partition: TopicPartition
    offset: int
    topic_id: UUID | None = None
    """Which topic of that name, where the broker tells."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What a response holds, and how long the broker may wait for it."""

    max_wait_ms: int
    max_bytes: int
    isolation_level: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What a broker says of one partition."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    records: Records
    """Batches back to back. The last one may be cut off."""
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of the aborted transactions that reach into these batches."""


@dataclass(frozen=True, slots=True)
class FetchedPartitions:
    error_code: int
    throttle_ms: int
    partitions: Mapping[TopicPartition, FetchedPartition]


@dataclass(frozen=True, slots=True)
class PlainFetch:
    request: FetchRequest
    at_most: int | None
    """The newest version that names topics as the request does; None: any."""
    names: Mapping[UUID, str]

    def read(self, response: FetchResponse) -> FetchedPartitions:
        """Error codes are left to the caller."""
        return FetchedPartitions(
            response.error_code,
            response.throttle_time_ms,
            {
                TopicPartition(topic.topic or self.names.get(topic.topic_id, ""), data.partition_index): _fetched(data)
                for topic in response.responses
                for data in topic.partitions
            },
        )


def plain_fetch(positions: Iterable[FetchPosition], limits: FetchLimits) -> PlainFetch:
    """What lies at these positions, all of which are at one broker."""
    partitions: dict[tuple[str, UUID | None], list[FetchPartition]] = {}
    for position in positions:
        (topic, number), offset = position.partition, Offset(position.offset)
        partitions.setdefault((topic, position.topic_id), []).append(
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=limits.max_bytes)
        )
    request = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=1,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=[
            FetchTopic(topic=name, topic_id=topic_id or NULL_UUID, partitions=of_topic)
            for (name, topic_id), of_topic in partitions.items()
        ],
    )
    names = {topic_id: name for name, topic_id in partitions if topic_id is not None}
    return PlainFetch(request, None if len(names) == len(partitions) else FIRST_TOPIC_ID_FETCH - 1, names)


def _fetched(data: PartitionData) -> FetchedPartition:
    return FetchedPartition(
        data.error_code,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        data.records or b"",
        tuple((each.producer_id, each.first_offset) for each in data.aborted_transactions or ()),
    )
