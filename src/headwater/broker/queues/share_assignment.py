"""What a member of a share group reads, as heartbeats and descriptions tell it."""

from collections.abc import Iterable

from headwater.broker.topics.catalog import Catalog
from headwater.model.ids import PartitionName
from headwater.wire.message import Message


def assigned_topics(catalog: Catalog, assignment: Iterable[PartitionName]) -> list[Message]:
    """By topic. One that was deleted meanwhile is left out; the next heartbeat tells of it."""
    indexes: dict[str, list[int]] = {}
    for name, index in sorted(assignment):
        indexes.setdefault(name, []).append(index)
    found = ((catalog.find(name), partitions) for name, partitions in indexes.items())
    return [
        Message(topic_id=topic.topic_id, topic_name=topic.name, partitions=partitions)
        for topic, partitions in found
        if topic is not None
    ]
