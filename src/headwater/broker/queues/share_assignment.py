"""What a member of a share group reads, as heartbeats and descriptions tell it."""

from collections.abc import Iterable

from headwater.broker.topics.catalog import Catalog
from headwater.broker.topics.topic import Topic
from headwater.model.ids import PartitionName


def assigned_topics(catalog: Catalog, assignment: Iterable[PartitionName]) -> list[tuple[Topic, list[int]]]:
    """By topic. One that was deleted meanwhile is left out; the next heartbeat tells of it."""
    indexes: dict[str, list[int]] = {}
    for name, index in sorted(assignment):
        indexes.setdefault(name, []).append(index)
    found = ((catalog.find(name), partitions) for name, partitions in indexes.items())
    return [(topic, partitions) for topic, partitions in found if topic is not None]
