"""What a redrive asks of the cluster. Everything raises KafkaException or ClientError."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headwater.client.address import parse_bootstrap
from headwater.client.admin.configs import alter_group_config, group_configs
from headwater.client.admin.groups import list_groups, merged
from headwater.client.blocking_cluster import BlockingCluster, retried
from headwater.client.librdkafka import REQUEST_TIMEOUT_S, offsets_of
from headwater.client.security_options import security_of
from headwater.client.settings import ConnectionSettings

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

FILTER = "headwater.filter"
CLIENT_ID = "headwater-redrive"

Settings = Mapping[str, Any]
"""Of any client: where the cluster is, and how it is reached."""


def partitions_by_topic(client: "AdminClient") -> dict[str, set[int]]:
    """Of all topics: asking for one by name may create it."""
    topics = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    return {name: set(topic.partitions) for name, topic in topics.items()}


def end_offsets(client: "AdminClient", topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Partitions that no node leads at the moment are asked again for a while."""
    asked = [TopicPartition(topic, index) for index in partitions]
    return {index: end for (_, index), end in offsets_of(client, asked, OffsetSpec.latest()).items()}


def open_cluster(settings: Settings) -> BlockingCluster:
    """Our own client, for what librdkafka has no call for."""
    security = security_of(settings)
    return BlockingCluster(
        parse_bootstrap(settings["bootstrap.servers"]),
        ConnectionSettings(client_id=settings.get("client.id", CLIENT_ID), tls=security.tls, sasl=security.sasl),
    )


def group_names(cluster: BlockingCluster) -> list[str]:
    listings = retried(lambda: cluster.answer_everywhere(list_groups()), patience_s=REQUEST_TIMEOUT_S)
    return sorted(merged(listings))


def group_filters(cluster: BlockingCluster, names: Sequence[str]) -> dict[str, str]:
    """The filter that each group names itself; empty if it does not."""
    return {
        name: config.own.get(FILTER, "")
        for question in group_configs(names, [FILTER])
        for name, config in cluster.answer(question).items()
    }


def name_filter(cluster: BlockingCluster, group: str, expression: str) -> None:
    question = alter_group_config(group, set={FILTER: expression})
    retried(lambda: cluster.answer(question), patience_s=REQUEST_TIMEOUT_S)


def is_end(error: KafkaError) -> bool:
    """Whether it says that a partition has no more. Raises what does not pass by itself."""
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if not error.retriable():
        raise KafkaException(error)
    return False
