"""Topics as the answers describe them: what metadata, offsets, sizes and settings say of each."""

from typing import Any

from confluent_kafka.admin import ConfigSource

from headwater.client.address import BrokerAddress
from headwater.gateway.kafka.admin import Admin, is_internal
from headwater.gateway.kafka.errors import topic_not_found
from headwater.gateway.topics.bodies import PartitionOut, Setting, Topic, TopicSummary


async def summaries(admin: Admin, *, internal: bool) -> list[TopicSummary]:
    """`internal`: also the cluster's own topics."""
    metadata = await admin.metadata()
    topics = [topic for name, topic in sorted(metadata.topics.items()) if internal or not is_internal(name)]
    offsets = await admin.offset_range([(topic.topic, index) for topic in topics for index in topic.partitions])
    sizes = await admin.sizes(BrokerAddress(broker.host, broker.port) for broker in metadata.brokers.values())
    found = []
    for topic in topics:
        partitions = [(topic.topic, index) for index in topic.partitions]
        counts = [end - start for start, end in (offsets[each] for each in partitions if each in offsets)]
        known_sizes = [sizes[each] for each in partitions if each in sizes]
        found.append(
            TopicSummary(
                name=topic.topic,
                partitions=len(partitions),
                replication_factor=max((len(each.replicas) for each in topic.partitions.values()), default=0),
                records=sum(counts) if counts else None,
                unknown_partitions=len(partitions) - len(counts),
                size_bytes=sum(known_sizes) if known_sizes else None,
                internal=is_internal(topic.topic),
            )
        )
    return found


async def describe(admin: Admin, topic: str) -> Topic:
    """Raises KafkaFailure."""
    metadata = await admin.metadata()
    if topic not in metadata.topics:
        raise topic_not_found(topic)
    described = await admin.topic(topic)
    config = await admin.topic_config(topic)
    partitions = metadata.topics[topic].partitions
    offsets = await admin.offset_range([(topic, index) for index in partitions])
    sizes = await admin.sizes(BrokerAddress(broker.host, broker.port) for broker in metadata.brokers.values())
    found = []
    for index, partition in sorted(partitions.items()):
        start, end = offsets.get((topic, index), (None, None))
        found.append(
            PartitionOut(
                partition=index,
                leader=partition.leader,
                replicas=list(partition.replicas),
                in_sync=list(partition.isrs),
                start_offset=start,
                end_offset=end,
                size_bytes=sizes.get((topic, index)),
            )
        )
    settings = [_setting(name, entry) for name, entry in sorted(config.items())]
    return Topic(topic, str(described.topic_id), is_internal(topic), found, settings)


def _setting(name: str, entry: Any) -> Setting:
    """`entry` is a ConfigEntry of confluent-kafka."""
    source = ConfigSource(entry.source).name
    return Setting(
        name=name,
        value=None if entry.is_sensitive else entry.value,
        is_default=source != ConfigSource.DYNAMIC_TOPIC_CONFIG.name,
        is_read_only=bool(entry.is_read_only),
        is_sensitive=bool(entry.is_sensitive),
        source=source.lower(),
    )
