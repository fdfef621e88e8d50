"""Subscriptions as the commands show them: groups of every kind with their settings, positions and lag."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headwater.cli.brokers import REQUEST_TIMEOUT_S
from headwater.cli.client import Clients
from headwater.cli.group_requests import (
    KIND,
    OFFSET_RESET,
    PAUSED,
    RETENTION,
    TOPIC,
    configured_groups,
    group_configs,
    list_groups,
    share_assigned,
    share_offsets,
)
from headwater.cli.position import known_offset_range
from headwater.client.librdkafka import committed_positions
from headwater.model.group_lag import PartitionLag, TotalLag, partition_lag, partitions_read, total
from headwater.model.ids import PartitionName

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from headwater.client.admin.configs import GroupConfig
    from headwater.client.admin.groups import GroupListing

STREAM, QUEUE = "stream", "queue"
UNUSED = "unused"
FROM_END = "latest"


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    name: str
    kind: str
    state: str
    """Of its group; `unused` if there is none yet."""
    config: "GroupConfig"
    partitions: list[PartitionLag] = field(default_factory=list)
    """Position and lag in each partition that it reads."""

    @property
    def explicit_topic(self) -> str:
        return self.config.values.get(TOPIC, "")

    @property
    def is_known(self) -> bool:
        """Whether there is a group, or settings that name a topic. Other settings may outlive a group."""
        return self.state != UNUSED or self.explicit_topic != ""

    @property
    def topics(self) -> list[str]:
        explicit = {self.explicit_topic} - {""}
        return sorted(explicit | {each.topic for each in self.partitions})

    @property
    def retention_ms(self) -> int:
        return int(self.config.values.get(RETENTION, "0"))

    @property
    def is_paused(self) -> bool:
        return self.config.values.get(PAUSED) == "true"

    @property
    def shown_state(self) -> str:
        return "paused" if self.is_paused else self.state

    @property
    def begins_at_end(self) -> bool:
        """Whether a partition without a position is read from its end."""
        return self.kind == QUEUE and self.config.values.get(OFFSET_RESET, FROM_END) == FROM_END

    def lag(self, topic: str | None = None) -> TotalLag:
        return total(each for each in self.partitions if topic in (None, each.topic))


def all_subscriptions(clients: Clients) -> list[SubscriptionStatus]:
    """Every group, and every explicit subscription, by name."""
    groups = list_groups(clients.cluster)
    names = sorted(groups.keys() | set(configured_groups(clients.cluster)))
    return [status for status in _statuses(clients, names, groups) if status.is_known]


def readers(clients: Clients, topic: str | None) -> Iterator[tuple[SubscriptionStatus, str]]:
    """Each subscription with each topic that it reads, or with the given topic alone. A subscription that has read
    nothing yet comes with an empty topic."""
    for status in all_subscriptions(clients):
        for each in status.topics or [""]:
            if topic in (None, each):
                yield status, each


def subscription(clients: Clients, name: str) -> SubscriptionStatus | None:
    """None if there is no such subscription."""
    (status,) = _statuses(clients, [name], list_groups(clients.cluster))
    return status if status.is_known else None


def _statuses(clients: Clients, names: list[str], groups: "dict[str, GroupListing]") -> list[SubscriptionStatus]:
    configs = group_configs(clients.cluster, names)
    statuses = []
    for name in names:
        config, group = configs[name], groups.get(name)
        is_queue = group.is_share if group is not None else config.values.get(KIND) == QUEUE
        statuses.append(
            SubscriptionStatus(name, QUEUE if is_queue else STREAM, group.state if group else UNUSED, config)
        )
    _add_partitions(clients, [status for status in statuses if status.name in groups], groups)
    return statuses


def _add_partitions(clients: Clients, statuses: list[SubscriptionStatus], groups: "dict[str, GroupListing]") -> None:
    """Fill in where each group is, with one request for the offsets of all partitions."""
    topics = clients.admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    assigned = _stream_assignments(clients.admin, [status.name for status in statuses if status.kind == STREAM])
    positions: dict[str, _Positions] = {}
    read: dict[str, list[PartitionName]] = {}
    for status in statuses:
        name = status.name
        if status.kind == QUEUE:
            assigned[name] = share_assigned(clients.cluster, name)
        positions[name] = _positions(clients, status)
        read[name] = partitions_read(
            positions[name],
            assigned.get(name, set()),
            counts,
            is_simple=groups[name].is_simple,
            subscribed=status.explicit_topic,
        )
    ranges = _ranges(clients.admin, {partition for partitions in read.values() for partition in partitions})
    for status in statuses:
        for partition in read[status.name]:
            position, lag = positions[status.name].get(partition, (None, None))
            start, end = ranges.get(partition, (None, None))
            status.partitions.append(
                PartitionLag(*partition, position, end, lag)
                if lag is not None
                else partition_lag(partition, position, start, end, begins_at_end=status.begins_at_end)
            )


_Positions: TypeAlias = "dict[PartitionName, tuple[int, int | None]]"
"""By partition, the position and, if the broker knows it, the lag."""


def _positions(clients: Clients, status: SubscriptionStatus) -> _Positions:
    if status.kind == QUEUE:
        return share_offsets(clients.cluster, status.name)
    committed = committed_positions(clients.admin, [status.name])[status.name]
    return {(each.topic, each.partition): (each.offset, None) for each in committed}


def _ranges(client: "AdminClient", partitions: Iterable[PartitionName]) -> dict[PartitionName, tuple[int, int]]:
    """Without partitions that no node leads."""
    from confluent_kafka import TopicPartition

    return known_offset_range(client, [TopicPartition(*partition) for partition in sorted(partitions)])


def _stream_assignments(client: "AdminClient", names: list[str]) -> dict[str, set[PartitionName]]:
    """The partitions that the members of each group read now, without groups that are gone."""
    from confluent_kafka import KafkaException

    if not names:
        return {}
    assignments = {}
    for name, future in client.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            members = future.result().members
        except KafkaException:
            continue
        assignments[name] = {(each.topic, each.partition) for m in members for each in m.assignment.topic_partitions}
    return assignments
