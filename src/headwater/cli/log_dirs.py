"""How much disk partitions and brokers take, by a DescribeLogDirs request, for which librdkafka has no call."""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.cli.bootstrap import Address
from headwater.cli.raw_request import BrokerDidNotAnswer, ask

DESCRIBE_LOG_DIRS = 35
SIZES_VERSION, USABLE_BYTES_VERSION = 1, 4


class DiskUsage(NamedTuple):
    used_bytes: int
    """By partitions."""
    free_bytes: int


def partition_sizes(brokers: Iterable[Address]) -> dict[tuple[str, int], int]:
    """Bytes by topic and partition, of the largest replica. A broker that does not answer is left out."""
    sizes: dict[tuple[str, int], int] = {}
    for broker in brokers:
        try:
            response = ask(broker, DESCRIBE_LOG_DIRS, SIZES_VERSION, topics=None)
        except BrokerDidNotAnswer:
            continue
        for directory in response.results or ():
            for topic in directory.topics or ():
                for partition in topic.partitions or ():
                    key = (topic.name, partition.partition_index)
                    sizes[key] = max(partition.partition_size, sizes.get(key, 0))
    return sizes


def disk_usage(broker: Address) -> DiskUsage | None:
    """None if the broker has no log directory. Raises BrokerDidNotAnswer."""
    response = ask(broker, DESCRIBE_LOG_DIRS, USABLE_BYTES_VERSION, topics=None)
    if not response.results:
        return None
    used_bytes = sum(
        partition.partition_size
        for directory in response.results
        for topic in directory.topics or ()
        for partition in topic.partitions or ()
    )
    return DiskUsage(used_bytes, sum(directory.usable_bytes for directory in response.results))
