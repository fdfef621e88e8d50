"""Fetch as a client sends it: one request for some partitions of one broker, one answer for each of them.

Topics are named by their id where the broker can, so that a topic which was deleted and made again is not taken for the
one that was asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from headwater.pipelines.client.apis import FETCH, FIRST_TOPIC_ID_FETCH
from headwater.pipelines.client.connection import BrokerConnection
from headwater.pipelines.client.offsets import OffsetRange, TopicPartition
from headwater.wire.message import Message

NO_REPLICA = -1
NO_SESSION = 0
SESSIONLESS_EPOCH = -1


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
    records: bytes
    """Batches back to back. The last one may be cut off."""
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of the aborted transactions that reach into these batches."""


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    error_code: int
    throttle_ms: int
    partitions: Mapping[TopicPartition, FetchedPartition]


def send_fetch(connection: BrokerConnection, ranges: Sequence[OffsetRange], limits: FetchLimits) -> None:
    """Ask for what lies at the start of each range."""
    has_ids = all(each.topic_id is not None for each in ranges)
    version = connection.version(FETCH, None if has_ids else FIRST_TOPIC_ID_FETCH - 1)
    topics: dict[str, Message] = {}
    for each in ranges:
        topic = topics.setdefault(each.topic, Message(topic=each.topic, topic_id=each.topic_id, partitions=[]))
        topic.partitions.append(
            Message(partition=each.partition, fetch_offset=each.start, partition_max_bytes=limits.max_bytes)
        )
    request = Message(
        replica_id=NO_REPLICA,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=1,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        session_id=NO_SESSION,
        session_epoch=SESSIONLESS_EPOCH,
        topics=list(topics.values()),
        rack_id="",
    )
    connection.send(FETCH, version, request, wait_ms=limits.max_wait_ms)


def receive_fetch(connection: BrokerConnection, ranges: Sequence[OffsetRange]) -> FetchAnswer:
    """The answer to the request that `send_fetch` sent for the same ranges."""
    names = {each.topic_id: each.topic for each in ranges}
    answer = connection.receive()
    return FetchAnswer(
        answer.error_code,
        answer.throttle_time_ms,
        {
            TopicPartition(_name(topic, names), partition.partition_index): FetchedPartition(
                partition.error_code,
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log_start_offset,
                partition.records or b"",
                tuple((each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()),
            )
            for topic in answer.responses or ()
            for partition in topic.partitions or ()
        },
    )


def _name(topic: Message, names: Mapping[UUID | None, str]) -> str:
    """Old versions name a topic, new ones give its id."""
    name: str | None = getattr(topic, "topic", None)
    return name or names.get(topic.topic_id, "")
