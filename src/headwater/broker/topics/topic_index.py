"""The topics of the cluster in memory, by name and by id.

The catalog fills the table. It is a part of its own because the node serves its store, and throttles copies, before
there is a catalog: those parts look topics up here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.broker.log.partition import Partition
from headwater.broker.settings.topic_config import TopicConfig
from headwater.broker.topics.topic import Topic
from headwater.model.ids import NodeId, PartitionId, TopicId


@dataclass(frozen=True, slots=True)
class TopicIndex:
    by_name: dict[str, Topic] = field(default_factory=dict)
    by_id: dict[TopicId, Topic] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self.by_name.values()))

    def find_id(self, topic_id: TopicId) -> Topic | None:
        return self.by_id.get(topic_id)

    def config_of(self, partition: PartitionId) -> TopicConfig | None:
        """The settings of the partition's topic, if that is known."""
        topic = self.by_id.get(partition.topic_id)
        return topic.config if topic is not None else None

    def partitions(self) -> Iterator[Partition]:
        """All that this node leads."""
        for topic in self:
            yield from topic.partitions()

    def leaders(self) -> Iterator[NodeId]:
        """Of each partition whose leader is known."""
        for topic in self:
            for index in range(topic.partition_count):
                head = topic.head(index)
                if head is not None:
                    yield head.leader
