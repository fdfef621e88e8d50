"""What lies under which key, and in which shape (REPLICATION.md, 1.2). Values are JSON objects.

    cluster                       Cluster
    ids/<kind>                    next free number of a counter (producer ids, node epochs)
    topics/<topic_id>             Topic
    names/<topic name>            the topic id
    p/<topic_id>.<index>          Head: who leads a partition, and its open segment
    s/<topic_id>.<index>/<seg>    SealedSegment
    config/<kind>/<name>          overrides for a broker or a group

Only the leader of the current epoch changes Head.open and Head.start; only the controller changes
Head.leader and Head.epoch; both by compare-and-set on the head's version. Read a head before its list of
sealed segments, never after.
"""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from headwater.model.ids import PartitionId, SegmentId, TopicId
from headwater.model.segments import Head as Head
from headwater.model.segments import OpenSegment as OpenSegment
from headwater.model.segments import SealedSegment as SealedSegment

CLUSTER = "cluster"
TOPICS = "topics/"
NAMES = "names/"
HEADS = "p/"
SEALED = "s/"
FORMAT = 1


def topic_key(topic_id: TopicId) -> str:
    return f"{TOPICS}{topic_id.hex}"


def name_key(name: str) -> str:
    return f"{NAMES}{name}"


def head_key(partition: PartitionId) -> str:
    return f"{HEADS}{partition}"


def sealed_prefix(partition: PartitionId) -> str:
    return f"{SEALED}{partition}/"


def sealed_key(partition: PartitionId, segment: SegmentId) -> str:
    return f"{sealed_prefix(partition)}{segment}"


def counter_key(kind: str) -> str:
    return f"ids/{kind}"


def config_key(kind: str, name: str) -> str:
    return f"config/{kind}/{name}"


@dataclass(frozen=True, slots=True)
class Cluster:
    cluster_id: str
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Topic:
    topic_id: TopicId
    name: str
    partitions: int
    replication_factor: int
    config: dict[str, str] = field(default_factory=dict)


def encode(value: Cluster | Topic | Head | SealedSegment) -> bytes:
    return json.dumps(_plain(value), separators=(",", ":"), default=_plain).encode()


def decode_cluster(data: bytes) -> Cluster:
    return Cluster(**json.loads(data))


def decode_topic(data: bytes) -> Topic:
    fields = json.loads(data)
    return Topic(**{**fields, "topic_id": uuid.UUID(hex=fields["topic_id"])})


def decode_head(data: bytes) -> Head:
    fields = json.loads(data)
    open_fields = fields["open"]
    open_segment = OpenSegment(**_with_tuples(open_fields)) if open_fields is not None else None
    return Head(**{**fields, "open": open_segment})


def decode_sealed(data: bytes) -> SealedSegment:
    return SealedSegment(**_with_tuples(json.loads(data)))


def _with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuple(value) for name, value in fields.items()}


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """One level of what JSON does not know by itself."""
    if isinstance(value, uuid.UUID):
        return value.hex
    return {name: getattr(value, name) for name in value.__slots__}
