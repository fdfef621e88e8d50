"""How much disk the partitions of one broker take, and how much it has left."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.client.errors import check
from headwater.client.question import Question, question
from headwater.model.ids import PartitionName
from headwater.wire.typed.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse


@dataclass(frozen=True, slots=True)
class DiskUsage:
    sizes: Mapping[PartitionName, int]
    """Bytes by topic and partition."""
    free_bytes: int | None
    """None: the broker does not tell, or has no log directory."""

    @property
    def used_bytes(self) -> int:
        return sum(self.sizes.values())


def disk_usage() -> Question[DiskUsage]:
    """Of the broker that answers."""

    def read(response: DescribeLogDirsResponse) -> DiskUsage:
        check(response.error_code, None, "The description of the log directories")
        free = [directory.usable_bytes for directory in response.results]
        sizes = {
            (topic.name, partition.partition_index): partition.partition_size
            for directory in response.results
            for topic in directory.topics
            for partition in topic.partitions
        }
        return DiskUsage(sizes, sum(free) if free and min(free) >= 0 else None)

    return question(DescribeLogDirsRequest(topics=None), read)


def largest_replicas(usages: Iterable[DiskUsage]) -> dict[PartitionName, int]:
    """Bytes by topic and partition, each of its largest replica."""
    sizes: dict[PartitionName, int] = {}
    for usage in usages:
        for partition, size_bytes in usage.sizes.items():
            sizes[partition] = max(size_bytes, sizes.get(partition, 0))
    return sizes
