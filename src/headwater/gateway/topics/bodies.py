"""What requests about topics hold, and what is answered."""

from typing import Annotated

from msgspec import Meta, Struct

MAX_PARTITIONS = 10_000
MAX_REPLICAS = 32

TopicName = Annotated[str, Meta(min_length=1, max_length=249, pattern="^[a-zA-Z0-9._-]+$")]
Partitions = Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]
ConfigValue = str | int | float | bool
"""What people write; the cluster gets it as text."""


class TopicsQuery(Struct):
    internal: Annotated[bool, Meta(description="Also those of the cluster itself.")] = False


class TopicSummary(Struct):
    name: str
    partitions: int
    replication_factor: int
    records: int | None
    """Of the partitions that a node leads; null if there are none."""
    unknown_partitions: int
    """Partitions that no node leads now: their records are not counted."""
    size_bytes: int | None
    internal: bool


class Topics(Struct):
    topics: list[TopicSummary]


class NewTopic(Struct, forbid_unknown_fields=True):
    name: TopicName
    partitions: Partitions | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | None = None
    config: dict[str, ConfigValue] = {}


class TopicChange(Struct, forbid_unknown_fields=True):
    partitions: Partitions | None = None
    config: dict[str, ConfigValue | None] = {}


class PartitionOut(Struct):
    partition: int
    leader: int
    """-1 while no node leads it."""
    replicas: list[int]
    in_sync: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None


class Setting(Struct):
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str


class Topic(Struct):
    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionOut]
    config: list[Setting]


class Segment(Struct):
    partition: int
    start_offset: int
    end_offset: int | None
    size_bytes: int | None
    state: str
    nodes: list[int]
    first_timestamp: int | None
    last_timestamp: int | None = None


class Segments(Struct):
    segments: list[Segment]
    left_out: int = 0
    """Segments for which there was no room."""
    partitions_left_out: int = 0
    """Partitions that were not looked at."""
