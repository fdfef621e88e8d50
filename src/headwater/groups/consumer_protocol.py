"""What classic consumers write into JoinGroup and SyncGroup for each other to read.

subscription   int16 version, array of string topics, bytes? user data,
               from 1 on: array of owned (string topic, array of int32),   then fields that the broker does not need
assignment     int16 version, array of (string topic, array of int32), bytes? user data
"""

import struct
from dataclasses import dataclass

from headwater.groups.assignment import Assignment, of_partitions
from headwater.groups.topics import TopicTable
from headwater.model.ids import PartitionName
from headwater.records.byte_reader import ByteReader, MalformedBytes

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VERSION = 0
_MIN_TOPIC_BYTES = 2
_MIN_OWNED_BYTES = 2 + 4
_INDEX_BYTES = 4

PartitionNames = tuple[PartitionName, ...]


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    topics: tuple[str, ...]
    """Sorted, each once."""
    owned: PartitionNames
    """Empty for members that give everything up before they join."""


def read_subscription(metadata: bytes) -> ConsumerSubscription | None:
    """The subscription; None if these are not the bytes of a consumer."""
    reader = ByteReader(metadata)
    try:
        version = reader.int16()
        if version < 0:
            return None
        topics = {reader.string() for _ in range(reader.count(_MIN_TOPIC_BYTES))}
        reader.nullable_blob()
        return ConsumerSubscription(tuple(sorted(topics)), _read_partitions(reader) if version >= 1 else ())
    except MalformedBytes:
        return None


def read_assignment(data: bytes) -> PartitionNames:
    """The partitions; empty if there are no bytes, or they cannot be read."""
    reader = ByteReader(data)
    try:
        if reader.int16() < 0:
            return ()
        return _read_partitions(reader)
    except MalformedBytes:
        return ()


def write_assignment(assignment: Assignment, topics: TopicTable) -> bytes:
    """Deleted topics are left out: they have no name any more."""
    known = [(topic.name, assignment[topic.topic_id]) for topic in map(topics.find_id, assignment) if topic is not None]
    parts = [_INT16.pack(_VERSION), _INT32.pack(len(known))]
    for name, indexes in sorted(known):
        encoded = name.encode()
        parts += [_INT16.pack(len(encoded)), encoded, _INT32.pack(len(indexes)), *map(_INT32.pack, sorted(indexes))]
    parts.append(_INT32.pack(-1))
    return b"".join(parts)


def with_ids(partitions: PartitionNames, topics: TopicTable) -> Assignment:
    """The partitions by topic id; unknown ones are left out."""
    known = ((topics.find(name), index) for name, index in partitions)
    return of_partitions(
        (topic.topic_id, index) for topic, index in known if topic is not None and 0 <= index < topic.partitions
    )


def _read_partitions(reader: ByteReader) -> PartitionNames:
    found: list[tuple[str, int]] = []
    for _ in range(reader.count(_MIN_OWNED_BYTES)):
        topic = reader.string()
        found += [(topic, reader.int32()) for _ in range(reader.count(_INDEX_BYTES))]
    return tuple(found)
