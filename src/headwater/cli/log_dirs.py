"""How much disk each partition takes, asked of the brokers directly: librdkafka has no call for DescribeLogDirs."""

from collections.abc import Iterable

from headwater.cli.raw_request import NoAnswer, ask

DESCRIBE_LOG_DIRS = 35
VERSION = 1


def partition_sizes(brokers: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Bytes by topic and partition, the largest of its replicas. A broker that does not tell is left out."""
    sizes: dict[tuple[str, int], int] = {}
    for broker in brokers:
        try:
            answer = ask(broker, DESCRIBE_LOG_DIRS, VERSION, topics=None)
        except NoAnswer:
            continue
        for directory in answer.results or ():
            for topic in directory.topics or ():
                for partition in topic.partitions or ():
                    key = (topic.name, partition.partition_index)
                    sizes[key] = max(partition.partition_size, sizes.get(key, 0))
    return sizes
