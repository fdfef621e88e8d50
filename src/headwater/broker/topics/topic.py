"""A topic as a node knows it: what the metadata says of all its partitions, and those that this node leads."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.broker.log.partition import Partition
from headwater.broker.settings.topic_config import TopicConfig
from headwater.model.cluster import INTERNAL_TOPICS, Reassignment
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId, PartitionId, TopicId
from headwater.model.segments import Head
from headwater.replication.effects import Rules


@dataclass(slots=True, kw_only=True)
class Topic:
    topic_id: TopicId
    name: str
    overrides: dict[str, str]
    config: TopicConfig
    version: int
    """Of its metadata key."""
    partition_count: int
    replication_factor: int = 1
    heads: dict[int, Head] = field(default_factory=dict)
    """As last read; of what is led here the partition itself knows better."""
    led: dict[int, Partition] = field(default_factory=dict)
    """The partitions that this node leads, by index."""
    placed: dict[int, Reassignment] = field(default_factory=dict)
    """The reassignment of each partition that an administrator placed, by index."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def rules(self, index: int) -> Rules:
        """Of one partition: if it was reassigned, it has as many replicas as that names. `min.insync.replicas`
        asks for no more than there can be, as in Kafka: a partition that could never have enough would never be led."""
        placed = self.placed.get(index)
        count = len(placed.nodes) if placed is not None else self.replication_factor
        return Rules(count, min(self.config.min_insync_replicas, count))

    def preferred(self, index: int) -> frozenset[NodeId]:
        """The nodes that new segments of a partition prefer; none if it does not matter."""
        placed = self.placed.get(index)
        return frozenset(placed.nodes) if placed is not None else frozenset()

    def has(self, index: int) -> bool:
        return 0 <= index < self.partition_count

    def partition_id(self, index: int) -> PartitionId:
        """Raises RequestError if there is no such partition."""
        if not self.has(index):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {self.name} has no partition {index}.")
        return PartitionId(self.topic_id, index)

    def partition(self, index: int) -> Partition:
        """The partition, if this node leads it."""
        found = self.led.get(index)
        if found is None:
            self.partition_id(index)
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.not_led(index))
        return found

    def not_led(self, index: int) -> str:
        """Why this node cannot serve a partition, in words."""
        head = self.heads.get(index)
        who = "no node does" if head is None or head.leader < 0 else f"node {head.leader} does, or is about to"
        return f"This node does not lead partition {index} of topic {self.name}: {who}."

    def head(self, index: int) -> Head | None:
        """Who leads, and where the open segment lies; None while that is not known."""
        led = self.led.get(index)
        return led.register.head if led is not None else self.heads.get(index)

    def partitions(self) -> Iterator[Partition]:
        """The partitions led here, by index. A partition whose lead is lost during the iteration is left out."""
        for index in sorted(self.led):
            partition = self.led.get(index)
            if partition is not None:
                yield partition
