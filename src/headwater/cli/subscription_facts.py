"""What is known of subscriptions: groups of every kind with their settings, where they are, and what they lack."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.cli.client import REQUEST_TIMEOUT_S
from headwater.cli.group_config import KIND, OFFSET_RESET, PAUSED, RETENTION, TOPIC
from headwater.cli.position import known_offset_range
from headwater.cli.share_group import ListedGroup, configured_groups, list_groups, share_assigned, share_offsets
from headwater.gateway.kafka.blocking import GroupConfig, committed_places, group_configs
from headwater.model.group_lag import Place, Standing, TotalLag, places_read, standing, total

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

STREAM, QUEUE = "stream", "queue"
UNUSED = "unused"
FROM_END = "latest"


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    name: str
    kind: str
    state: str
    """Of its group; `unused` if there is none yet."""
    config: GroupConfig
    places: list[Standing] = field(default_factory=list)
    """Where it is in what it reads."""

    @property
    def explicit_topic(self) -> str:
        return self.config.values.get(TOPIC, "")

    @property
    def is_known(self) -> bool:
        """Settings alone, such as those that outlive a group, make none."""
        return self.state != UNUSED or self.explicit_topic != ""

    @property
    def topics(self) -> list[str]:
        named = {self.explicit_topic} - {""}
        return sorted(named | {place.topic for place in self.places})

    @property
    def retention_ms(self) -> int:
        return int(self.config.values.get(RETENTION, "0"))

    @property
    def is_paused(self) -> bool:
        return self.config.values.get(PAUSED) == "true"

    @property
    def shown_state(self) -> str:
        return "paused" if self.is_paused else self.state

    def lag(self, topic: str | None = None) -> TotalLag:
        return total(place for place in self.places if topic in (None, place.topic))


def all_subscriptions(client: "AdminClient") -> list[SubscriptionFacts]:
    """Every group that there is, and every explicit subscription, by name."""
    listed = list_groups(client)
    found = _facts(client, sorted(listed.keys() | set(configured_groups(client))), listed)
    return [facts for facts in found if facts.is_known]


def readers(client: "AdminClient", topic: str | None) -> Iterator[tuple[SubscriptionFacts, str]]:
    """Each subscription with each topic that it reads, or with this one alone. One that has read nothing yet is there
    with an empty topic."""
    for facts in all_subscriptions(client):
        for each in facts.topics or [""]:
            if topic in (None, each):
                yield facts, each


def subscription(client: "AdminClient", name: str) -> SubscriptionFacts | None:
    (found,) = _facts(client, [name], list_groups(client))
    return found if found.is_known else None


def _facts(client: "AdminClient", names: list[str], listed: dict[str, ListedGroup]) -> list[SubscriptionFacts]:
    configs = group_configs(client, names)
    topics = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    assigned = stream_assignments(client, [name for name in names if name in listed and not listed[name].is_share])
    found = []
    positions: dict[str, dict[Place, tuple[int, int | None]]] = {}
    for name in names:
        config, group = configs[name], listed.get(name)
        is_queue = group.is_share if group is not None else config.values.get(KIND) == QUEUE
        found.append(SubscriptionFacts(name, QUEUE if is_queue else STREAM, group.state if group else UNUSED, config))
        if group is not None and is_queue:
            positions[name] = share_offsets(client, name)
            assigned[name] = share_assigned(client, name)
        elif group is not None:
            places = committed_places(client, name)
            positions[name] = {(place.topic, place.partition): (place.offset, None) for place in places}
    read = {
        name: places_read(
            known,
            assigned.get(name, set()),
            counts,
            is_simple=listed[name].is_simple,
            subscribed=configs[name].values.get(TOPIC, ""),
        )
        for name, known in positions.items()
    }
    ranges = _ranges(client, {place for places in read.values() for place in places})
    for facts in found:
        begins_at_end = facts.kind == QUEUE and facts.config.values.get(OFFSET_RESET, FROM_END) == FROM_END
        for place in read.get(facts.name, ()):
            position, lag = positions[facts.name].get(place, (None, None))
            start, end = ranges.get(place, (None, None))
            facts.places.append(
                Standing(*place, position, end, lag)
                if lag is not None
                else standing(place, position, start, end, begins_at_end=begins_at_end)
            )
    return found


def _ranges(client: "AdminClient", places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
    """Without partitions that no node leads."""
    from confluent_kafka import TopicPartition

    return known_offset_range(client, [TopicPartition(*place) for place in sorted(places)])


def stream_assignments(client: "AdminClient", names: list[str]) -> dict[str, set[Place]]:
    """What the members of each group read now, without groups that are gone."""
    from confluent_kafka import KafkaException

    if not names:
        return {}
    found = {}
    for name, future in client.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            members = future.result().members
        except KafkaException:
            continue
        found[name] = {(each.topic, each.partition) for m in members for each in m.assignment.topic_partitions}
    return found
